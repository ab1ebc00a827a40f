//! How a command ends: one that failed, and one that ran another program in its own place.

use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit};
use std::fmt::{Display, Formatter};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

/// The status of shells for a program that is there and cannot be run.
pub(crate) const NOT_RUN: u8 = 126;
/// The status of shells for a program that is not there.
pub(crate) const NOT_FOUND: u8 = 127;

/// An error that ends the command with a status of its own. All others end it with 1.
#[derive(Debug)]
struct Failure {
    status: u8,
    words: String,
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.words)
    }
}

/// The error of these words, which ends the command with this status.
pub(crate) fn failure(status: u8, words: impl Display) -> anyhow::Error {
    let words = format!("{words:#}");
    anyhow::Error::msg(Failure { status, words })
}

/// The status that this error ends the command with.
pub(crate) fn for_error(error: &anyhow::Error) -> ExitCode {
    let failure = error.downcast_ref::<Failure>();
    failure.map_or(ExitCode::FAILURE, |failure| ExitCode::from(failure.status))
}

/// Ends as the program did: with its status, or by the same signal.
pub(crate) fn end_like(status: ExitStatus) -> ExitCode {
    let Some(signal) = status.signal() else {
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        return code.map_or(ExitCode::FAILURE, ExitCode::from);
    };
    // The other program has left the core file, if there is one.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    // One that cannot be handled.
    if let Some(signal) = Signal::from_named_raw(signal) {
        let _ = kill_process(getpid(), signal);
    }
    // As shells have it.
    u8::try_from(128 + signal).map_or(ExitCode::FAILURE, ExitCode::from)
}
