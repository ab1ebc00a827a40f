//! The output of commands for people.

use std::fmt::{Arguments, Display};
use std::io::{ErrorKind, Write as _, stderr, stdout};

/// A line for standard output, as `println!`, without a panic where standard output is closed.
macro_rules! say {
    ($($words:tt)*) => {
        $crate::output::say::line(format_args!($($words)*))
    };
}
pub(crate) use say;

/// A reader such as `head` may stop reading; the work goes on.
pub(crate) fn line(words: Arguments<'_>) {
    let _ = text(format_args!("{words}\n"));
}

/// The same without the end of a line. Returns whether there is still a reader.
pub(crate) fn text(words: Arguments<'_>) -> bool {
    let mut out = stdout().lock();
    match out.write_fmt(words).and_then(|()| out.flush()) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => false,
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

/// A text that people and programs chose, as a terminal can take it: `?` for each character that is not ASCII, or that moves
/// something on a screen.
pub(crate) fn plain(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_graphic() || letter == ' ';
    let letters = text.chars();
    letters
        .map(|letter| if is_plain(letter) { letter } else { '?' })
        .collect()
}

/// "1 shard", "2 shards".
pub(crate) fn counted<N: Display + PartialEq + From<u8>>(count: N, what: &str) -> String {
    let end = if count == N::from(1) { "" } else { "s" };
    format!("{count} {what}{end}")
}

/// "a", "a and 1 other", "a and 2 others".
pub(crate) fn and_others(named: &str, others: usize) -> String {
    match others {
        0 => named.to_string(),
        others => format!("{named} and {}", counted(others, "other")),
    }
}

/// A text in lines of at most `width` letters, where its words allow that; all but the first are indented.
pub(crate) fn wrapped(text: &str, width: usize, indent: usize) -> Vec<String> {
    let blanks = text.len() - text.trim_start().len();
    let mut lines = vec![" ".repeat(blanks)];
    for word in text.split_ascii_whitespace() {
        let Some(line) = lines.last_mut() else { break };
        let is_empty = line.trim().is_empty();
        if !is_empty && line.len() + 1 + word.len() > width {
            lines.push(format!("{:indent$}{word}", ""));
        } else {
            if !is_empty {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_and_one_other_have_no_plural() {
        assert_eq!(counted(1, "shard"), "1 shard");
        let listed = [0, 1, 2].map(|others| and_others("a", others));
        assert_eq!(listed, ["a", "a and 1 other", "a and 2 others"]);
    }

    #[test]
    fn a_plain_text_moves_nothing_on_a_screen() {
        assert_eq!(plain("a b~\t\u{1b}[2J\u{9b}\u{e9}"), "a b~??[2J??");
    }

    #[test]
    fn a_text_is_cut_between_words_alone() {
        assert_eq!(wrapped("  aa bb cc", 7, 4), ["  aa bb", "    cc"]);
        assert_eq!(wrapped("aaaaaaaaaa b", 5, 0), ["aaaaaaaaaa", "b"]);
    }
}
