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

/// What TOML and serde say, in words for an administrator, with the table and the key that it is about.
pub(crate) fn reading_error(text: &str, error: &toml::de::Error) -> PolicyError {
    let place = error.span().map(|span| Place::of(text, span.start));
    let mut place = place.unwrap_or_default();
    let message = match error.message().strip_prefix("unknown field `") {
        // It is the key itself, or the table.
        Some(rest) => {
            let is_key = place.key.take().is_some();
            if !is_key {
                place.table = None;
            }
            unknown_key(rest, if is_key { "key" } else { "table" })
        }
        None => in_words(error.message(), place.key.as_deref()),
    };
    PolicyError {
        line: error.span().and_then(|span| line_of(text, &span)),
        message: match place.to_string().as_str() {
            "" => message,
            place => format!("{place}: {message}"),
        },
    }
}

/// Where a byte of policy.toml stands, as the text around it shows; only for words.
#[derive(Default)]
struct Place {
    /// The table's header, as it is written.
    table: Option<String>,
    /// The key of the line.
    key: Option<String>,
}

impl Place {
    fn of(text: &str, at: usize) -> Self {
        let before = text.get(..at).unwrap_or_default();
        let begin = before.rfind('\n').map_or(0, |end| end + 1);
        let line = text.get(begin..).and_then(|rest| rest.lines().next());
        let line = line.unwrap_or_default().trim();
        let header = |line: &str| {
            let close = line.rfind(']')?;
            line.starts_with('[').then(|| line[..=close].to_string())
        };
        let mut above = before.lines().rev();
        Self {
            table: header(line).or_else(|| above.find_map(|line| header(line.trim()))),
            key: match line.split_once('=') {
                Some((key, _)) if !line.starts_with('[') => Some(key.trim().to_string()),
                _ => None,
            },
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [self.table.as_deref(), self.key.as_deref()];
        let words: Vec<&str> = words.into_iter().flatten().collect();
        f.write_str(&words.join(" "))
    }
}

/// The keys that stand above all tables.
const AT_THE_TOP: [&str; 4] = ["raw_shards", "plain_types", "limit_notice", "default_class"];

fn in_words(message: &str, key: Option<&str>) -> String {
    if let Some(rest) = message.strip_prefix("unknown variant `") {
        let mut quoted = rest.split('`').step_by(2);
        let unknown = quoted.next().unwrap_or_default();
        let known = quoted.filter(|word| !word.is_empty());
        return format!("unknown word \"{unknown}\"; {}", meant(unknown, known));
    }
    if let Some(rest) = message.strip_prefix("missing field `") {
        return format!("{} is missing", rest.trim_end_matches('`'));
    }
    if message == "duplicate key" {
        return "stands here a second time".to_string();
    }
    if message == "invalid type: map, expected a sequence" {
        return "there can be several of these tables: write its name in double brackets, as in [[gate]]"
            .to_string();
    }
    let invalid = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "));
    let Some((found, expected)) = invalid.and_then(|rest| rest.split_once(", expected ")) else {
        return message.to_string();
    };
    format!("{} is not {}", value(found), wanted(found, expected, key))
}

/// serde says "a`, expected one of `b`, `c`"; say which of them was most likely meant.
fn unknown_key(rest: &str, what: &str) -> String {
    let mut quoted = rest.split('`').step_by(2);
    let unknown = quoted.next().unwrap_or_default();
    if AT_THE_TOP.contains(&unknown) {
        return format!("{unknown} belongs at the top of the file, above the first table");
    }
    let known = quoted.filter(|key| !key.is_empty());
    format!("unknown {what} {unknown}; {}", meant(unknown, known))
}

/// serde's name of what it found, as it stands in the file.
fn value(found: &str) -> String {
    let written = found
        .strip_prefix("string ")
        .or_else(|| found.strip_prefix("integer "))
        .or_else(|| found.strip_prefix("floating point "))
        .or_else(|| found.strip_prefix("boolean "));
    match (written, found) {
        (Some(written), _) => written.trim_matches('`').to_string(),
        (None, "sequence") => "a list".to_string(),
        (None, "map") => "a table".to_string(),
        (None, other) => other.to_string(),
    }
}

/// What belongs there.
fn wanted(found: &str, expected: &str, key: Option<&str>) -> String {
    let text = found.strip_prefix("string ");
    // A group by its name.
    if let (Some(name), "u32", Some(key)) = (text, expected, key)
        && key.contains("members")
    {
        let name = name.trim_matches('"');
        return format!(
            "a number: slurmctld looks up no names, and 'getent group {name}' shows the group's number"
        );
    }
    match expected {
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "a string" => "a text in quotes".to_string(),
        "a boolean" => "true or false, without quotes".to_string(),
        "a TOML datetime" => "a time, which stands without quotes: 2027-01-31T08:00:00".to_string(),
        "a sequence" => match (text, key) {
            (Some(text), Some("members")) => format!(
                "a list: write {{ users = [{text}] }}, or accounts or groups in place of users"
            ),
            (Some(text), _) => format!("a list: write [{text}]"),
            (None, _) => "a list, such as [1, 2]".to_string(),
        },
        "struct Members" => {
            "a table: write { users = [\"NAME\"] }, or accounts or groups in place of users"
                .to_string()
        }
        expected if expected.starts_with("struct ") => "a table".to_string(),
        other => other.to_string(),
    }
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

#[cfg(test)]
mod tests {
    use crate::Policy;

    const GPUS: &str = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n";

    fn error(text: &str) -> String {
        Policy::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_value_of_another_kind_is_told_with_what_belongs_there() {
        let above = |text: &str| error(&format!("{text}\n{GPUS}"));
        for (text, expected) in [
            (
                "plain_types = \"a\"",
                "line 1: plain_types: \"a\" is not a list: write [\"a\"]",
            ),
            (
                "limit_notice = \"yes\"",
                "line 1: limit_notice: \"yes\" is not true or false, without quotes",
            ),
            (
                "[[gate]]\nwhat = \"slice\"\nreservation = \"x\"",
                "line 3: [[gate]] reservation: \"x\" is not a list: write [\"x\"]",
            ),
            (
                "[[route]]\npartition = [\"a\"]",
                "line 2: [[route]] partition: a list is not a text in quotes",
            ),
            (
                "[classes]\nshards = 1",
                "line 2: [classes] shards: 1 is not a table",
            ),
            (
                "[classes.a]\nmembers = \"x\"",
                "line 2: [classes.a] members: \"x\" is not a table: write { users = [\"NAME\"] }, or accounts or groups in \
                 place of users",
            ),
            (
                "placement = \"spread\"",
                "line 1: placement: \"spread\" is not a table",
            ),
            (
                "[placement]\nshards = \"sprad\"",
                "line 2: [placement] shards: unknown word \"sprad\"; did you mean spread?",
            ),
            (
                "[[reservable]]\nend = \"2027-01-01\"",
                "line 2: [[reservable]] end: \"2027-01-01\" is not a time, which stands without quotes: 2027-01-31T08:00:00",
            ),
        ] {
            assert_eq!(above(text), expected);
        }
        assert_eq!(
            error("[gpu.l40s]\nmemory_mib = \"46068\"\n"),
            "line 2: [gpu.l40s] memory_mib: \"46068\" is not a whole number from 0 to 4294967295"
        );
    }

    #[test]
    fn what_stands_in_the_wrong_place_is_told_where_it_belongs() {
        assert_eq!(
            error(&format!("{GPUS}default_class = \"x\"\n")),
            "line 5: [gpu.l40s]: default_class belongs at the top of the file, above the first table"
        );
        assert_eq!(
            error(&format!("{GPUS}{GPUS}")),
            "line 5: [gpu.l40s]: stands here a second time"
        );
    }

    #[test]
    fn the_keys_at_the_top_are_those_of_the_file() {
        for key in super::AT_THE_TOP {
            // Of the right kind or not, it is known.
            let told = Policy::parse(&format!("{key} = 1\n{GPUS}")).unwrap_err();
            assert!(!told.message.contains("unknown key"), "{told}");
        }
        let all = error(&format!("zzz = 1\n{GPUS}"));
        let known = all.split_once("known here are ").unwrap().1;
        // What is no table in conf/policy.toml is one of them.
        let documented = include_str!("../../conf/policy.toml");
        for key in known.split(", ") {
            let is_table = documented.lines().any(|line| {
                let line = line.trim_start_matches('#');
                line.starts_with(&format!("[{key}")) || line.starts_with(&format!("[[{key}"))
            });
            assert_ne!(is_table, super::AT_THE_TOP.contains(&key), "{key}");
        }
    }
}
