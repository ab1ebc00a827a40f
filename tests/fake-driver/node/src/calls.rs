//! How often each function of the driver was called, by process: a test sees what reached the driver, and what did not.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::description::SLOWLY;
use crate::layout::Shared;
use crate::process::Process;

impl Process {
    /// The number under which calls of a function are counted. The first process that calls it gives it one.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<usize> {
        let shared = self.mapped.shared();
        let _held = shared.lock.lock();
        if let Some(known) = find(shared, name) {
            return Some(known);
        }
        let mut entries = shared.functions.iter().enumerate();
        let (number, entry) = entries.find(|(_, entry)| entry.is_empty())?;
        entry.set(name);
        Some(number)
    }

    /// Counts a call.
    pub fn count(&self, function: usize) {
        if let Some(count) = self.record().and_then(|record| record.calls.get(function)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A function of a library whose calls are counted.
pub struct Function {
    name: &'static str,
    /// The number under which the node counts it, plus one; 0 before the first call.
    number: AtomicUsize,
}

impl Function {
    /// One of this name.
    #[must_use]
    pub const fn new(name: &'static str) -> Function {
        Function {
            name,
            number: AtomicUsize::new(0),
        }
    }

    /// Counts a call, and waits where the node's description says that the function is slow: now, and when what it returns ends.
    pub fn count(&self, process: &Process) -> Option<Slow> {
        // Relaxed: the number is the same whichever thread finds it.
        let number = match self.number.load(Ordering::Relaxed) {
            0 => {
                let number = process.function(self.name)?;
                self.number.store(number + 1, Ordering::Relaxed);
                number
            }
            known => known - 1,
        };
        process.count(number);
        let is_slow = process.description().slow.as_deref() == Some(self.name);
        is_slow.then(Slow::begin)
    }
}

/// A call that is slow to begin and to end.
pub struct Slow(());

impl Slow {
    fn begin() -> Slow {
        std::thread::sleep(SLOWLY);
        Slow(())
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        std::thread::sleep(SLOWLY);
    }
}

/// The number of a function that was called before.
pub(crate) fn find(shared: &Shared, name: &str) -> Option<usize> {
    shared.functions.iter().position(|entry| entry.is(name))
}
