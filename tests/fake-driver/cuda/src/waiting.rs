//! Waiting for the device, and the driver's own thread.

use std::mem::MaybeUninit;
use std::thread;
use std::time::Duration;

use softmig_fake_node::Clock;

use crate::Outcome;
use crate::driver::Driver;
use crate::entry::locked;
use crate::work::Work;

/// How soon what is waited for can be; what is later is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    Done,
    /// Not before this time on the node's clock.
    Until(u64),
    /// That depends on something else.
    Unknown,
}

/// How often to look if it is not known how long it takes, or if a test drives the clock.
const A_MOMENT: Duration = Duration::from_micros(100);
/// The longest sleep: others may die, or die off the queue.
const A_WHILE: Duration = Duration::from_millis(20);

impl Wait {
    /// For all of some streams' work.
    pub(crate) fn for_all<'a>(works: impl Iterator<Item = &'a Work>, now: u64) -> Wait {
        works.map(|work| work.end(now)).max().unwrap_or(Wait::Done)
    }
}

/// Waits, without the lock, until the question is answered by `Done`.
pub(crate) fn wait(mut question: impl FnMut(&mut Driver) -> Outcome<Wait>) -> Outcome {
    loop {
        let nap = locked(|driver| {
            Ok(match question(driver)? {
                Wait::Done => None,
                Wait::Unknown => Some(A_MOMENT),
                Wait::Until(time) => Some(nap_until(driver, time)),
            })
        })?;
        match nap {
            None => return Ok(()),
            Some(nap) => thread::sleep(nap),
        }
    }
}

fn nap_until(driver: &Driver, time: u64) -> Duration {
    match driver.node.description().clock {
        Clock::Driven => A_MOMENT,
        Clock::Real => {
            let left = Duration::from_nanos(time.saturating_sub(driver.node.now()));
            left.min(A_WHILE)
        }
    }
}

/// Sees to it that someone does what is queued, also while no thread of the program calls the driver.
pub(crate) fn attend(driver: &mut Driver) {
    let wanted = driver.streams.any_queued() || !driver.streams.due.is_empty();
    if wanted && !driver.attended {
        driver.attended = without_signals(|| {
            let thread = thread::Builder::new().name("fake-cuda".into());
            thread.spawn(work).is_ok()
        });
    }
}

/// The driver's thread: as long as something is queued it looks after it, and calls the program where it is to be called.
fn work() {
    loop {
        let next = locked(|driver| {
            driver.settle();
            let next = driver.streams.due.pop_front();
            if next.is_none() && !driver.streams.any_queued() {
                driver.attended = false;
                return Ok(None);
            }
            Ok(Some(next))
        });
        match next {
            Ok(Some(Some((stream, call)))) => {
                call.call();
                // If the driver has ended meanwhile, no thread waits for the stream either.
                let _ = locked(|driver| {
                    let now = driver.node.now();
                    if let Ok(stream) = crate::streams::get_mut(driver, stream) {
                        stream.work.called(now);
                    }
                    Ok(())
                });
            }
            Ok(Some(None)) => thread::sleep(A_MOMENT),
            Ok(None) | Err(_) => return,
        }
    }
}

/// Starts a thread that no signal of the program's reaches.
fn without_signals(start: impl FnOnce() -> bool) -> bool {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: the set is this function's own.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: `all` was filled above, and `before` takes what was blocked.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let started = start();
    // SAFETY: `before` was written above; this gives the thread back what it had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started
}
