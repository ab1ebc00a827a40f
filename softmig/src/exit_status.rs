//! How a command ends that ran another program in its own place.

use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

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
