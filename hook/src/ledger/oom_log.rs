//! The job's log when memory runs out.

use core::sync::atomic::{AtomicU32, Ordering};

use softmig_policy::node::identity::ProcessRules;

use crate::identity::message::{Message, Request};
use crate::identity::{gate, log};
use crate::os::Error;

/// How many requests of this process were refused.
static REFUSED: AtomicU32 = AtomicU32::new(0);

/// Says what was asked for, held and allowed: once for a job, then also to its user, and at the level of warnings also
/// for the 1st, 10th, 100th, ... of each process. True where the node only observes, so that nothing is refused.
#[inline(never)]
pub(super) fn say(request: &Request<'_>) -> bool {
    let is_round = count();
    gate::with_finding(|finding| {
        if request.is_first || is_round {
            match &finding.standing {
                ProcessRules::Job(conf)
                    if request.is_first && finding.in_job && !finding.observe =>
                {
                    let larger = conf.larger.as_ref();
                    log::tell_user(
                        finding,
                        &Message::OutOfMemory(&Request { larger, ..*request }),
                    );
                }
                _ => log::say(finding, &Message::OutOfMemory(request)),
            }
        }
        finding.observe
    })
}

/// Says that the account cannot be had, the 1st, 10th, 100th, ... time.
#[cold]
pub(crate) fn say_no_account(error: Error) {
    if count() {
        gate::with_finding(|finding| log::say(finding, &Message::NoAccount(error)));
    }
}

/// Counts one more, and tells whether it is to be said.
fn count() -> bool {
    // Relaxed: a count and nothing else.
    log::is_round(REFUSED.fetch_add(1, Ordering::Relaxed).saturating_add(1))
}
