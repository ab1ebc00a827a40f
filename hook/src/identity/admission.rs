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
use crate::os::cells::{Fresh, Kept, zeroed};
use crate::os::{self, Errno, Error, File};

/// The driver's control device, which gives neither memory nor time.
const CONTROL: &CStr = c"/dev/nvidiactl";
/// The time for which a monitor that does not answer is asked again: as long as a restart of it takes.
const PATIENCE_MS: u64 = 2000;
/// The time between two tries.
const PAUSE_NS: u64 = 50_000_000;

/// The process that has asked; none in the child of a fork. Its number alone does not tell: as first process of a PID namespace
/// a child may have its parent's, and a child that shares its parent's memory has another.
struct Asked {
    by: AtomicU32,
}

zeroed! { Asked { by } }

/// In memory of its own, which the kernel wipes in the child of a fork.
static ASKED: Kept<Asked> = Kept::new();

impl Asked {
    // Relaxed: a second thread may ask again, which does no harm.
    fn is_by(process: u32) -> bool {
        let asked = ASKED.get();
        asked.is_some_and(|asked| asked.by.load(Ordering::Relaxed) == process)
    }

    fn note(process: u32) {
        let new = || {
            Fresh::zeroed()
                .ok()
                .and_then(|(new, _)| ASKED.exchange(None, new))
        };
        if let Some(asked) = ASKED.get().or_else(new) {
            asked.by.store(process, Ordering::Relaxed);
        }
    }
}

/// Asks, unless this process has or needs not to.
pub(crate) fn ask_once() {
    let _errno = Errno::save();
    let this = os::process_id();
    if Asked::is_by(this) {
        return;
    }
    gate::with_finding(|finding| match &finding.standing {
        ProcessRules::Job(conf) if conf.gate => {
            ask(finding);
            Asked::note(this);
        }
        _ => {}
    });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_child_of_a_fork_asks_whatever_its_number() {
        const NUMBER: u32 = 1;
        assert!(!Asked::is_by(NUMBER));
        Asked::note(NUMBER);
        assert!(Asked::is_by(NUMBER) && !Asked::is_by(NUMBER + 1));
        #[expect(unsafe_code, reason = "a child of a fork")]
        // SAFETY: the child calls no more than may be called in one of several threads.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let status = i32::from(Asked::is_by(NUMBER));
            #[expect(unsafe_code, reason = "a child of a fork")]
            // SAFETY: ends the child.
            unsafe {
                libc::_exit(status)
            };
        }
        let mut status = -1;
        #[expect(unsafe_code, reason = "a child of a fork")]
        // SAFETY: writes to a place of this function's.
        unsafe {
            libc::waitpid(child, &raw mut status, 0)
        };
        assert_eq!(status, 0);
    }
}
