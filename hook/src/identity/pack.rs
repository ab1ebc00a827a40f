//! Makes this process one of its job's pack, where its job is in one: a client of the MPS server that the monitor keeps for
//! processes which have a GPU together.
//!
//! CUDA reads in `cuInit`, and there alone, in which folder such a server is. So the variable is in the environment for the time of
//! that call. A user who sets it, to whatever value, stays out.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use softmig_driver_sys::cuda::{
    CUDA_ERROR_ASSERT, CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_ADDRESS,
    CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_MPS_CLIENT_TERMINATED, CUDA_ERROR_MPS_CONNECTION_FAILED,
    CUDA_SUCCESS, CUresult,
};
use softmig_policy::node::fixed_str::{Text, text};
use softmig_policy::node::identity::ProcessRules;
use softmig_region::seat::{ANSWER, KEEP, PACK, PACK_ANSWER};

use super::message::{Message, Outside};
use super::{gate, log, monitor};
use crate::driver::cuda::CUDA;
use crate::os::cells::zeroed;
use crate::os::of_process::OfProcess;
use crate::os::{self, Errno, Error, Variable};

/// The folder of an MPS server, for its clients.
const VARIABLE: &CStr = c"CUDA_MPS_PIPE_DIRECTORY";

/// The time for which a monitor is asked that may be starting the server.
const PATIENCE_MS: u64 = 5000;
/// The same where those have the places that have ended: for 20 s at most, and until that is seen.
const PLACE_MS: u64 = 22_000;
/// The same for one that is not there: as long as a restart of it takes.
const RESTART_MS: u64 = 2000;
/// The time for which it is asked to see to this process's end. Where many others end meanwhile, the driver keeps the pack's supervisor,
/// and a user who kept it waiting is left alone for 10 s.
const KEEP_MS: u64 = 30_000;
/// The same where it says that this process has not what is to be kept.
const NO_FILES_MS: u64 = 2000;
/// The longest that a thread waits for another that initializes CUDA. With many GPUs or programs that takes seconds, beside all of the
/// above.
const LONGEST_MS: u64 = 120_000;

/// A server's folder.
type Folder = Text<PACK_ANSWER>;

/// How far this process has come.
struct Entry {
    /// The thread that initializes CUDA; 0 for none.
    thread: AtomicU64,
    place: AtomicU32,
}

zeroed! { Entry { thread, place } }

/// Nothing is known yet.
const UNKNOWN: u32 = 0;
/// The process has the GPU without others.
const OUT: u32 = 1;
/// It is in the pack. Its end would be that of the others.
const UNKEPT: u32 = 2;
/// It is in the pack, and its end is its own.
const KEPT: u32 = 3;
/// A fault on the GPU has ended its work.
const FAULTED: u32 = 4;

static ENTRY: OfProcess<Entry> = OfProcess::new();

/// A thread that initializes CUDA. The other threads of the process wait until this is dropped: none launches anything before
/// the monitor sees to the process's end.
pub(crate) struct Pack {
    /// `None` where there is no pack, or where another thread stays too long.
    entry: Option<&'static Entry>,
    /// The server whose client the process is to be.
    folder: Option<Folder>,
}

/// Asks which server's client this process is to be, unless it has or needs not to.
pub(crate) fn enter() -> Pack {
    let _errno = Errno::save();
    let has_pack = gate::with_finding(|finding| match &finding.standing {
        ProcessRules::Job(conf) => conf.pack.is_some() && !finding.observe,
        _ => false,
    });
    let entry = has_pack.then(os::process_id).and_then(|id| ENTRY.of(id));
    let entry = entry.filter(|entry| entry.take());
    let is_new = || !CUDA.is_initialized() && CUDA.resolve();
    let folder = entry.filter(|_| is_new()).and_then(|entry| {
        let patience = |error| patience(error, monitor::listens);
        entry.ask(|| monitor::insist(ask, patience))
    });
    Pack { entry, folder }
}

impl Pack {
    /// Calls the driver's function, as a client if there is a server.
    pub(crate) fn initialize(&self, call: impl Fn() -> CUresult) -> CUresult {
        let (Some(entry), Some(folder)) = (self.entry, &self.folder) else {
            return call();
        };
        match initialize_in(folder.as_bytes(), &call) {
            Ok(result) => {
                if result == CUDA_SUCCESS {
                    entry.come_to(UNKEPT);
                }
                result
            }
            Err(why) => {
                entry.stay_out(why);
                call()
            }
        }
    }

    /// Asks the monitor to see to the end of a process that is in the pack. If it does not, that process gets no GPU.
    pub(crate) fn keep(&self, result: CUresult) -> CUresult {
        let ask = || monitor::ask(&KEEP, &mut [0; ANSWER]).map(drop);
        let patience = |error| match error {
            Error(libc::ENODEV) => NO_FILES_MS,
            _ => KEEP_MS,
        };
        self.keep_by(result, || monitor::insist(ask, patience))
    }

    fn keep_by(&self, result: CUresult, ask: impl FnOnce() -> Result<(), Error>) -> CUresult {
        let entry = self.entry.filter(|entry| entry.is_at(UNKEPT));
        let Some(entry) = entry.filter(|_| result == CUDA_SUCCESS) else {
            return result;
        };
        let _errno = Errno::save();
        match ask() {
            Ok(()) => {
                entry.come_to(KEPT);
                result
            }
            // It asks again if the program tries again.
            Err(error) => {
                gate::with_finding(|finding| log::say(finding, &Message::NotKept(error)));
                CUDA_ERROR_MPS_CONNECTION_FAILED
            }
        }
    }
}

/// Whether the monitor sees to this process's end.
pub(crate) fn is_kept() -> bool {
    let entry = ENTRY.of(os::process_id());
    entry.is_some_and(|entry| entry.is_at(KEPT))
}

/// CUDA has answered this process with an error. If a fault on the GPU has ended the work of its pack, the user is told.
#[cold]
pub(crate) fn note_error(error: CUresult) {
    if !matches!(
        error,
        CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR..=CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_MPS_CONNECTION_FAILED..=CUDA_ERROR_MPS_CLIENT_TERMINATED
    ) {
        return;
    }
    let _errno = Errno::save();
    let entry = ENTRY.of(os::process_id());
    if entry.is_some_and(Entry::is_first_fault) {
        gate::with_finding(|finding| log::tell_user(finding, &Message::PackFault(error)));
    }
}

impl Drop for Pack {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            // Release: the next thread sees how far the process has come.
            entry.thread.store(0, Ordering::Release);
        }
    }
}

impl Entry {
    /// Waits until no other thread initializes CUDA. False if one does too long, or if this one does: the driver loads libraries
    /// meanwhile, which may call it.
    fn take(&self) -> bool {
        let this = os::thread_id();
        let start = os::milliseconds();
        loop {
            // Acquire: see `drop`.
            let taken = self
                .thread
                .compare_exchange(0, this, Ordering::Acquire, Ordering::Relaxed);
            let is_late = || os::milliseconds().saturating_sub(start) >= LONGEST_MS;
            match taken {
                Ok(_) => return true,
                Err(thread) if thread == this || is_late() => return false,
                Err(_) => os::pause(),
            }
        }
    }

    /// Relaxed, as `come_to`: only the thread that has taken it looks.
    fn is_at(&self, place: u32) -> bool {
        self.place.load(Ordering::Relaxed) == place
    }

    /// Whether it was in the pack until now.
    fn is_first_fault(&self) -> bool {
        let ends = self
            .place
            .compare_exchange(KEPT, FAULTED, Ordering::Relaxed, Ordering::Relaxed);
        ends.is_ok()
    }

    fn come_to(&self, place: u32) {
        self.place.store(place, Ordering::Relaxed);
    }

    /// The answer of `ask`, unless this process is in or out already, or its user wants it to be out.
    fn ask(&self, ask: impl FnOnce() -> Result<Folder, Error>) -> Option<Folder> {
        if !self.is_at(UNKNOWN) || os::variable(VARIABLE).is_some() {
            return None;
        }
        let refused = |error| self.stay_out(Outside::Refused(error));
        ask().map_err(refused).ok()
    }

    fn stay_out(&self, why: Outside) {
        let _errno = Errno::save();
        self.come_to(OUT);
        gate::with_finding(|finding| log::say(finding, &Message::NotInPack(why)));
    }
}

/// Initializes CUDA as a client of a server.
fn initialize_in(folder: &[u8], call: impl FnOnce() -> CUresult) -> Result<CUresult, Outside> {
    let errno = Errno::save();
    let variable = Variable::add(VARIABLE.to_bytes(), folder).map_err(Outside::Refused)?;
    drop(errno);
    let result = call();
    drop(variable);
    match result {
        CUDA_ERROR_MPS_CONNECTION_FAILED..=CUDA_ERROR_MPS_CLIENT_TERMINATED => {
            Err(Outside::NotTaken(result))
        }
        _ => Ok(result),
    }
}

/// Asks the monitor for the server's folder.
fn ask() -> Result<Folder, Error> {
    let mut answer = [0; PACK_ANSWER];
    monitor::ask(&PACK, &mut answer)?;
    folder_in(&answer).ok_or(Error(libc::EBADMSG))
}

fn folder_in(answer: &[u8; PACK_ANSWER]) -> Option<Folder> {
    let (_, folder) = answer.split_first_chunk::<ANSWER>()?;
    let folder = CStr::from_bytes_until_nul(folder).ok()?.to_bytes();
    folder.starts_with(b"/").then(|| text(&[folder]))
}

/// For how long to ask again after an error, in milliseconds.
fn patience(error: Error, listens: impl Fn() -> bool) -> u64 {
    match error {
        // The first is an older monitor's.
        Error(libc::EINVAL | libc::EACCES | libc::ENOSYS | libc::EUSERS | libc::EBADMSG) => 0,
        Error(libc::EBUSY) => PLACE_MS,
        Error(libc::ENOENT | libc::ECONNREFUSED) if !listens() => RESTART_MS,
        // The monitor's own answer.
        Error::MISSING => 0,
        _ => PATIENCE_MS,
    }
}

#[cfg(test)]
#[path = "pack_tests.rs"]
mod tests;
