//! Lets a call through or not: one load and one comparison once it is known whose process this is.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use softmig_policy::node::identity::{self, Finding, ProcessRules, Reason};

use super::host::ThisNode;
use super::message::{Message, Why};
use super::{log, neighbours};
use crate::os::Errno;
use crate::os::cells::Once;

/// The gate's answer to every call.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
/// The process's job is not known yet, or a file could not be read. The next call tries again.
const UNKNOWN: u8 = 0;
/// All calls pass.
const OPEN: u8 = 1;
/// All calls pass, and what they take is charged.
const LIMITED: u8 = 2;
/// All calls are refused, or counted on a node that only observes.
const SHUT: u8 = 3;

/// How many calls were refused.
static REFUSED: AtomicU32 = AtomicU32::new(0);
/// Whether a reason was, of which a user is told.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Whether the call of this function is refused.
#[inline]
pub(crate) fn refuses(function: &CStr) -> bool {
    // Relaxed: code that needs more than this reads `FINDING`, which has its own order.
    !matches!(STATE.load(Ordering::Relaxed), OPEN | LIMITED) && ask(function)
}

/// Whether memory that this process takes is charged. Known once a call has passed.
#[inline]
pub(crate) fn is_limited_process() -> bool {
    // Relaxed: see above.
    STATE.load(Ordering::Relaxed) == LIMITED
}

#[cold]
fn ask(function: &CStr) -> bool {
    let _errno = Errno::save();
    with_finding(|finding| match finding.standing {
        ProcessRules::Denied(reason) => {
            count(finding, function, Why::Denied(reason));
            !finding.observe
        }
        _ => false,
    })
}

/// The same, whatever other threads have found out so far.
pub(crate) fn is_limited_for_good() -> bool {
    let _errno = Errno::save();
    with_finding(is_limited)
}

/// Whether this process's job is in a pack.
pub(crate) fn is_packed() -> bool {
    with_finding(|finding| match &finding.standing {
        ProcessRules::Job(conf) => conf.pack.is_some(),
        _ => false,
    })
}

/// Whether limits hold for a process.
fn is_limited(finding: &Finding) -> bool {
    match finding.standing {
        ProcessRules::Passive => false,
        ProcessRules::Neighbours => neighbours::may_have_neighbour(),
        ProcessRules::Job(_) | ProcessRules::Own(_) | ProcessRules::Denied(_) => true,
    }
}

/// True if the process is refused a function whose memory or time cannot be counted. Logs the refusal; where the node
/// only observes, logs that the function would be refused.
pub(crate) fn refuses_uncounted(function: &CStr, why: Why<'_>) -> bool {
    let _errno = Errno::save();
    with_finding(|finding| {
        if !is_limited(finding) {
            return false;
        }
        count(finding, function, why);
        !finding.observe
    })
}

/// Counts what is refused, or would be, and says so the 1st, 10th, 100th, ... time.
pub(crate) fn count(finding: &Finding, function: &CStr, why: Why<'_>) {
    // Relaxed: a count and nothing else.
    let count = REFUSED.fetch_add(1, Ordering::Relaxed).saturating_add(1);
    let message = Message::Refused {
        function,
        why,
        count,
    };
    // Who gets no GPU has no use for one copy of the driver or another.
    let is_told = matches!(finding.standing, ProcessRules::Job(_)) && !finding.observe;
    match why.told_by().filter(|_| is_told) {
        Some(words) if !TOLD.swap(true, Ordering::Relaxed) => {
            log::tell_user_once(finding, &message, words);
        }
        _ if log::is_round(count) => log::say(finding, &message),
        _ => {}
    }
}

/// This process's job and limits, once they were found out.
static FINDING: Once<Finding> = Once::new();

/// Calls `use_it` with what holds for this process.
///
/// Threads that come here first at the same time each find out by themselves, and so does the child of a process that
/// forked meanwhile. No thread ever waits for another.
pub(crate) fn with_finding<T>(use_it: impl FnOnce(&Finding) -> T) -> T {
    if let Some(finding) = FINDING.get() {
        set_state(finding);
        return use_it(finding);
    }
    let finding = identity::find(&ThisNode);
    // Trouble such as too many open files may pass.
    let is_final = !matches!(
        finding.standing,
        ProcessRules::Denied(Reason::Unreadable(_))
    );
    if is_final {
        let is_first = FINDING.keep(finding);
        // Also if another thread kept its finding first: this call goes by its own.
        set_state(&finding);
        if is_first {
            log::say_standing(&finding);
        }
    }
    use_it(&finding)
}

/// Makes the next calls short. Done again whenever a finding is asked for: a fork may come between.
fn set_state(finding: &Finding) {
    let state = match finding.standing {
        ProcessRules::Denied(_) => SHUT,
        _ if is_limited(finding) => LIMITED,
        _ => OPEN,
    };
    // Relaxed: see `refuses`.
    STATE.store(state, Ordering::Relaxed);
}

/// Whether the process is to have the limits of the jobs on its GPUs.
pub(crate) fn is_neighbour() -> bool {
    let _errno = Errno::save();
    with_finding(|finding| finding.standing == ProcessRules::Neighbours)
}
