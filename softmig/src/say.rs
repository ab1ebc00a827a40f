//! What a command says to people.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write as _, stdout};

/// A line for standard output, as `println!`, and no panic where nobody listens any more.
macro_rules! say {
    ($($words:tt)*) => {
        $crate::say::line(format_args!($($words)*))
    };
}
pub(crate) use say;

/// Who reads as much as he wants, as `head` does, is told no more, and what is being done goes on.
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
