//! `--watch`: the same text again and again.
//!
//! On a terminal it is a [`screen`]. Elsewhere, as in a file or for a program that reads a dumb terminal aloud, the texts follow
//! each other.

mod screen;

use crate::output::say;
use rustix::termios::isatty;
use std::io::{stdin, stdout};
use std::time::Duration;

/// Shows it until the user or a signal ends it, or its reader is gone. Slurm may be away for a while; then the error is shown in
/// the text's place.
pub(super) fn run(
    pause: Duration,
    look: impl Fn() -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<()> {
    // An error at the start ends it.
    let first = look()?;
    let look = || look().unwrap_or_else(|error| vec![format!("softmig status: {error:#}")]);
    if has_screen() {
        return screen::run(pause, first, look);
    }
    let mut lines = first;
    while say::text(format_args!("{}\n\n", lines.join("\n"))) {
        std::thread::sleep(pause);
        lines = look();
    }
    Ok(())
}

/// Whether there is a terminal that can be written over, and that keys can be read from.
fn has_screen() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb");
    !is_dumb && isatty(stdout()) && isatty(stdin())
}
