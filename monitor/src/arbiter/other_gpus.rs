//! A GPU's part in the decisions about jobs that use several GPUs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::alarm::Alarm;
use crate::schedule::gangs::{Gangs, GpuNumber, Phase, Standing};
use crate::schedule::{Job, Nanos};

/// The gangs of a node, and the alarms of its GPUs. Locked within a GPU's state, and for a moment only: nothing but alarms is locked
/// meanwhile.
#[derive(Debug, Default)]
pub(super) struct Node {
    gangs: Gangs,
    alarms: Vec<Arc<Alarm>>,
}

/// One GPU among all.
#[derive(Debug)]
pub(super) struct OtherGpus {
    node: Arc<Mutex<Node>>,
    number: GpuNumber,
}

impl OtherGpus {
    /// Another GPU, whose alarm calls it when a phase begins or ends there.
    pub(super) fn join(node: &Arc<Mutex<Node>>, alarm: &Arc<Alarm>) -> Self {
        let mut this = Self {
            node: Arc::clone(node),
            number: 0,
        };
        this.number = this.with(|node| {
            node.alarms.push(Arc::clone(alarm));
            node.alarms.len() - 1
        });
        this
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut Node) -> T) -> T {
        // Nothing is left half done where a thread could have panicked.
        use_it(&mut self.node.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells of this GPU's jobs. Returns which of them have it.
    pub(super) fn look(&self, now: Nanos, jobs: BTreeMap<Job, Standing>) -> Phase {
        self.with(|node| {
            let (phase, changed) = node.gangs.look(now, self.number, jobs);
            node.call(&changed);
            phase
        })
    }

    /// This GPU is not steered any more.
    pub(super) fn leave(&self, now: Nanos) {
        self.with(|node| {
            let changed = node.gangs.leave(now, self.number);
            node.call(&changed);
        });
    }
}

impl Node {
    fn call(&self, gpus: &[GpuNumber]) {
        for alarm in gpus.iter().filter_map(|&number| self.alarms.get(number)) {
            alarm.call();
        }
    }
}
