//! Asks the monitor to admit this process to its job's GPUs, where the job has the device gate.
//!
//! The kernel lets no process of such a job open a GPU before. It knows a process once that has opened the driver's control
//! device, and the monitor sees that the library is in it.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};

use softmig_policy::node::identity::{Finding, ProcessRules};
use softmig_policy::node::paths::ARBITER_SOCKET;
use softmig_region::seat::{ADMISSION, ANSWER};

use super::message::Message;
use super::{gate, log};
use crate::os::{self, Errno, Error, File};

/// The driver's control device, which gives neither memory nor time.
const CONTROL: &CStr = c"/dev/nvidiactl";
/// The time for which a monitor that does not answer is asked again: as long as a restart of it takes.
const PATIENCE_MS: u64 = 2000;
/// The time between two tries.
const PAUSE_NS: u64 = 50_000_000;

/// The process that has asked. The child of a fork is another.
static ASKED_BY: AtomicU32 = AtomicU32::new(0);

/// Asks, unless this process has or needs not to.
pub(crate) fn ask_once() {
    let _errno = Errno::save();
    let this = os::process_id();
    // Relaxed: a second thread may ask again, which does no harm.
    if ASKED_BY.load(Ordering::Relaxed) == this {
        return;
    }
    gate::with_finding(|finding| match &finding.standing {
        ProcessRules::Job(conf) if conf.gate => ask(finding),
        _ => {}
    });
    ASKED_BY.store(this, Ordering::Relaxed);
}

fn ask(finding: &Finding) {
    let end = os::milliseconds().saturating_add(PATIENCE_MS);
    loop {
        // Trying to open it is enough. Without this device, the machine has no driver.
        if File::open(CONTROL, libc::O_RDWR).err() == Some(Error::MISSING) {
            return;
        }
        let answer = ask_the_monitor();
        let is_late = os::milliseconds() >= end;
        match answer {
            Ok(()) => return,
            Err(error) if error == Error(libc::EACCES) || is_late => {
                return log::say(finding, &Message::NotAdmitted(error));
            }
            Err(_) => os::nap(PAUSE_NS),
        }
    }
}

fn ask_the_monitor() -> Result<(), Error> {
    /// The number of root in a user namespace that does not map root.
    const NOBODY: u32 = 65534;
    let mut errno = [0; ANSWER];
    let answer = os::ask(ARBITER_SOCKET, &ADMISSION, &mut errno)?;
    if answer.uid != 0 && answer.uid != NOBODY {
        return Err(Error(libc::EPERM));
    }
    match i32::from_le_bytes(errno) {
        0 => Ok(()),
        error => Err(Error(error)),
    }
}
