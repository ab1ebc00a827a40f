//! Reads of a user's process that may wait for that user.
//!
//! While a process executes another program, the kernel keeps those waiting who read some of its files in `/proc`, and the program
//! can be in a file system of the user's own. So they are read in a thread of their own, for which others wait a moment. A user who kept
//! one waiting is not waited for again for a while, and never while it still waits. A signal ends such a wait: it keeps
//! this process from nothing, nor from its end.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::warn;

/// The time for one read. The kernel answers within some microseconds, and on a machine that is busy the thread may have to wait.
const PATIENCE: Duration = Duration::from_millis(250);
/// A user who took longer is not waited for again for so long.
const REST: Duration = Duration::from_secs(10);
/// How often that is said of a user.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// The users who keep a read waiting, or did a moment ago.
static SLOW: Mutex<BTreeMap<u32, Slow>> = Mutex::new(BTreeMap::new());

struct Slow {
    /// Reads that wait now.
    waiting: u32,
    until: Instant,
    said: Instant,
}

fn slow() -> MutexGuard<'static, BTreeMap<u32, Slow>> {
    SLOW.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is read of a process of this user's; `None` if that takes longer than a moment.
pub fn within_a_moment<T: Send + 'static>(
    uid: u32,
    pid: u32,
    read: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    within(PATIENCE, uid, pid, read)
}

/// The same with another time for it.
pub fn within<T: Send + 'static>(
    patience: Duration,
    uid: u32,
    pid: u32,
    read: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let is_slow = |it: &Slow| it.waiting > 0 || Instant::now() < it.until;
    if slow().get(&uid).is_some_and(is_slow) {
        return None;
    }
    let (to, from) = channel();
    let read = move || {
        let told = read();
        // Not while it is judged below whether it comes too late.
        let mut slow = slow();
        if to.send(told).is_err()
            && let Some(it) = slow.get_mut(&uid)
        {
            it.waiting = it.waiting.saturating_sub(1);
        }
    };
    thread::Builder::new()
        .name("read".into())
        .spawn(read)
        .ok()?;
    match from.recv_timeout(patience) {
        Err(RecvTimeoutError::Timeout) => {}
        told => return told.ok(),
    }
    let mut slow = slow();
    if let Ok(told) = from.try_recv() {
        return Some(told);
    }
    drop(from);
    let now = Instant::now();
    let it = slow.entry(uid).or_insert(Slow {
        waiting: 0,
        until: now,
        said: now - SAID_EVERY,
    });
    it.waiting += 1;
    it.until = now + REST;
    if now - it.said >= SAID_EVERY {
        it.said = now;
        warn!(
            "process {pid} of user {uid} keeps waiting who looks at it, so that user's processes are not looked at for a while"
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_waits_keeps_nobody_and_no_other_users_reads() {
        let (free, waits) = channel::<()>();
        let begun = Instant::now();
        assert_eq!(within_a_moment(7001, 1, move || waits.recv().is_ok()), None);
        for _ in 0..1000 {
            assert_eq!(within_a_moment(7001, 2, || ()), None);
        }
        assert_eq!(within_a_moment(7002, 3, || 5), Some(5));
        assert!(begun.elapsed() < Duration::from_secs(10));
        free.send(()).unwrap();
        let is_there = || slow()[&7001].waiting == 1;
        while is_there() {
            thread::yield_now();
        }
        // It may do so again, and is not trusted at once.
        assert_eq!(within_a_moment(7001, 2, || ()), None);
        slow().get_mut(&7001).unwrap().until = Instant::now();
        assert_eq!(within_a_moment(7001, 2, || ()), Some(()));
    }
}
