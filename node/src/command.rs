//! Runs a command for no longer than its caller can wait.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How a command ended, and what it wrote to standard output, of which no more than `longest` bytes are read. `None`:
/// it took longer than `patience`, and `stop` was to end it.
///
/// Its other streams are the caller's.
pub fn output(
    mut command: Command,
    patience: Duration,
    longest: u64,
    stop: fn(&mut Child),
) -> io::Result<Option<(ExitStatus, String)>> {
    let deadline = Instant::now() + patience;
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let answer = read_until(&mut child, deadline, longest);
    let ended = answer.and_then(|answer| Some((wait_until(&mut child, deadline).ok()??, answer)));
    if ended.is_none() {
        stop(&mut child);
        child.wait()?;
    }
    Ok(ended)
}

/// Waits for the command's end; `None` when it still runs at the deadline.
pub fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= deadline {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A thread reads, so that this one can stop waiting.
fn read_until(child: &mut Child, deadline: Instant, longest: u64) -> Option<String> {
    let stdout = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        let _ = stdout.take(longest).read_to_end(&mut bytes);
        // This fails when it was too late.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    thread.ok()?;
    let left = deadline.saturating_duration_since(Instant::now());
    receiver.recv_timeout(left).ok()
}
