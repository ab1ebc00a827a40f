//! Atomics, whose every step a test can watch.

#[cfg(not(test))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering};

#[cfg(test)]
pub(crate) use crate::tests::steps::{AtomicU64, Ordering};
