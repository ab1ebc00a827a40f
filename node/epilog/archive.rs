//! Keeps what a job's hook logged, for the administrator.
//!
//! The file was the job's own: its user may have written anything into it, and as much as they liked. At most
//! [`LONGEST`] bytes are kept of a job, without control characters that could act on a reader's terminal.

use crate::room::keep_within;
use softmig_node::dir::{Dir, DirError};
use softmig_node::job::Job;
use softmig_node::node::{Node, Run};

/// The most that is kept of one job's log.
const LONGEST: u64 = 64 << 10;

/// Copies the job's log, if there is something in it, to `/var/log/softmig/JOBID.log`, in place of what an earlier
/// run left there. Tells whether there was something.
pub fn archive(node: &Node, run: &Run, job: &Job) -> Result<bool, DirError> {
    let Some(jobs) = run.dir.child("jobs")? else {
        return Ok(false);
    };
    let Some(ledger) = jobs.child(&job.id.to_string())? else {
        return Ok(false);
    };
    let bytes = ledger.read("log", LONGEST)?.unwrap_or_default();
    if bytes.is_empty() {
        return Ok(false);
    }
    let logs = Dir::make(&node.log, node.owner)?;
    let (name, new) = (format!("{}.log", job.id), format!(".{}.log.new", job.id));
    logs.remove(&new)?;
    logs.create(&new, 0o640, readable(&bytes).as_bytes())?;
    logs.rename(&new, &name)?;
    keep_within(&logs, job, &name)?;
    Ok(true)
}

/// The bytes as text, with `?` for each that a terminal might act on.
fn readable(bytes: &[u8]) -> String {
    let safe = |letter: char| match letter {
        '\n' | '\t' => letter,
        letter if letter.is_control() || letter == char::REPLACEMENT_CHARACTER => '?',
        letter => letter,
    };
    String::from_utf8_lossy(bytes).chars().map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_acts_on_a_terminal_is_kept() {
        let log = b"a\tb\n\x1b]0;title\x07\xff\x9b\xc2\x9b31m\0\xc3\xa9\r\n";
        assert_eq!(readable(log), "a\tb\n?]0;title????31m?\u{e9}?\n");
    }

    #[test]
    fn what_is_kept_is_never_longer_than_what_was_written() {
        let log = vec![0xff; 1000];
        assert_eq!(readable(&log).len(), 1000);
    }
}
