//! What is wrong with a policy.toml, where, and what would be right.

use std::fmt;
use std::ops::Range;

/// Why a policy.toml was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct PolicyError {
    /// The line, counted from 1.
    pub line: Option<usize>,
    /// What is wrong there, and what would be right.
    pub message: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// What TOML and serde say, in words for an administrator.
pub(crate) fn reading_error(text: &str, error: &toml::de::Error) -> PolicyError {
    PolicyError {
        line: error.span().and_then(|span| line_of(text, &span)),
        message: with_nearest_key(error.message()),
    }
}

/// serde says "unknown field `a`, expected one of `b`, `c`"; say which of them was most likely meant.
fn with_nearest_key(message: &str) -> String {
    if message == "invalid type: map, expected a sequence" {
        return "there can be several of these tables: write its name in double brackets, as in [[gate]]"
            .to_string();
    }
    let Some(rest) = message.strip_prefix("unknown field `") else {
        return message.to_string();
    };
    let mut quoted = rest.split('`').step_by(2);
    let unknown = quoted.next().unwrap_or_default();
    let known = quoted.filter(|key| !key.is_empty());
    format!("unknown key {unknown}; {}", meant(unknown, known))
}

/// What is to be said behind a word that is not known: the one that was most likely meant, or all that are.
pub(crate) fn meant<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    match nearest(word, known.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None if known.is_empty() => "none is known here".to_string(),
        None => format!("known here are {}", known.join(", ")),
    }
}

/// The word most like `word`, if any is much like it.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|key| (strsim::jaro_winkler(word, key), key))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, key)| key)
}

pub(crate) fn line_of(text: &str, span: &Range<usize>) -> Option<usize> {
    Some(text.get(..span.start)?.matches('\n').count() + 1)
}
