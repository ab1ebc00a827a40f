//! The job's log when memory runs out.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::identity::gate;
use crate::identity::log::{self, Level};
use crate::os::Error;
use crate::os::fixed_str::Text;
use softmig_policy::node::identity::Standing;

/// How many requests of this process were refused.
static REFUSED: AtomicU32 = AtomicU32::new(0);

/// A request for which there was no room.
pub(super) struct Refused {
    /// The request.
    pub(super) units: u32,
    /// The GPU's number in CUDA's order.
    pub(super) gpu: u8,
    /// Held by the job.
    pub(super) held: u64,
    /// Held by this process.
    pub(super) held_here: u32,
    /// The job's limit.
    pub(super) limit: u32,
    /// Whether it is the job's first.
    pub(super) is_first: bool,
}

/// Says what was asked for, held and allowed: once for a job, then also to its user, and at the level of warnings also
/// for the 1st, 10th, 100th, ... of each process. True where the node only observes, so that nothing is refused.
#[inline(never)]
pub(super) fn say(refused: &Refused, function: &CStr) -> bool {
    // Relaxed: a count and nothing else.
    let count = REFUSED.fetch_add(1, Ordering::Relaxed).saturating_add(1);
    let is_first = refused.is_first;
    let level = if is_first {
        Level::Error
    } else {
        Level::Warning
    };
    gate::with_finding(|finding| {
        if is_first || log::is_round(count) {
            let mut line = Text::<256>::new();
            line.push(if finding.observe {
                b"would be out of memory on GPU "
            } else {
                b"out of memory on GPU "
            });
            line.push_number(refused.gpu.into(), 1);
            line.push(b": ");
            line.push(function.to_bytes());
            line.push(b" asked for ");
            push_mib(&mut line, refused.units.into());
            line.push(b", the job holds ");
            push_mib(&mut line, refused.held);
            line.push(b" (this process ");
            push_mib(&mut line, refused.held_here.into());
            line.push(b") and may hold ");
            push_mib(&mut line, refused.limit.into());
            match &finding.standing {
                Standing::Job(conf) if is_first && finding.in_job && !finding.observe => {
                    if let Some(larger) = &conf.larger {
                        line.push(b"; for more, ask for gpu:");
                        line.push(larger.as_str().as_bytes());
                        line.push(b":1");
                    }
                    log::tell_user(finding, &[line.as_bytes()]);
                }
                _ => log::say(finding, level, &[line.as_bytes()]),
            }
        }
        finding.observe
    })
}

/// Says that the account cannot be had, the 1st, 10th, 100th, ... time.
#[cold]
pub(crate) fn say_no_account(error: Error) {
    // Relaxed: a count and nothing else.
    let count = REFUSED.fetch_add(1, Ordering::Relaxed).saturating_add(1);
    if !log::is_round(count) {
        return;
    }
    gate::with_finding(|finding| {
        let mut line = Text::<256>::new();
        line.push(b"neither GPU memory nor launches for this process: the ledger of its job cannot be used, error ");
        line.push_number(u64::from(error.0.unsigned_abs()), 1);
        line.push(match error {
            Error::MISSING => b" (there is none: did softmig's prolog run?)".as_slice(),
            Error(libc::EACCES | libc::EPERM) => {
                b" (it is another user's: only the job's own user and root get memory)"
            }
            Error(libc::EUSERS) => b" (too many processes)",
            Error(libc::EOPNOTSUPP) => {
                b" (its file system keeps no locks: it has to be on a tmpfs)"
            }
            _ => b"",
        });
        log::say(finding, Level::Error, &[line.as_bytes()]);
    });
}

/// Units as MiB, with one decimal where it is not a whole number.
fn push_mib(line: &mut Text<256>, units: u64) {
    const IN_A_MIB: u64 = (1 << 20) / softmig_region::UNIT;
    line.push_number(units / IN_A_MIB, 1);
    let tenths = (units % IN_A_MIB).saturating_mul(10) / IN_A_MIB;
    if tenths > 0 {
        line.push(b".");
        line.push_number(tenths, 1);
    }
    line.push(b" MiB");
}
