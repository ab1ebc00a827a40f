//! Errors in policy.toml: the line, the fault, and the correction.

use crate::config::error::place::Location;
use crate::config::error::value::Value;
use crate::config::error::words::{of_syntax, of_value};
use serde::de::DeserializeOwned;
use std::fmt;
use std::ops::Range;
use toml::de::DeTable;

mod fault;
mod place;
#[cfg(test)]
mod tests;
mod value;
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
    pub(crate) fn new(
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

/// Reads the file's tables into a type of serde's.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, PolicyError> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().unwrap_or_default();
        let place = Location::find(text, at.start);
        let message = of_syntax(text, at.start, &place, error.message());
        at_place(text, &at, &place, message)
    })?;
    T::deserialize(Value::of_file(table)).map_err(|fault| {
        let at = fault.at.unwrap_or_default();
        let mut place = Location::find(text, at.start);
        let message = of_value(&fault.kind, &mut place);
        at_place(text, &at, &place, message)
    })
}

fn at_place(text: &str, at: &Range<usize>, place: &Location, message: String) -> PolicyError {
    PolicyError {
        line: line_of(text, at),
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
