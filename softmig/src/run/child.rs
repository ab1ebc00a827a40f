//! Runs the command as if softmig were not in between: signals reach it, and its end is softmig's.

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use std::io;
use std::process::{Child, Command, ExitStatus};

/// The signals that users send to a program on purpose.
const PASSED_ON: [i32; 7] = [SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// Runs it to its end; an error if it did not start.
pub(crate) fn run(command: &mut Command) -> io::Result<ExitStatus> {
    // Signals that the caller ignores stay ignored, here and in the command: `nohup softmig run` is to do what it says.
    let ignored = ignored();
    let wanted = PASSED_ON.iter().filter(|signal| !is_in(ignored, **signal));
    let signals = SignalsInfo::<WithOrigin>::new(wanted.chain([&SIGCHLD]))?;
    wait(command.spawn()?, signals)
}

fn wait(mut child: Child, mut signals: SignalsInfo<WithOrigin>) -> io::Result<ExitStatus> {
    for origin in signals.forever() {
        if origin.signal == SIGCHLD {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
        } else if origin.cause != Cause::Kernel
            && let Some(signal) = Signal::from_named_raw(origin.signal)
        {
            // Its number is its own until it is waited for, and that is done here.
            let _ = kill_process(Pid::from_child(&child), signal);
        }
        // The kernel's own come from the terminal, which sends them to the command as well.
    }
    child.wait()
}

/// The signals that this process ignores, a bit for each.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    field.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap_or(0))
}

fn is_in(mask: u64, signal: i32) -> bool {
    mask >> (signal - 1) & 1 == 1
}
