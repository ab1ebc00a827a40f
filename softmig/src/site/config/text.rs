//! A text that is made, line by line, with a comment above each group.

use std::fmt::Display;

/// One file that is made.
#[derive(Clone, Debug)]
pub(super) struct Generated {
    /// Its name, without a folder.
    pub(super) name: &'static str,
    /// Its text.
    pub(super) text: String,
    /// Whether it is run.
    pub(super) program: bool,
}

/// A text in the making.
#[derive(Debug, Default)]
pub(super) struct Text(String);

impl Text {
    /// Lines that say why, after a blank line.
    pub(super) fn why(&mut self, comment: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.note(comment);
    }

    /// More such lines.
    pub(super) fn note(&mut self, comment: &str) {
        for line in comment.lines() {
            self.line(format!("# {line}").trim_end());
        }
    }

    /// A line as it is.
    pub(super) fn line(&mut self, line: impl Display) {
        self.0 += &line.to_string();
        self.0.push('\n');
    }

    /// A file of what there is.
    pub(super) fn file(self, name: &'static str) -> Generated {
        Generated {
            name,
            program: self.0.starts_with("#!"),
            text: self.0,
        }
    }
}
