//! Waiting for another program of the node, and not for ever.

use crate::dir::Dir;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::time::{Duration, Instant};
use tracing::warn;

/// How long one job waits for another's files to be done. They take a millisecond; a stopped prolog
/// must not stop all others.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Locks the file of this name, which root alone can open. It unlocks when it is closed, be it by a signal. `None`
/// when it cannot be had.
pub(crate) fn lock(dir: &Dir, name: &str) -> Option<File> {
    let lock = dir
        .open_or_create(name, 0o600)
        .inspect_err(|error| warn!("going on without a lock: {error}"))
        .ok()?;
    let deadline = Instant::now() + PATIENCE;
    while flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() >= deadline {
            let path = dir.path().join(name);
            warn!(
                "going on without a lock: {} is held for too long",
                path.display()
            );
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Some(lock)
}
