//! Lets a call through or not: one load and one comparison once it is known whose process this is.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::entry;
use crate::node::ThisNode;
use crate::os::{self, Errno};
use crate::place::{self, Finding, Reason, Standing};
use crate::report::{self, Level};
use crate::text::Text;

/// What the gate does with every call.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
/// Nobody has found out yet, or a file could not be read: the next call tries again.
const UNKNOWN: u8 = 0;
/// All calls pass.
const OPEN: u8 = 1;
/// All calls are refused, or counted on a node that only observes.
const SHUT: u8 = 2;

/// How many calls were refused.
static REFUSED: AtomicU32 = AtomicU32::new(0);

/// Whether the call of this function is refused.
#[inline]
pub(crate) fn refuses(function: &CStr) -> bool {
    // Relaxed: whoever needs more than this reads `FINDING`, which has its own order.
    STATE.load(Ordering::Relaxed) != OPEN && ask(function)
}

#[cold]
fn ask(function: &CStr) -> bool {
    let _errno = Errno::save();
    with_finding(|finding| match finding.standing {
        Standing::Denied(reason) => {
            count(finding, function, report::reason(reason).as_bytes());
            !finding.observe
        }
        _ => false,
    })
}

/// Whether limits hold for a process.
fn is_limited(finding: &Finding) -> bool {
    match finding.standing {
        Standing::Passive => false,
        Standing::Neighbours => entry::may_have_neighbour(),
        Standing::Job(_) | Standing::Own(_) | Standing::Denied(_) => true,
    }
}

/// Whether a process is refused a function that nobody would count. Says so, and where the node only observes, that it
/// would.
pub(crate) fn refuses_uncounted(function: &CStr, why: &[u8]) -> bool {
    let _errno = Errno::save();
    with_finding(|finding| {
        if !is_limited(finding) {
            return false;
        }
        count(finding, function, why);
        !finding.observe
    })
}

/// Counts a call that is refused, or would be, and says so the 1st, 10th, 100th, ... time.
fn count(finding: &Finding, function: &CStr, why: &[u8]) {
    // Relaxed: a count and nothing else.
    let count = REFUSED.fetch_add(1, Ordering::Relaxed).saturating_add(1);
    let is_round = core::iter::successors(Some(1_u32), |power| power.checked_mul(10))
        .any(|power| power == count);
    if is_round {
        let verb: &[u8] = if finding.observe {
            b"would refuse "
        } else {
            b"refused "
        };
        let mut number = Text::<16>::new();
        number.push_number(count.into(), 1);
        let parts = [
            verb,
            function.to_bytes(),
            b": ",
            why,
            b" (",
            number.as_bytes(),
            b")",
        ];
        report::say(finding, Level::Error, &parts);
    }
}

/// What was found out about this process.
struct Cell {
    /// [`EMPTY`], [`READY`], or the process that is writing.
    state: AtomicU32,
    finding: UnsafeCell<MaybeUninit<Finding>>,
}

const EMPTY: u32 = 0;
/// No process has this number.
const READY: u32 = u32::MAX;

// SAFETY: `finding` is written by the thread that put its process's number into `state`, and read only when `state`
// is READY, which is the last.
unsafe impl Sync for Cell {}

static FINDING: Cell = Cell {
    state: AtomicU32::new(EMPTY),
    finding: UnsafeCell::new(MaybeUninit::uninit()),
};

impl Cell {
    fn get(&self) -> Option<&Finding> {
        // Acquire: what was written before READY is seen.
        if self.state.load(Ordering::Acquire) != READY {
            return None;
        }
        // SAFETY: READY is the last state, so nobody writes any more.
        let finding = unsafe { &*self.finding.get() };
        // SAFETY: it was written before READY.
        Some(unsafe { finding.assume_init_ref() })
    }

    /// Keeps a finding; true for the one that was first.
    fn keep(&self, finding: &Finding) -> bool {
        let us = os::process_id();
        // Relaxed: only the number counts here.
        let before = self.state.load(Ordering::Relaxed);
        // The child of a process that forked in the middle of it takes it over: the thread that wrote is not in it.
        if before == us || before == READY {
            return false;
        }
        let taken = self
            .state
            .compare_exchange(before, us, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_err() {
            return false;
        }
        // SAFETY: this thread alone put the number there, and nobody reads before READY.
        unsafe { self.finding.get().write(MaybeUninit::new(*finding)) };
        // Release: see `get`.
        self.state.store(READY, Ordering::Release);
        true
    }
}

/// Calls `use_it` with what holds for this process.
///
/// Threads that come here first at the same time, and the child of a process that forked in the middle of it, each find
/// out by themselves: nobody ever waits.
pub(crate) fn with_finding<T>(use_it: impl FnOnce(&Finding) -> T) -> T {
    if let Some(finding) = FINDING.get() {
        set_state(finding);
        return use_it(finding);
    }
    let finding = place::find(&ThisNode);
    // Trouble such as too many open files may pass.
    let is_final = !matches!(finding.standing, Standing::Denied(Reason::Unreadable(_)));
    if is_final && FINDING.keep(&finding) {
        report::say_standing(&finding);
        set_state(&finding);
    }
    use_it(&finding)
}

/// Makes the next calls short. Done again whenever a finding is asked for: a fork may come between.
fn set_state(finding: &Finding) {
    let is_denied = matches!(finding.standing, Standing::Denied(_));
    // Relaxed: see `refuses`.
    STATE.store(if is_denied { SHUT } else { OPEN }, Ordering::Relaxed);
}

/// Whether the process is to have the limits of the jobs on its GPUs.
pub(crate) fn is_neighbour() -> bool {
    let _errno = Errno::save();
    with_finding(|finding| finding.standing == Standing::Neighbours)
}
