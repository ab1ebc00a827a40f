//! Errors in policy.toml: the line, the fault, and the correction.

use crate::config::suggest::{meant, nearest};
use std::fmt;
use std::ops::Range;

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

/// The table and key around a byte of policy.toml, as the text shows them. Used in messages only.
#[derive(Default)]
struct Place {
    /// The table's header, as it is written.
    table: Option<String>,
    /// True if the byte is in the header itself.
    is_header: bool,
    /// The earlier line with the same header.
    first: Option<usize>,
    /// The key of the line, or the one in `{ }` that is nearest.
    key: Option<String>,
}

impl Place {
    fn of(text: &str, at: usize) -> Self {
        let before = text.get(..at).unwrap_or_default();
        let begin = before.rfind('\n').map_or(0, |end| end + 1);
        let line = text.get(begin..).and_then(|rest| rest.lines().next());
        let line = line.unwrap_or_default();
        if line.trim_start().starts_with('[') {
            let table = header(line);
            let mut above = before.lines();
            return Self {
                first: above.position(|other| table.is_some() && header(other) == table),
                table,
                is_header: true,
                key: None,
            };
        }
        let mut above = before.lines().rev();
        Self {
            table: above.find_map(header),
            key: key_before(line, at - begin),
            ..Self::default()
        }
    }
}

/// The header of a table, where a line is one.
fn header(line: &str) -> Option<String> {
    let line = line.trim();
    let close = if line.starts_with("[[") { "]]" } else { "]" };
    let (header, _) = line.starts_with('[').then(|| line.split_once(close))??;
    Some(format!("{header}{close}"))
}

/// The key of a line, or in `{ }` the last one before a place in it.
fn key_before(line: &str, at: usize) -> Option<String> {
    let inside = line.get(..at).filter(|before| before.contains('{'));
    let (before, _) = match inside {
        Some(inside) => inside.rsplit_once('=')?,
        None => line.split_once('=')?,
    };
    let key = before.rsplit(['{', ',']).next().unwrap_or(before);
    Some(key.trim().to_string())
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [self.table.as_deref(), self.key.as_deref()];
        let words: Vec<&str> = words.into_iter().flatten().collect();
        f.write_str(&words.join(" "))
    }
}

/// The keys above all tables.
const AT_THE_TOP: [&str; 4] = ["raw_shards", "plain_types", "limit_notice", "default_class"];
/// The tables that can be written several times.
const SEVERAL: [&str; 4] = ["gate", "reservable", "route", "nodes"];
const A_VALUE: &str = "this is not a valid value: a text needs straight quotes (\"unlimited\"), a number has no unit, and a \
                       time looks like 2027-01-31T08:00:00";
const A_WALL_TIME: &str = "write as for sbatch --time, in quotes: \"4:00:00\" or \"7-00:00:00\"";
const A_NAME_WITH_A_DOT: &str = "a name with a dot needs quotes";

fn in_words(message: &str, place: &Place) -> String {
    let key = place.key.as_deref();
    let header = place.table.as_deref().filter(|_| place.is_header);
    let table = place.table.as_deref();
    if let Some(name) = table.and_then(|table| table.strip_prefix("[["))
        && !SEVERAL.contains(&name.trim_end_matches(']').trim())
    {
        let name = name.trim_end_matches(']').trim();
        return match nearest(name, SEVERAL.into_iter()) {
            Some(meant) => format!("did you mean [[{meant}]]? Or [{name}], in single brackets"),
            None => format!(
                "this table can be written only once: write its name in single brackets, [{name}]"
            ),
        };
    }
    if let Some(rest) = message.strip_prefix("unknown variant `") {
        let mut quoted = rest.split('`').step_by(2);
        let unknown = quoted.next().unwrap_or_default();
        let known = quoted.filter(|word| !word.is_empty());
        return format!("unknown word \"{unknown}\"; {}", meant(unknown, known));
    }
    if let Some(rest) = message.strip_prefix("missing field `") {
        return format!("{} is missing", rest.trim_end_matches('`'));
    }
    match message {
        "duplicate key" => {
            return match (place.first, header) {
                (Some(line), Some(_)) => format!("already in line {}", line + 1),
                (None, Some(header)) if header.starts_with("[[") => {
                    "is above in single brackets; write double brackets there too".to_string()
                }
                _ => "written twice".to_string(),
            };
        }
        "invalid type: map, expected a sequence" if place.is_header => {
            return "this table can be written several times: write its name in double brackets, as in [[gate]]"
                .to_string();
        }
        "string values must be quoted, expected literal string"
        | "invalid float, expected `nan`"
        | "invalid float, expected `inf`" => return A_VALUE.to_string(),
        "unexpected key or value, expected newline, `#`" => {
            return "there is text after the value: a line has one key and one value, and no comma at its end"
                .to_string();
        }
        "key with no value, expected `=`" => return "write KEY = VALUE".to_string(),
        "wanted string or table" => {
            return "write one of the words that conf/policy.toml names for this key, in quotes"
                .to_string();
        }
        _ => {}
    }
    let invalid = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "));
    let Some((found, expected)) = invalid.and_then(|rest| rest.split_once(", expected ")) else {
        return message.to_string();
    };
    match key {
        Some("wall_time" | "max_time") => A_WALL_TIME.to_string(),
        Some("groups") if found.starts_with("string ") && expected == "u32" => {
            let name = value(found);
            let name = name.trim_matches('"');
            format!(
                "{name} is not a number: slurmctld does not look up names; 'getent group {name}' shows the group's number"
            )
        }
        _ => format!("{} is not {}", value(found), wanted(found, expected, key)),
    }
}

/// serde says "a`, expected one of `b`, `c`". Names the most likely one. `header` is set if it is about a table.
fn unknown_key(rest: &str, header: Option<&str>) -> String {
    let mut quoted = rest.split('`').step_by(2);
    let unknown = quoted.next().unwrap_or_default();
    if AT_THE_TOP.contains(&unknown) {
        return format!("{unknown} belongs at the top of the file, above the first table");
    }
    let known: Vec<&str> = quoted.filter(|key| !key.is_empty()).collect();
    let is_like_one = nearest(unknown, known.iter().copied()).is_some();
    if let Some(header) = header
        && header.matches('.').count() > 1
        && !header.contains(['"', '\''])
        && !is_like_one
    {
        return format!("{header}: {A_NAME_WITH_A_DOT}, as in [gpu.\"1g.10gb\"]");
    }
    let what = if header.is_some() { "table" } else { "key" };
    format!(
        "unknown {what} {unknown}; {}",
        meant(unknown, known.into_iter())
    )
}

/// The value that serde found, as it is written in the file.
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

/// The kind of value that is valid there.
fn wanted(found: &str, expected: &str, key: Option<&str>) -> String {
    let text = found.strip_prefix("string ");
    match (expected, key) {
        // Dots in keys make tables.
        (expected, _) if expected.starts_with("a number") && found == "map" => {
            format!("{expected}; {A_NAME_WITH_A_DOT}")
        }
        ("u32", _) => format!("a whole number from 0 to {}", u32::MAX),
        ("a string", _) => "a text in quotes".to_string(),
        ("a boolean", _) => "true or false, without quotes".to_string(),
        ("a TOML datetime", _) => "a time without quotes: 2027-01-31T08:00:00".to_string(),
        ("a map", _) => "a table by type: { \"TYPE\" = 1 }".to_string(),
        ("a sequence" | "struct Members", Some("members")) => {
            "a table of lists: write { users = [\"NAME\"] }, or accounts or groups".to_string()
        }
        ("a sequence", key) => match (text, key) {
            (Some(text), Some(key)) => format!("a list: write {key} = [{text}]"),
            _ => "a list, such as [1, 2]".to_string(),
        },
        (expected, _) if expected.starts_with("struct ") => "a table".to_string(),
        (other, _) => other.to_string(),
    }
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
                "line 1: plain_types: \"a\" is not a list: write plain_types = [\"a\"]",
            ),
            (
                "limit_notice = \"yes\"",
                "line 1: limit_notice: \"yes\" is not true or false, without quotes",
            ),
            (
                "[[gate]]\nwhat = \"slice\"\nreservation = \"x\"",
                "line 3: [[gate]] reservation: \"x\" is not a list: write reservation = [\"x\"]",
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
                "line 2: [classes.a] members: \"x\" is not a table of lists: write { users = [\"NAME\"] }, or accounts or groups",
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
                "line 2: [[reservable]] end: \"2027-01-01\" is not a time without quotes: 2027-01-31T08:00:00",
            ),
        ] {
            assert_eq!(above(text), expected);
        }
        let no_value = "this is not a valid value: a text needs straight quotes";
        for value in [
            "unlimited",
            "null",
            "45G",
            "\u{201c}2\u{201d}",
            "12/07/2026",
        ] {
            let told = above(&format!("[defaults]\nshards = {value}"));
            assert!(
                told.starts_with("line 2: [defaults] shards: ")
                    && (told.contains(no_value) || told.contains("there is text after the value")),
                "{value}: {told}"
            );
        }
        for (line, expected) in [
            ("shards = 2,", "there is text after the value"),
            ("mig = 4", "mig: 4 is not a table by type: { \"TYPE\" = 1 }"),
            ("mig = { 1g.10gb = 4 }", "a name with a dot needs quotes"),
            (
                "wall_time = 24",
                "wall_time: write as for sbatch --time, in quotes",
            ),
            (
                "wall_time = 02:00:00",
                "wall_time: write as for sbatch --time, in quotes",
            ),
            (
                "[classes.a]\nmembers = { users = [\"a\"], accounts = \"b\" }",
                "accounts: \"b\" is not a list: write accounts = [\"b\"]",
            ),
        ] {
            let told = above(&format!("[defaults]\n{line}"));
            assert!(told.contains(expected), "{line}: {told}");
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
        for (text, expected) in [
            (
                "[nodes]\nnames = \"a\"\n[[nodes]]\n",
                "line 3: [[nodes]]: is above in single brackets; write double brackets there too",
            ),
            (
                "[[node]]\nnames = \"a\"",
                "line 2: [[node]] names: did you mean [[nodes]]? Or [node], in single brackets",
            ),
            (
                "[[legacy.mps]]\ntype = \"l40s\"",
                "line 1: [[legacy.mps]]: this table can be written only once: write its name in single brackets, [legacy.mps]",
            ),
            (
                "[gpu.1g.10gb]\nmemory_mib = 9856",
                "line 1: [gpu.1g.10gb]: a name with a dot needs quotes, as in [gpu.\"1g.10gb\"]",
            ),
        ] {
            assert_eq!(error(&format!("{text}\n{GPUS}")), expected);
        }
        // Comments and blanks are no part of a name.
        for header in ["[[gate]] # of [course]", "[[ gate ]]"] {
            let told = error(&format!(
                "{header}\nwhat = \"slice\"\nreservation = \"x\"\n{GPUS}"
            ));
            assert!(
                told.ends_with("reservation: \"x\" is not a list: write reservation = [\"x\"]"),
                "{told}"
            );
        }
        let below = error(&format!(
            "[classes.a]\n[classes.a.member]\nusers = [\"x\"]\n{GPUS}"
        ));
        assert!(
            below.ends_with("unknown table member; did you mean members?"),
            "{below}"
        );
        assert_eq!(
            error(&format!("{GPUS}{GPUS}")),
            "line 5: [gpu.l40s]: already in line 1"
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
        let documented = include_str!("../../../conf/policy.toml");
        for key in known.split(", ") {
            let is_table = documented.lines().any(|line| {
                let line = line.trim_start_matches('#');
                line.starts_with(&format!("[{key}")) || line.starts_with(&format!("[[{key}"))
            });
            assert_ne!(is_table, super::AT_THE_TOP.contains(&key), "{key}");
        }
    }
}
