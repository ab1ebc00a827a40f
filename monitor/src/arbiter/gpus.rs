//! The GPUs on which jobs are, each from its first process on.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use super::authorizer::Authorizer;
use super::gpu::Gpu;
use super::other_gpus::Node;
use super::scheduler::Scheduler;
use super::settings::{GpuId, Settings, Standing, uuid};

/// The GPUs that a process asked for.
#[derive(Debug, Default)]
pub(super) struct Gpus {
    all: Mutex<BTreeMap<GpuId, Arc<Gpu>>>,
    node: Arc<Mutex<Node>>,
    /// The GPU that is measured just now, and whether that is to stop.
    measured: Mutex<Option<(String, Arc<AtomicBool>)>>,
    /// Knows whose processes are that have no seat.
    authorizer: Option<Arc<dyn Authorizer>>,
}

impl Gpus {
    /// Those of the jobs that it knows.
    pub(super) fn of(authorizer: Arc<dyn Authorizer>) -> Self {
        Self {
            authorizer: Some(authorizer),
            ..Self::default()
        }
    }

    pub(super) fn get_or_start(&self, id: GpuId, settings: &Settings) -> io::Result<Arc<Gpu>> {
        self.stop_measuring(&[id]);
        let mut gpus = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = gpus.get(&id) {
            return Ok(Arc::clone(gpu));
        }
        let scheduler = Scheduler::new(id, settings.folder());
        let gpu = Gpu::start(scheduler, &self.node)?;
        gpu.set_standing(&settings.standing(id));
        if let Some(authorizer) = &self.authorizer {
            gpu.set_authorizer(Arc::clone(authorizer));
        }
        gpus.insert(id, Arc::clone(&gpu));
        Ok(gpu)
    }

    pub(super) fn all(&self) -> BTreeMap<GpuId, Arc<Gpu>> {
        let gpus = self.all.lock();
        gpus.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells each GPU anew whether it is to be steered.
    pub(super) fn set_standings(&self, of: impl Fn(GpuId) -> Standing) {
        for (id, gpu) in self.all() {
            gpu.set_standing(&of(id));
        }
    }

    /// This GPU is measured until [`Gpus::end_measuring`]. True there once a process has come for it.
    pub(super) fn begin_measuring(&self, uuid: &str) -> Arc<AtomicBool> {
        let is_over = Arc::default();
        *self.measured() = Some((uuid.to_owned(), Arc::clone(&is_over)));
        is_over
    }

    /// No GPU is measured.
    pub(super) fn end_measuring(&self) {
        *self.measured() = None;
    }

    /// A process of a job with these GPUs has come.
    pub(super) fn stop_measuring(&self, gpus: &[GpuId]) {
        if let Some((measured, is_over)) = &*self.measured()
            && gpus.iter().any(|id| *measured == uuid(*id))
        {
            is_over.store(true, SeqCst);
        }
    }

    fn measured(&self) -> std::sync::MutexGuard<'_, Option<(String, Arc<AtomicBool>)>> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
