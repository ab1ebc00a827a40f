//! Atomics for tests: each step of a thread can be watched, and a thread can be stopped before any of them.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

#[cfg(not(loom))]
use core::sync::atomic as real;
#[cfg(loom)]
use loom::sync::atomic as real;
pub(crate) use real::Ordering;

type Watcher = Box<dyn FnMut()>;

#[cfg(not(loom))]
std::thread_local! {
    static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
}
#[cfg(loom)]
loom::thread_local! {
    static WATCHER: RefCell<Option<Watcher>> = RefCell::new(None);
}

/// The type that the crate's own code uses in tests.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct AtomicU64(real::AtomicU64);

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        Self(real::AtomicU64::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        step();
        self.0.load(order)
    }

    /// Not used by the crate itself.
    pub(crate) fn store(&self, value: u64, order: Ordering) {
        step();
        self.0.store(value, order);
    }

    pub(crate) fn swap(&self, value: u64, order: Ordering) -> u64 {
        step();
        self.0.swap(value, order)
    }

    pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        step();
        self.0.fetch_add(value, order)
    }

    pub(crate) fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        step();
        self.0.fetch_max(value, order)
    }

    pub(crate) fn compare_exchange(
        &self,
        old: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        step();
        self.0.compare_exchange(old, new, success, failure)
    }

    pub(crate) fn compare_exchange_weak(
        &self,
        old: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        step();
        self.0.compare_exchange_weak(old, new, success, failure)
    }
}

fn step() {
    let watcher = WATCHER.with(|watcher| watcher.borrow_mut().take());
    // Taken out meanwhile: the watcher's own steps are not watched, and a thread stops only once.
    if let Some(mut watcher) = watcher {
        watcher();
        WATCHER.with(|place| place.replace(Some(watcher)));
    }
}

/// Calls `watcher` before each step of `work`.
pub(crate) fn watched<R>(watcher: impl FnMut() + 'static, work: impl FnOnce() -> R) -> R {
    WATCHER.with(|place| place.replace(Some(Box::new(watcher))));
    let result = work();
    WATCHER.with(|place| place.replace(None));
    result
}

struct Stopped;

/// Does only this number of steps of `work`, as if its process was killed then; `None` if it was.
pub(crate) fn killed_after<R>(steps: usize, work: impl FnOnce() -> R) -> Option<R> {
    let mut left = steps;
    let watcher = move || match left.checked_sub(1) {
        Some(fewer) => left = fewer,
        // Not a panic: those are printed.
        None => resume_unwind(Box::new(Stopped)),
    };
    match catch_unwind(AssertUnwindSafe(|| watched(watcher, work))) {
        Ok(result) => Some(result),
        Err(cause) if cause.is::<Stopped>() => None,
        Err(cause) => resume_unwind(cause),
    }
}
