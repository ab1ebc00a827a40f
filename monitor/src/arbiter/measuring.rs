//! A process of this program's own that measures something. Whatever the driver does to it, nothing waits for it here.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::Timespec;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::settings::OWN_PROGRAM;

/// How long its end is waited for.
const ENDING: Duration = Duration::from_secs(5);

/// Why nothing is known of a GPU.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// A process of a job has come.
    Stopped,
    /// It could not be measured.
    Trouble(String),
}

/// This program, which measures and is not the unit's.
pub(super) fn own() -> Command {
    let mut command = Command::new(OWN_PROGRAM);
    command.env_remove("NOTIFY_SOCKET");
    command
}

/// The outcome that a program prints, if it does so in this time and before `is_over`.
pub(super) fn run<T: DeserializeOwned>(
    mut command: Command,
    limit: Duration,
    is_over: &AtomicBool,
) -> Result<T, Unknown> {
    /// How often it is seen whether a process has come.
    const STEP: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    let trouble = |why: &dyn std::fmt::Display| Unknown::Trouble(why.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| trouble(&error))?;
    let number = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let process = number.ok_or(rustix::io::Errno::SRCH);
    let process = process.and_then(|number| pidfd_open(number, PidfdFlags::empty()));
    let process = match process {
        Ok(process) => process,
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            return Err(trouble(&format!(
                "this kernel has no files of processes: {error}"
            )));
        }
    };
    let begun = Instant::now();
    let has_ended = |process: &dyn AsFd| {
        let mut files = [PollFd::new(&process, PollFlags::IN)];
        poll(&mut files, Some(&STEP)).is_ok_and(|count| count > 0)
    };
    let mut killed = None;
    while !has_ended(&process) {
        let now = Instant::now();
        match killed {
            None if is_over.load(SeqCst) || now - begun > limit => {
                // The programs that keep the GPU busy end with it.
                let _ = pidfd_send_signal(&process, Signal::KILL);
                killed = Some(now);
            }
            // It waits within the driver. Nothing waits for it here.
            Some(at) if now - at > ENDING => break,
            _ => {}
        }
    }
    if killed.is_some() {
        // One that has not ended by now is left to whoever ends this daemon.
        let _ = child.try_wait();
        return Err(match is_over.load(SeqCst) {
            true => Unknown::Stopped,
            false => trouble(&format!("it took longer than {} s", limit.as_secs())),
        });
    }
    told(&mut child).map_err(|why| trouble(&why))
}

/// What a program has printed that has ended.
fn told<T: DeserializeOwned>(child: &mut Child) -> Result<T, String> {
    let status = child.wait().map_err(|error| error.to_string())?;
    let mut text = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut text)
            .map_err(|error| error.to_string())?;
    }
    let told: Result<T, String> = serde_json::from_str(&text)
        .map_err(|error| format!("the process that measures it ended with {status}: {error}"))?;
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_proof::Outcome;

    fn shell(script: &str, limit: Duration, is_over: &AtomicBool) -> Result<Outcome, Unknown> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        run(command, limit, is_over)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_the_process_says_is_taken() {
        let goes_on = AtomicBool::new(false);
        let outcome = Outcome {
            slice_us: Some(1024),
            ..Outcome::default()
        };
        let said: Result<Outcome, String> = Ok(outcome.clone());
        let script = format!("echo '{}'", serde_json::to_string(&said).unwrap());
        assert_eq!(shell(&script, LONG, &goes_on), Ok(outcome));
        let no_gpu = shell(r#"echo '{"Err":"cuInit answers 100"}'"#, LONG, &goes_on);
        assert_eq!(no_gpu, Err(Unknown::Trouble("cuInit answers 100".into())));
        let Err(Unknown::Trouble(why)) = shell("exit 3", LONG, &goes_on) else {
            panic!()
        };
        assert!(why.contains("exit status: 3"), "{why}");
    }

    #[test]
    fn it_is_ended_when_a_job_comes_or_it_takes_too_long() {
        let begun = Instant::now();
        let comes = AtomicBool::new(true);
        assert_eq!(shell("sleep 60", LONG, &comes), Err(Unknown::Stopped));
        let never = AtomicBool::new(false);
        let Err(Unknown::Trouble(why)) = shell("sleep 60", Duration::ZERO, &never) else {
            panic!()
        };
        assert_eq!(why, "it took longer than 0 s");
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
