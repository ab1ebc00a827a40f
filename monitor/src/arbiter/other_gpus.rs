//! The GPUs' knowledge of each other's jobs that use several of them together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::schedule::turns::{Gangs, Nanos, Turns};

/// One GPU among all.
#[derive(Debug, Default)]
pub(super) struct OtherGpus {
    /// Locked within a GPU's state, and for a moment only: nothing else is locked meanwhile.
    gangs: Arc<Mutex<Gangs>>,
    number: usize,
}

impl OtherGpus {
    /// The GPU with that number.
    pub(super) fn new(gangs: &Arc<Mutex<Gangs>>, number: usize) -> Self {
        Self {
            gangs: Arc::clone(gangs),
            number,
        }
    }

    fn gangs(&self) -> MutexGuard<'_, Gangs> {
        // Nothing is left half done where a thread could have panicked.
        self.gangs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before a look.
    pub(super) fn hear(&self, now: Nanos, turns: &mut Turns) {
        turns.note_elsewhere(now, self.number, &self.gangs());
    }

    /// After a look.
    pub(super) fn tell(&self, turns: &Turns) {
        turns.tell_others(self.number, &mut self.gangs());
    }
}
