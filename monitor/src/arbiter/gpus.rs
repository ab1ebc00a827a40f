//! The GPUs on which jobs are, each from its first process on.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::gpu::Gpu;
use super::other_gpus::Node;
use super::scheduler::Scheduler;
use super::settings::{GpuId, Settings};

/// The GPUs that a process asked for.
#[derive(Debug, Default)]
pub(super) struct Gpus {
    all: Mutex<BTreeMap<GpuId, Arc<Gpu>>>,
    node: Arc<Mutex<Node>>,
}

impl Gpus {
    pub(super) fn get_or_start(&self, id: GpuId, settings: &Settings) -> io::Result<Arc<Gpu>> {
        let mut gpus = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = gpus.get(&id) {
            return Ok(Arc::clone(gpu));
        }
        let scheduler = match settings.without_effect(id) {
            None => Scheduler::new(id, settings.folder()),
            Some(why) => Scheduler::off(id, why),
        };
        let gpu = Gpu::start(scheduler, &self.node)?;
        gpus.insert(id, Arc::clone(&gpu));
        Ok(gpu)
    }

    pub(super) fn all(&self) -> BTreeMap<GpuId, Arc<Gpu>> {
        let gpus = self.all.lock();
        gpus.unwrap_or_else(PoisonError::into_inner).clone()
    }
}
