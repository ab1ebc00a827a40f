//! Errors in policy.toml: the line, the fault, and the correction.

use crate::config::error::place::Place;
use crate::config::error::words::{in_words, unknown_key};
use std::fmt;
use std::ops::Range;

mod place;
#[cfg(test)]
mod tests;
pub(crate) mod words;

/// Why a policy.toml was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct PolicyError {
    /// The line, counted from 1.
    pub line: Option<usize>,
    /// The fault, and the correction.
    pub message: String,
}

impl PolicyError {
    /// A fault in a table such as `[[gate]]`, or in a key above all tables.
    pub(crate) fn of(
        place: impl fmt::Display,
        line: Option<usize>,
        message: impl fmt::Display,
    ) -> Self {
        Self {
            line,
            message: format!("{place}: {message}"),
        }
    }

    /// A fault of the file as a whole.
    pub(crate) fn of_file(message: impl Into<String>) -> Self {
        Self {
            line: None,
            message: message.into(),
        }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// An error of TOML or serde in words for an administrator, with its table and key.
pub(crate) fn reading_error(text: &str, error: &toml::de::Error) -> PolicyError {
    let place = error.span().map(|span| Place::of(text, span.start));
    let mut place = place.unwrap_or_default();
    let message = match error.message().strip_prefix("unknown field `") {
        // It is the key itself, or the table.
        Some(rest) => {
            let is_key = place.key.take().is_some();
            let header = (!is_key).then(|| place.table.take()).flatten();
            unknown_key(rest, header.as_deref())
        }
        None => in_words(error.message(), &place),
    };
    PolicyError {
        line: error.span().and_then(|span| line_of(text, &span)),
        message: match place.to_string().as_str() {
            "" => message,
            place => format!("{place}: {message}"),
        },
    }
}

/// The line of a place in policy.toml, counted from 1.
pub(crate) fn line_of(text: &str, span: &Range<usize>) -> Option<usize> {
    Some(text.get(..span.start)?.matches('\n').count() + 1)
}
