//! Asks the monitor to admit this process to its job's GPUs, where the job has the device gate.
//!
//! The kernel lets no process of such a job open a GPU before. It knows a process once that has opened the driver's control
//! device, and the monitor sees that the library is in it.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};

use softmig_policy::node::identity::{Finding, ProcessRules};
use softmig_region::seat::{ADMISSION, ANSWER};

use super::message::Message;
use super::{gate, log, monitor};
use crate::os::of_process::OfProcess;
use crate::os::{self, Errno, Error, File};

/// The driver's control device, which gives neither memory nor time.
const CONTROL: &CStr = c"/dev/nvidiactl";
/// The time for which a monitor that does not answer is asked again: as long as a restart of it takes.
const PATIENCE_MS: u64 = 2000;

/// Whether this process has asked.
static ASKED: OfProcess<AtomicBool> = OfProcess::new();

/// Asks, unless this process has or needs not to.
pub(crate) fn ask_once() {
    let _errno = Errno::save();
    gate::with_finding(|finding| match &finding.standing {
        ProcessRules::Job(conf) if conf.gate => {
            let asked = ASKED.of(os::process_id());
            // Relaxed: a second thread may ask again, which does no harm.
            if asked.is_none_or(|asked| !asked.load(Ordering::Relaxed)) {
                ask(finding);
            }
            if let Some(asked) = asked {
                asked.store(true, Ordering::Relaxed);
            }
        }
        _ => {}
    });
}

fn ask(finding: &Finding) {
    let ask = || {
        // Trying to open it is enough. Without this device, the machine has no driver.
        if File::open(CONTROL, libc::O_RDWR).err() == Some(Error::MISSING) {
            return Ok(None);
        }
        monitor::ask(&ADMISSION, &mut [0; ANSWER])
    };
    let patience = |error| match error {
        Error(libc::EACCES) => 0,
        _ => PATIENCE_MS,
    };
    if let Err(error) = monitor::insist(ask, patience) {
        log::say(finding, &Message::NotAdmitted(error));
    }
}
