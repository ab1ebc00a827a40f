//! Faults of policy.toml in words for an administrator.

use crate::config::error::fault::{Found, Kind, Wanted};
use crate::config::error::place::Location;
use crate::config::suggest::{meant, nearest};
use crate::node::limits::MAX_SHARDS_PER_GPU;

/// The keys above all tables.
pub(crate) const AT_THE_TOP: [&str; 4] =
    ["raw_shards", "plain_types", "limit_notice", "default_class"];
/// The tables that can be written several times.
const SEVERAL: [&str; 4] = ["gate", "reservable", "route", "nodes"];
const A_VALUE: &str = "this is not a valid value: a text needs straight quotes (\"unlimited\"), a number has no unit, and a \
                       time looks like 2027-01-31T08:00:00";
const A_WALL_TIME: &str = "write as for sbatch --time, in quotes: \"4:00:00\" or \"7-00:00:00\"";
const TEXT_AFTER: &str =
    "there is text after the value: a line has one key and one value, and no comma at its end";
const A_NAME_WITH_A_DOT: &str = "a name with a dot needs quotes";

/// A fault of a value, in words for an administrator. Removes from `place` the parts that these words name.
pub(super) fn of_value(kind: &Kind, place: &mut Location) -> String {
    if let Some(told) = of_brackets(place) {
        return told;
    }
    match kind {
        Kind::UnknownWord(word, known) => {
            format!(
                "unknown word \"{word}\"; {}",
                meant(word, known.iter().copied())
            )
        }
        Kind::UnknownKey(key, known) => {
            // It is the key itself, or the table.
            let is_key = place.key.take().is_some();
            let header = (!is_key).then(|| place.table.take()).flatten();
            unknown_key(key, known, header.as_deref())
        }
        Kind::Missing(key) => format!("{key} is missing"),
        Kind::Own(message) => message.clone(),
        Kind::Unfit { found, wanted } => unfit(found, wanted, place),
    }
}

/// The fault of double brackets around a table that is there once.
fn of_brackets(place: &Location) -> Option<String> {
    let name = place.table.as_deref()?.strip_prefix("[[")?;
    let name = name.trim_end_matches(']').trim();
    if SEVERAL.contains(&name) {
        return None;
    }
    Some(match nearest(name, SEVERAL.into_iter()) {
        Some(meant) => format!("did you mean [[{meant}]]? Or [{name}], in single brackets"),
        None => format!(
            "this table can be written only once: write its name in single brackets, [{name}]"
        ),
    })
}

fn unfit(found: &Found, wanted: &Wanted, place: &Location) -> String {
    let key = place.key.as_deref();
    let is_of_gpu = place
        .table
        .as_deref()
        .is_some_and(|table| table.starts_with("[gpu."));
    let written = match found {
        Found::Plain(value) => value.as_str(),
        Found::List => "a list",
        Found::Table => "a table",
    };
    match (key, found, wanted) {
        (_, Found::Table, Wanted::List) if place.is_header => {
            "this table can be written several times: write its name in double brackets, as in [[gate]]".to_string()
        }
        (_, _, Wanted::Word(words)) => format!("write one of \"{}\", in quotes", words.join("\", \"")),
        (Some("wall_time" | "max_time"), ..) => A_WALL_TIME.to_string(),
        (Some("groups"), Found::Plain(name), Wanted::Whole(_)) if name.starts_with('"') => {
            let name = name.trim_matches('"');
            format!(
                "{name} is not a number: slurmctld does not look up names; 'getent group {name}' shows the group's number"
            )
        }
        (Some("shards"), ..) if is_of_gpu => {
            format!("{written} is not a whole number from 1 to {MAX_SHARDS_PER_GPU}")
        }
        _ => format!("{written} is not {}", in_words(found, wanted, key)),
    }
}

/// The kind of value that is valid there.
fn in_words(found: &Found, wanted: &Wanted, key: Option<&str>) -> String {
    match (wanted, found, key) {
        // Dots in keys make tables.
        (Wanted::Own(wanted), Found::Table, _) => format!("{wanted}; {A_NAME_WITH_A_DOT}"),
        (Wanted::Own(wanted), ..) => wanted.clone(),
        (Wanted::Whole(most), ..) => format!("a whole number from 0 to {most}"),
        (Wanted::Bool, ..) => "true or false, without quotes".to_string(),
        (Wanted::Text, ..) => "a text in quotes".to_string(),
        (Wanted::Time, ..) => "a time without quotes: 2027-01-31T08:00:00".to_string(),
        (Wanted::Table, _, Some("members")) => {
            "a table of lists: write { users = [\"NAME\"] }, or accounts or groups".to_string()
        }
        (Wanted::List, Found::Plain(text), Some(key)) if text.starts_with('"') => {
            format!("a list: write {key} = [{text}]")
        }
        (Wanted::List, ..) => "a list, such as [1, 2]".to_string(),
        (Wanted::Table, ..) => "a table".to_string(),
        (Wanted::Map, ..) => "a table by type: { \"TYPE\" = 1 }".to_string(),
        (Wanted::Word(words), ..) => format!("one of {}", words.join(", ")),
    }
}

/// The fault of a line that is not TOML, which the parser noticed at this byte. `message` is the parser's own.
pub(super) fn of_syntax(text: &str, at: usize, place: &Location, message: &str) -> String {
    if place.is_header {
        return match (place.first, place.table.as_deref()) {
            (Some(line), _) => format!("already in line {}", line + 1),
            (None, Some(table)) if is_single_above(text, at, table) => {
                "is above in single brackets; write double brackets there too".to_string()
            }
            _ => format!("this is not TOML ({message}); write [TABLE] or [[TABLE]]"),
        };
    }
    let begin = text
        .get(..at)
        .and_then(|before| before.rfind('\n'))
        .map_or(0, |end| end + 1);
    let line = text
        .get(begin..)
        .and_then(|rest| rest.lines().next())
        .unwrap_or_default();
    let Some((key, value)) = line.split_once('=') else {
        return "write KEY = VALUE".to_string();
    };
    let value = value.trim();
    let other = format!("this is not TOML ({message}); write KEY = VALUE");
    let Some(first) = value.chars().next() else {
        return other;
    };
    let above = place.lines_of_table(text, begin);
    let is_same = |other: &str| {
        other
            .split_once('=')
            .is_some_and(|(other, _)| other.trim() == key.trim())
    };
    match first {
        '=' => "there is a second = here: a line has one key and one value".to_string(),
        _ if above.lines().any(is_same) => "written twice".to_string(),
        '"' | '\'' => match value.get(1..).and_then(|rest| rest.split_once(first)) {
            None => "the quotes of this text are not closed on its line".to_string(),
            Some((_, rest)) if !is_comment(rest) => TEXT_AFTER.to_string(),
            Some(_) => other,
        },
        '[' | '{' if value.contains('.') && !value.contains(['"', '\'']) => {
            A_NAME_WITH_A_DOT.to_string()
        }
        '[' | '{' => other,
        _ => {
            let end = value.find([' ', ',', '#']).unwrap_or(value.len());
            let (word, rest) = value.split_at(end);
            let is_value = format!("x = {word}").parse::<toml::Table>().is_ok();
            if is_value && !is_comment(rest) {
                TEXT_AFTER.to_string()
            } else {
                A_VALUE.to_string()
            }
        }
    }
}

/// True if a table in double brackets is above this byte in single ones.
fn is_single_above(text: &str, at: usize, table: &str) -> bool {
    let single = table.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let above = text.get(..at).unwrap_or_default();
    single.is_some_and(|single| {
        single.starts_with('[') && above.lines().any(|line| line.trim() == single)
    })
}

fn is_comment(rest: &str) -> bool {
    let rest = rest.trim();
    rest.is_empty() || rest.starts_with('#')
}

/// The fault of a key that is written below a table.
pub(crate) fn at_the_top(key: &str) -> String {
    format!("{key} belongs at the top of the file, above the first table")
}

/// A key that is not known, and the most likely one. `header` is set if it is about a table.
fn unknown_key(unknown: &str, known: &[&str], header: Option<&str>) -> String {
    if AT_THE_TOP.contains(&unknown) {
        return at_the_top(unknown);
    }
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
        meant(unknown, known.iter().copied())
    )
}
