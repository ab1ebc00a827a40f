//! Words for an administrator, in place of those of TOML and serde.

use crate::config::error::place::Place;
use crate::config::suggest::{meant, nearest};
use crate::node::limits::MAX_SHARDS_PER_GPU;

/// The keys above all tables.
pub(crate) const AT_THE_TOP: [&str; 4] =
    ["raw_shards", "plain_types", "limit_notice", "default_class"];
/// The tables that can be written several times.
const SEVERAL: [&str; 4] = ["gate", "reservable", "route", "nodes"];
/// The keys that take one of certain words.
pub(super) const WORDS: [(&str, &[&str]); 6] = [
    ("raw_shards", &["refuse", "allow"]),
    ("mode", &["hard", "soft"]),
    ("field", &["auto", "extra", "comment"]),
    ("on_unknown", &["smallest", "drain"]),
    ("on_untagged", &["ask", "deny"]),
    ("jobs", &["batch", "interactive"]),
];
const A_VALUE: &str = "this is not a valid value: a text needs straight quotes (\"unlimited\"), a number has no unit, and a \
                       time looks like 2027-01-31T08:00:00";
const A_WALL_TIME: &str = "write as for sbatch --time, in quotes: \"4:00:00\" or \"7-00:00:00\"";
const A_NAME_WITH_A_DOT: &str = "a name with a dot needs quotes";

/// A message of TOML or serde, in words for an administrator.
pub(super) fn in_words(message: &str, place: &Place) -> String {
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
        "wanted string or table" => return one_of_words(key),
        _ if message.starts_with("invalid basic string")
            || message.starts_with("invalid literal string") =>
        {
            return "the quotes of this text are not closed on its line".to_string();
        }
        _ if message.starts_with("extra `=`") => {
            return "there is a second = here: a line has one key and one value".to_string();
        }
        _ => {}
    }
    let invalid = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "));
    let Some((found, expected)) = invalid.and_then(|rest| rest.split_once(", expected ")) else {
        return match message.contains("expected ") {
            // Any other message of the TOML parser.
            true => format!("this is not TOML ({message}); write KEY = VALUE"),
            false => message.to_string(),
        };
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
        Some("shards") if table.is_some_and(|table| table.starts_with("[gpu.")) => format!(
            "{} is not a whole number from 1 to {MAX_SHARDS_PER_GPU}",
            value(found)
        ),
        _ => format!("{} is not {}", value(found), wanted(found, expected, key)),
    }
}

/// The words of a key that takes one of certain words.
fn one_of_words(key: Option<&str>) -> String {
    let words = WORDS.iter().find(|(name, _)| Some(*name) == key);
    match words {
        Some((_, words)) => format!("write one of \"{}\", in quotes", words.join("\", \"")),
        None => {
            "write one of the words that conf/policy.toml names for this key, in quotes".to_string()
        }
    }
}

/// The fault of a key that is written below a table.
pub(crate) fn at_the_top(key: &str) -> String {
    format!("{key} belongs at the top of the file, above the first table")
}

/// serde says "a`, expected one of `b`, `c`". Names the most likely one. `header` is set if it is about a table.
pub(super) fn unknown_key(rest: &str, header: Option<&str>) -> String {
    let mut quoted = rest.split('`').step_by(2);
    let unknown = quoted.next().unwrap_or_default();
    if AT_THE_TOP.contains(&unknown) {
        return at_the_top(unknown);
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
        (Some(written), _) => {
            let written = written.trim_end_matches(" as i128");
            written
                .trim_end_matches(" as u128")
                .trim_matches('`')
                .to_string()
        }
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
