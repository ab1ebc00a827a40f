//! The GPUs on which jobs are, each from its first process on.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use softmig_policy::node::node_conf;

use super::gpu::Gpu;
use super::other_gpus::OtherGpus;
use super::settings::{GpuId, Settings};
use super::steering::Scheduler;
use crate::schedule::turns::Gangs;

/// The GPUs that a process asked for.
#[derive(Debug, Default)]
pub(super) struct Gpus {
    all: Mutex<BTreeMap<GpuId, Arc<Gpu>>>,
    gangs: Arc<Mutex<Gangs>>,
}

impl Gpus {
    pub(super) fn get_or_start(&self, id: GpuId, settings: &Settings) -> io::Result<Arc<Gpu>> {
        let mut gpus = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = gpus.get(&id) {
            return Ok(Arc::clone(gpu));
        }
        let others = OtherGpus::new(&self.gangs, gpus.len());
        let scheduler = match settings.scheduler {
            node_conf::Scheduler::Gpu => match settings.without_effect(id) {
                None => Scheduler::new(id, settings.folder()),
                Some(why) => Scheduler::off(id, why),
            },
            node_conf::Scheduler::Turns => {
                Scheduler::off(id, "node.conf says so, or is damaged".into())
            }
        };
        let gpu = Gpu::start(settings.rules, others, scheduler)?;
        gpus.insert(id, Arc::clone(&gpu));
        Ok(gpu)
    }

    pub(super) fn all(&self) -> BTreeMap<GpuId, Arc<Gpu>> {
        let gpus = self.all.lock();
        gpus.unwrap_or_else(PoisonError::into_inner).clone()
    }
}
