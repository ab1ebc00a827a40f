//! A fault of policy.toml's values, as data: serde's errors, with their place in the file.

use serde::de::{self, Expected, Unexpected};
use std::fmt;
use std::ops::Range;

/// A fault, and where it is.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(super) at: Option<Range<usize>>,
    pub(super) kind: Kind,
}

/// The fault itself.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A value is not what its key takes.
    Unfit {
        /// The value.
        found: Found,
        /// The values that its key takes.
        wanted: Wanted,
    },
    /// A key does not take this word.
    UnknownWord(String, &'static [&'static str]),
    /// A key, or the last part of a table's name, is not known there.
    UnknownKey(String, &'static [&'static str]),
    /// A key has to be there.
    Missing(&'static str),
    /// The fault in words, of a value that has rules of its own.
    Own(String),
}

/// A value.
#[derive(Debug)]
pub(crate) enum Found {
    /// As it is written.
    Plain(String),
    List,
    Table,
}

/// The values that a key takes.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// A whole number up to this.
    Whole(u64),
    Bool,
    Text,
    Time,
    List,
    /// A table with keys of the program's.
    Table,
    /// A table with keys of the site's.
    Map,
    /// One of these words.
    Word(&'static [&'static str]),
    /// These words.
    Own(String),
}

impl Fault {
    pub(crate) fn unfit(found: Found, wanted: Wanted) -> Self {
        Kind::Unfit { found, wanted }.into()
    }

    /// The same at this place, unless it has one that is nearer.
    pub(crate) fn at(mut self, place: &Range<usize>) -> Self {
        self.at.get_or_insert_with(|| place.clone());
        self
    }
}

impl From<Kind> for Fault {
    fn from(kind: Kind) -> Self {
        Self { at: None, kind }
    }
}

impl Found {
    fn from_unexpected(unexpected: Unexpected<'_>) -> Self {
        match unexpected {
            Unexpected::Bool(value) => Self::Plain(value.to_string()),
            Unexpected::Unsigned(value) => Self::Plain(value.to_string()),
            Unexpected::Signed(value) => Self::Plain(value.to_string()),
            Unexpected::Float(value) => Self::Plain(value.to_string()),
            Unexpected::Str(value) => Self::Plain(format!("{value:?}")),
            Unexpected::Seq => Self::List,
            Unexpected::Map => Self::Table,
            other => Self::Plain(other.to_string()),
        }
    }
}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Kind::Own(message.to_string()).into()
    }

    fn invalid_type(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::unfit(
            Found::from_unexpected(found),
            Wanted::Own(wanted.to_string()),
        )
    }

    fn invalid_value(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::invalid_type(found, wanted)
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        Kind::UnknownWord(word.to_string(), known).into()
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Kind::UnknownKey(key.to_string(), known).into()
    }

    fn missing_field(key: &'static str) -> Self {
        Kind::Missing(key).into()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind)
    }
}

impl std::error::Error for Fault {}
