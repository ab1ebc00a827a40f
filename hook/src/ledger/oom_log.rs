//! The job's log when memory runs out.

use core::sync::atomic::{AtomicU32, Ordering};

use softmig_policy::node::identity::ProcessRules;

use crate::identity::message::{MISSING, Message, Missing, Request};
use crate::identity::{gate, log};
use crate::os::Error;

/// How many requests of this process were refused.
static REFUSED: AtomicU32 = AtomicU32::new(0);

/// Says what was asked for, held and allowed: once for a job, then also to its user, and at the level of warnings also
/// for the 1st, 10th, 100th, ... of each process. True where the node only observes, so that nothing is refused.
#[inline(never)]
pub(super) fn say(request: &Request<'_>) -> bool {
    let is_round = count(&REFUSED);
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

/// Says that the GPU has not what the job may have, the 1st, 10th, 100th, ... time: the first in a job also to its user. Of limits
/// that a user set, or on a node that only observes, it may be the job's own doing.
pub(super) fn say_missing(missing: &Missing<'_>) {
    static MISSED: AtomicU32 = AtomicU32::new(0);
    if count(&MISSED) {
        gate::with_finding(|finding| {
            if matches!(finding.standing, ProcessRules::Job(_)) && !finding.observe {
                log::tell_user_once(finding, &Message::Missing(missing), MISSING);
            }
        });
    }
}

/// Says that the account cannot be had, the 1st, 10th, 100th, ... time.
#[cold]
pub(crate) fn say_no_account(error: Error) {
    if count(&REFUSED) {
        gate::with_finding(|finding| log::say(finding, &Message::NoAccount(error)));
    }
}

/// Counts one more, and tells whether it is to be said.
fn count(so_far: &AtomicU32) -> bool {
    // Relaxed: a count and nothing else.
    log::is_round(so_far.fetch_add(1, Ordering::Relaxed).saturating_add(1))
}
