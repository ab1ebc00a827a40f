//! `--watch`: the same text again and again.
//!
//! On a terminal each replaces the one before, cut to the screen. Elsewhere, as in a file or for a program that reads the
//! screen aloud on a dumb terminal, they follow each other.

use crate::say;
use rustix::termios::{isatty, tcgetwinsize};
use std::io::stdout;
use std::time::Duration;

/// To the upper left, and nothing behind.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Shows it until the process is ended, or its reader is gone. Slurm may be away for a while; then the error is shown in the text's place.
pub(super) fn run(
    pause: Duration,
    look: impl Fn() -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<()> {
    let mut is_first = true;
    loop {
        let lines = match look() {
            Err(error) if is_first => return Err(error),
            Err(error) => vec![format!("softmig status: {error:#}")],
            Ok(lines) => lines,
        };
        is_first = false;
        let is_read = match screen() {
            Some((columns, rows)) => {
                let lines = fit(&lines, columns, rows);
                say::text(format_args!("{CLEAR}{}", lines.join("\n")))
            }
            None => say::text(format_args!("{}\n\n", lines.join("\n"))),
        };
        if !is_read {
            return Ok(());
        }
        std::thread::sleep(pause);
    }
}

/// The columns and rows of a terminal that can be written over.
fn screen() -> Option<(usize, usize)> {
    let out = stdout();
    let is_dumb = std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb");
    if is_dumb || !isatty(&out) {
        return None;
    }
    let size = tcgetwinsize(&out).ok()?;
    let (columns, rows) = (usize::from(size.ws_col), usize::from(size.ws_row));
    // Some terminals do not know how large they are.
    Some((
        if columns == 0 { 80 } else { columns },
        if rows == 0 { 24 } else { rows },
    ))
}

/// The part that fits on a screen; the last row says how much did not.
fn fit(lines: &[String], columns: usize, rows: usize) -> Vec<String> {
    let cut = |line: &String| line.chars().take(columns).collect::<String>();
    if lines.len() <= rows {
        return lines.iter().map(cut).collect();
    }
    let kept = rows.saturating_sub(1);
    let mut all: Vec<String> = lines.iter().take(kept).map(cut).collect();
    let more = format!("{} more lines; --node=NAME shows less", lines.len() - kept);
    all.push(cut(&more));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_is_never_overfull() {
        let lines: Vec<String> = (0..30)
            .map(|at| format!("line {at} {}", "x".repeat(90)))
            .collect();
        let shown = fit(&lines, 80, 24);
        assert_eq!(shown.len(), 24);
        assert!(shown.iter().all(|line| line.len() <= 80));
        assert_eq!(shown[23], "7 more lines; --node=NAME shows less");
        assert_eq!(fit(&lines[..24], 80, 24).len(), 24);
        assert_eq!(fit(&lines, 80, 0).len(), 1);
    }
}
