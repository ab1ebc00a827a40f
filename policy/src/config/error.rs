//! Errors in policy.toml: the line, the key, the fault, and what is allowed there.

mod place;
#[cfg(test)]
mod tests;

use crate::config::suggest::meant;
use place::Location;
use serde::de::DeserializeOwned;
use std::fmt;
use std::ops::Range;

/// The keys above all tables.
const AT_THE_TOP: [&str; 4] = ["raw_shards", "plain_types", "limit_notice", "default_class"];
/// The tables that can be written several times.
const SEVERAL: [&str; 4] = ["gate", "reservable", "route", "nodes"];
const DOT: &str = "a name with a dot needs quotes, as in \"1g.10gb\"";

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
    toml::from_str(text).map_err(|error| {
        let at = error.span().unwrap_or_default();
        let mut place = Location::find(text, at.start);
        let message = in_words(error.message(), &mut place);
        let line = line_of(text, &at);
        match place.to_string().as_str() {
            "" => PolicyError { line, message },
            place => PolicyError::new(place, line, message),
        }
    })
}

/// The line of a place in policy.toml, counted from 1.
pub(crate) fn line_of(text: &str, span: &Range<usize>) -> Option<usize> {
    Some(text.get(..span.start)?.matches('\n').count() + 1)
}

/// serde's message for an administrator. Messages of toml and of softmig's own types stay. Removes from `place` a key that is
/// the fault itself.
fn in_words(message: &str, place: &mut Location) -> String {
    if place.table.as_deref().is_some_and(is_written_once) {
        let all = SEVERAL.map(|name| format!("[[{name}]]")).join(", ");
        return format!("double brackets are for {all}; write other tables in single brackets");
    }
    let mut quoted = message.split('`').skip(1).step_by(2);
    let first = quoted.next().unwrap_or_default();
    if message.starts_with("unknown field") {
        place.key = None;
        let hint = meant(first, quoted);
        let mut table = place.table.as_deref().into_iter();
        let is_cut =
            table.any(|table| table.starts_with("[gpu.") && table.matches('.').count() > 1);
        return match at_the_top(first) {
            Some(top) if place.table.is_some() => top,
            _ if is_cut => format!("unknown key {first}; {DOT}"),
            _ => format!("unknown key {first}; {hint}"),
        };
    }
    if message.starts_with("unknown variant") {
        return format!("unknown word \"{first}\"; {}", meant(first, quoted));
    }
    if message.starts_with("missing field") {
        return format!("{first} is missing");
    }
    let unfit = message.strip_prefix("invalid type: ");
    let unfit = unfit.or(message.strip_prefix("invalid value: "));
    match unfit.and_then(|unfit| unfit.split_once(", expected ")) {
        Some(("map", "a sequence")) if place.is_header => {
            "this table can be written several times: write its name in double brackets".to_string()
        }
        Some(("map", own)) if own.starts_with("a number") => format!("this is not {own}; {DOT}"),
        Some((found, "u32")) if place.key.as_deref() == Some("groups") => {
            let found = value(found);
            format!("{found} is not a group's number, which 'getent group {found}' shows")
        }
        Some((found, wanted)) => format!("{} is not {}", value(found), kind(wanted)),
        None if message == "wanted string or table" => "this takes a word in quotes".to_string(),
        None => message.to_string(),
    }
}

/// Whether a header in double brackets is that of a table which can be written only once.
fn is_written_once(table: &str) -> bool {
    let name = table.strip_prefix("[[");
    name.is_some_and(|name| !SEVERAL.contains(&name.trim_end_matches(']').trim()))
}

/// A key that is written below a table.
pub(crate) fn at_the_top(key: &str) -> Option<String> {
    let is_one = AT_THE_TOP.contains(&key);
    is_one.then(|| format!("{key} belongs at the top of the file, above the first table"))
}

/// serde's name of a value: string "x", integer `1`, sequence.
fn value(found: &str) -> &str {
    match found {
        "sequence" => "a list",
        // Also a time.
        "map" => "this",
        plain => {
            let text = plain.strip_prefix("string ");
            text.or_else(|| plain.split('`').nth(1)).unwrap_or(plain)
        }
    }
}

/// The values that a type of serde's takes.
fn kind(wanted: &str) -> &str {
    match wanted {
        "u32" => "a whole number from 0 to 4294967295",
        "a boolean" => "true or false, without quotes",
        "a string" => "a text in quotes",
        "a sequence" => "a list, such as [\"a\"] or [1, 2]",
        "a map" => "a table by type: { \"TYPE\" = 1 }",
        "a TOML datetime" => "a time without quotes: 2027-01-31T08:00:00",
        own if own.starts_with("struct ") => "a table",
        own => own,
    }
}
