//! The grammar of Slurm's TRES strings: `gres/gpu:l40s.4:1,gres/license:x=2`.
//!
//! The prefix of a GRES differs between releases (`release.rs`), and its count may follow `:` or `=`, or be missing. An
//! item that is not about GPUs keeps its text.

use std::fmt;
use std::ops::RangeInclusive;

/// The indices of a node's GPUs are below this, so that a range cannot be endless.
pub(crate) const MOST_GPUS: u32 = 1024;

/// How a Slurm version marks a GRES among other TRES.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prefix {
    /// `gpu:1`. Options on a command line have this form with every release.
    None,
    /// `gres:gpu:1`.
    Colon,
    /// `gres/gpu:1`.
    Slash,
}

impl Prefix {
    /// The text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Colon => "gres:",
            Self::Slash => "gres/",
        }
    }

    pub(crate) fn split(item: &str) -> (Self, &str) {
        for prefix in [Self::Colon, Self::Slash] {
            if let Some(rest) = item.strip_prefix(prefix.as_str()) {
                return (prefix, rest);
            }
        }
        (Self::None, item)
    }
}

/// The GRES that are about GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// `gpu`: whole GPUs, or a slice by its type's suffix.
    Gpu,
    /// `shard`: a count of shards.
    Shard,
    /// `mps`: units of an older system. Only units of mps that a policy knows are read as these.
    Mps,
}

impl Name {
    /// The name as Slurm has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Shard => "shard",
            Self::Mps => "mps",
        }
    }
}

/// A request for GPUs or shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gres<'a> {
    /// The version's mark.
    pub prefix: Prefix,
    /// `gpu` or `shard`.
    pub name: Name,
    /// The type, if the user named one.
    pub kind: Option<&'a str>,
    /// The number; `None` if the user gave none, which Slurm takes as one.
    pub count: Option<u64>,
}

impl Gres<'_> {
    /// The number, which is one if the user gave none.
    pub fn count(&self) -> u64 {
        self.count.unwrap_or(1)
    }
}

/// The request as a person would type it, without the version's prefix.
impl fmt::Display for Gres<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_str())?;
        if let Some(kind) = self.kind {
            write!(f, ":{kind}")?;
        }
        match self.count {
            Some(count) => write!(f, ":{count}"),
            None => Ok(()),
        }
    }
}

/// One item of a TRES string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// GPUs or shards.
    Gpu(Gres<'a>),
    /// About GPUs or shards, but not in a form that every Slurm reads alike.
    Malformed(&'a str),
    /// Anything else.
    Other(&'a str),
}

/// The items of `text`, each with the exact text that it was read from.
pub fn items(text: &str) -> impl Iterator<Item = (&str, Item<'_>)> {
    text.split(',').map(|raw| (raw, item(raw)))
}

/// The items of a list of Slurm's own, `gpu:l40s:2(IDX:0,2)`: each without its brackets, and the text in them.
pub(crate) fn placed_items(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let mut depth = 0u32;
    let items = text.split(move |letter: char| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    items.map(|item| match item.split_once('(') {
        Some((item, places)) => (item, Some(places.trim_end_matches(')'))),
        None => (item, None),
    })
}

/// The ranges of indices in `0,2-3`; `None` for a part that is not one.
pub(crate) fn ranges(text: &str) -> impl Iterator<Item = Option<RangeInclusive<u32>>> {
    let index = |text: &str| text.trim().parse().ok().filter(|&at| at < MOST_GPUS);
    text.split(',').map(move |part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (index(first)?, index(last)?);
        (first <= last).then_some(first..=last)
    })
}

fn item(raw: &str) -> Item<'_> {
    item_of(raw, &[Name::Gpu, Name::Shard])
}

/// An item of another GRES read as units of mps, which mean part of a GPU where the policy says so.
pub(crate) fn mps(raw: &str) -> Item<'_> {
    item_of(raw, &[Name::Mps])
}

/// Whether an item is about the GRES of exactly this name, anywhere in the item that Slurm would find the name.
pub(crate) fn is_named(raw: &str, name: &str) -> bool {
    let (_, rest) = Prefix::split(raw);
    after_name(rest, name).is_some() || hides(raw, |rest| after_name(rest, name).is_some())
}

fn item_of<'a>(raw: &'a str, names: &[Name]) -> Item<'a> {
    let (prefix, rest) = Prefix::split(raw);
    let (name, rest) = match split_name(rest, names) {
        Some(named) => named,
        None if hides(raw, |rest| split_name(rest, names).is_some()) => {
            return Item::Malformed(raw);
        }
        None => return Item::Other(raw),
    };
    let parsed = match rest.chars().next() {
        None => Some((None, None)),
        Some(separator) => type_and_count(&rest[1..], separator),
    };
    match parsed {
        Some((kind, count)) => Item::Gpu(Gres {
            prefix,
            name,
            kind,
            count,
        }),
        None => Item::Malformed(raw),
    }
}

/// The name, and the text after it, which begins with the separator.
fn split_name<'a>(text: &'a str, names: &[Name]) -> Option<(Name, &'a str)> {
    names
        .iter()
        .find_map(|&name| Some((name, after_name(text, name.as_str())?)))
}

fn after_name<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(name)?;
    (rest.is_empty() || rest.starts_with([':', '='])).then_some(rest)
}

/// Whether a request for GPUs begins in the middle of an item. Slurm looks for its prefix anywhere in an item, so it
/// would see a request that softmig does not.
fn hides(raw: &str, is_ours: impl Fn(&str) -> bool) -> bool {
    raw.match_indices("gres").any(|(at, mark)| {
        let rest = &raw[at + mark.len()..];
        is_ours(rest.strip_prefix([':', '/']).unwrap_or(rest))
    })
}

/// `l40s:1`, `l40s=1`, `l40s`, `1`. After `=` there can only be a count.
fn type_and_count(text: &str, separator: char) -> Option<(Option<&str>, Option<u64>)> {
    if separator == '=' {
        return Some((None, Some(count(text)?)));
    }
    match text.rsplit_once([':', '=']) {
        None => match count(text) {
            Some(count) => Some((None, Some(count))),
            None => Some((Some(kind(text)?), None)),
        },
        Some((name, number)) => Some((Some(kind(name)?), Some(count(number)?))),
    }
}

fn kind(text: &str) -> Option<&str> {
    // More letters than types of policy.toml may have: `nvidia_a100_1g.5gb+me` is also a type of Slurm's.
    let known = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b':' | b'=' | b'/');
    // Slurm would read a text with a sign as a number.
    let starts = text.starts_with(|first: char| first.is_ascii_alphanumeric());
    (starts && text.bytes().all(known) && count(text).is_none()).then_some(text)
}

/// Digits, and Slurm's suffixes for thousands.
pub(crate) fn count(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        "p" => 1 << 50,
        _ => return None,
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Item<'_> {
        let mut all = items(text);
        let (raw, item) = all.next().unwrap();
        assert_eq!(raw, text);
        assert!(all.next().is_none());
        item
    }

    fn gpu(prefix: Prefix, kind: Option<&str>, count: Option<u64>) -> Item<'_> {
        Item::Gpu(Gres {
            prefix,
            name: Name::Gpu,
            kind,
            count,
        })
    }

    #[test]
    fn every_spelling_of_a_request_is_read() {
        use Prefix::*;
        for (text, prefix, kind, count) in [
            ("gpu", None, Option::None, Option::None),
            ("gpu:2", None, Option::None, Some(2)),
            ("gpu=2", None, Option::None, Some(2)),
            ("gres:gpu:l40s.4:1", Colon, Some("l40s.4"), Some(1)),
            ("gres/gpu:l40s.4:1", Slash, Some("l40s.4"), Some(1)),
            ("gres/gpu:l40s.4=1", Slash, Some("l40s.4"), Some(1)),
            ("gpu:l40s.4", None, Some("l40s.4"), Option::None),
            (
                "gres/gpu:a100-80gb.2:1",
                Slash,
                Some("a100-80gb.2"),
                Some(1),
            ),
            ("gpu:h100_1g.10gb:1", None, Some("h100_1g.10gb"), Some(1)),
            ("gres/gpu:1g.5gb+me:1", Slash, Some("1g.5gb+me"), Some(1)),
            ("gpu:2080ti:1k", None, Some("2080ti"), Some(1024)),
        ] {
            assert_eq!(one(text), gpu(prefix, kind, count), "{text}");
        }
    }

    #[test]
    fn what_is_not_about_gpus_is_left_alone() {
        for text in [
            "license:x=2",
            "cpu=2",
            "gres/mps:80",
            "gpux:1",
            "GPU:1",
            "",
            "gpumem=4G",
            "mem=4G",
        ] {
            assert_eq!(one(text), Item::Other(text), "{text}");
        }
    }

    #[test]
    fn forms_that_slurm_versions_read_differently_are_malformed() {
        for text in [
            "gpu:",
            "gpu::1",
            "gpu:l40s:",
            "gpu:l40s.4:x",
            "gpu:l40s.4:1:1",
            "gpu=l40s:1",
            "gpu:l40s.4:-1",
            "shard:+1",
            "gpu: l40s",
            "gpu:1:1",
            "gpu:l\u{e9}:1",
            "xgres:gpu:1",
            "license/gres/shard:9",
            "gresshard:9",
        ] {
            assert_eq!(one(text), Item::Malformed(text), "{text}");
        }
    }
}
