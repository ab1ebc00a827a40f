//! The place of a fault in policy.toml.

use std::fmt;

/// The table and key around a byte of policy.toml, as the text shows them. Used in messages only.
#[derive(Default)]
pub(super) struct Location {
    /// The table's header, as it is written.
    pub(super) table: Option<String>,
    /// True if the byte is in the header itself.
    pub(super) is_header: bool,
    /// The key of the line, or the one in `{ }` that is nearest.
    pub(super) key: Option<String>,
}

impl Location {
    pub(super) fn find(text: &str, at: usize) -> Self {
        let before = text.get(..at).unwrap_or_default();
        let begin = before.rfind('\n').map_or(0, |end| end + 1);
        let line = text.get(begin..).and_then(|rest| rest.lines().next());
        let line = line.unwrap_or_default();
        if line.trim_start().starts_with('[') {
            return Self {
                table: header(line),
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

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [self.table.as_deref(), self.key.as_deref()];
        let words: Vec<&str> = words.into_iter().flatten().collect();
        f.write_str(&words.join(" "))
    }
}
