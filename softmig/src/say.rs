//! What a command says to people.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write as _, stderr, stdout};

/// A line for standard output, as `println!`, without a panic where standard output is closed.
macro_rules! say {
    ($($words:tt)*) => {
        $crate::say::line(format_args!($($words)*))
    };
}
pub(crate) use say;

/// A reader such as `head` may stop reading; the work goes on.
pub(crate) fn line(words: Arguments<'_>) {
    text(format_args!("{words}\n"));
}

/// The same without the end of a line.
pub(crate) fn text(words: Arguments<'_>) {
    let mut out = stdout().lock();
    match out.write_fmt(words).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(error) => {
            eprintln!("softmig: standard output: {error}");
            std::process::exit(1);
        }
    }
}

/// A line for standard error, which may be closed.
pub(crate) fn error_line(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}
