//! The library's lines about the processes of a run: told at its end.

use super::folder::Folder;
use crate::output::say::error_line;
use anyhow::Context;
use std::io::{BufRead, BufReader, Read};

/// The most lines that are told.
const MOST: usize = 20;

/// A longer line was not written by the library.
const LONGEST: u64 = 1 << 20;

/// From this level on the library says everything on standard error too.
const ON_STDERR: &[&str] = &["3", "4"];

/// Prints the log of the run.
pub(crate) fn tell(folder: &Folder) -> anyhow::Result<()> {
    let Some(log) = folder.open_log()? else {
        return Ok(());
    };
    if is_told_already() {
        return Ok(());
    }
    let mut more = 0_u64;
    let lines = BufReader::new(log.take(LONGEST)).split(b'\n');
    for (number, line) in lines.enumerate() {
        // An error comes again and again.
        let line = line.context("reading the log of the run")?;
        if number < MOST {
            error_line(&printable(&line));
        } else {
            more += 1;
        }
    }
    if more > 0 {
        error_line(&format!("softmig: {more} more"));
    }
    Ok(())
}

/// By the rule of the library.
fn is_told_already() -> bool {
    let level = ["SOFTMIG_LOG_LEVEL", "LIBCUDA_LOG_LEVEL"]
        .into_iter()
        .find_map(std::env::var_os);
    level.is_some_and(|level| ON_STDERR.iter().any(|it| level == *it))
}

/// The log is the run's own, and what its programs write there is not to steer the terminal.
fn printable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.chars()
        .map(|letter| if letter.is_control() { '?' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_does_not_steer_the_terminal() {
        assert_eq!(printable(b"a\x1b[31m \xff b"), "a?[31m \u{fffd} b");
    }
}
