//! The part of a request that is about GPUs, also in forms that Slurm would not accept.

use crate::config::gpu_types::GpuType;
use crate::config::policy::Policy;
use crate::decision::alternatives::size_meant;
use crate::node::size::Bytes;
use crate::slurm::gres::{Gres, Item, Name, Prefix, items, mps};
use crate::slurm::job_request::{CountedPer, Request};

/// The parts of a request that are about GPUs, and the rest of it.
pub(crate) struct Wanted<'a> {
    /// Slices and shards.
    pub(crate) parts: Vec<Part<'a>>,
    /// Something about slices or shards that cannot be read.
    pub(crate) malformed: Option<&'a str>,
    /// Whole GPUs and MIG instances.
    pub(crate) wholes: Vec<(CountedPer, Gres<'a>)>,
    /// A misspelt request for a whole GPU: Slurm has its own words for that.
    pub(crate) misspelt: Option<&'a str>,
    /// A GRES that would be about GPUs in lower case.
    pub(crate) in_other_case: Option<&'a str>,
    /// GRES that are not about GPUs.
    pub(crate) others: Vec<&'a str>,
}

/// One request for part of a GPU.
pub(crate) struct Part<'a> {
    pub(crate) place: CountedPer,
    pub(crate) raw: &'a str,
    pub(crate) gres: Gres<'a>,
    /// The type and the size of `gpu:l40s.4`; `None` for shards and units of mps.
    pub(crate) slice: Option<(&'a str, Size<'a>)>,
}

/// How large a slice is, as it was typed.
#[derive(Clone, Copy)]
pub(crate) enum Size<'a> {
    /// `.4`: a quarter. All digits.
    Part(&'a str),
    /// `.12g`: at least so much memory.
    Memory(Bytes),
}

impl<'a> Wanted<'a> {
    pub(crate) fn read(request: &'a Request, policy: Option<&Policy>) -> Self {
        let mut wanted = Self {
            parts: Vec::new(),
            malformed: None,
            wholes: Vec::new(),
            misspelt: None,
            in_other_case: None,
            others: Vec::new(),
        };
        let has_mps = policy.is_some_and(|policy| policy.mps().is_some());
        for (place, text) in request.tres() {
            for (raw, item) in items(text) {
                match item {
                    Item::Other(raw) if has_mps => match mps(raw) {
                        Item::Malformed(raw) => wanted.malformed = Some(raw),
                        item => wanted.add(policy, place, raw, item),
                    },
                    item => wanted.add(policy, place, raw, item),
                }
            }
        }
        wanted
    }

    fn add(&mut self, policy: Option<&Policy>, place: CountedPer, raw: &'a str, item: Item<'a>) {
        match item {
            Item::Other(raw) if is_in_other_case(raw) => self.in_other_case = Some(raw),
            Item::Other(raw) if policy.is_some_and(|policy| is_nameless_slice(raw, policy)) => {
                self.malformed = Some(raw);
            }
            Item::Other(raw) => self.others.push(raw),
            Item::Malformed(raw) if may_be_a_part(raw, policy) => self.malformed = Some(raw),
            Item::Malformed(raw) => self.misspelt = Some(raw),
            // Slurm gives nothing for it.
            Item::Gpu(gres) if gres.count() == 0 => {}
            Item::Gpu(gres) => {
                let is_plain_type =
                    |kind: &&str| policy.is_some_and(|policy| policy.is_plain_type(kind));
                let slice = gres
                    .kind
                    .filter(|kind| gres.name == Name::Gpu && !is_plain_type(kind))
                    .and_then(|kind| split_slice(kind, policy));
                let is_near = |kind: &str| {
                    gres.name == Name::Gpu
                        && policy.is_some_and(|policy| is_near_slice(kind, policy))
                };
                let named = gres.kind.filter(|kind| !is_plain_type(kind));
                if named.is_some_and(|kind| is_fraction(kind, policy))
                    || slice.is_none() && gres.kind.is_some_and(is_near)
                {
                    self.malformed = Some(raw);
                } else if slice.is_some() || gres.name != Name::Gpu {
                    self.parts.push(Part {
                        place,
                        raw,
                        gres,
                        slice,
                    });
                } else {
                    self.wholes.push((place, gres));
                }
            }
        }
    }

    pub(crate) fn is_ours(&self) -> bool {
        !self.parts.is_empty() || self.malformed.is_some()
    }

    /// The first part that it asks for.
    pub(crate) fn first(&self) -> Option<&Gres<'a>> {
        let wholes = self.wholes.iter().map(|(_, gres)| gres);
        self.parts
            .iter()
            .map(|part| &part.gres)
            .chain(wholes)
            .next()
    }

    /// True if whole GPUs are asked for by more than one type, or by a type and without one.
    pub(crate) fn names_several_types(&self) -> bool {
        let mut kinds = self.wholes.iter().map(|(_, gres)| gres.kind);
        let first = kinds.next();
        kinds.any(|kind| Some(kind) != first)
    }

    /// True if GPUs are asked for without a type, more than one of them.
    pub(crate) fn has_untyped_wholes(&self) -> bool {
        self.wholes.iter().any(|(place, gres)| {
            let is_one = gres.count() == 1 && matches!(place, CountedPer::Node | CountedPer::Job);
            gres.kind.is_none() && !is_one
        })
    }

    pub(crate) fn has_wholes(&self) -> bool {
        !self.wholes.is_empty() || self.misspelt.is_some()
    }
}

/// `l40s.4` is a slice by its all-digit suffix, and `l40s.12g` by its type, in any case; `h100_1g.10gb` is none.
fn split_slice<'a>(kind: &'a str, policy: Option<&Policy>) -> Option<(&'a str, Size<'a>)> {
    let by_memory = || {
        let mut splits = splits(kind);
        splits.find_map(|(name, size)| {
            let is_it = |gpu: &GpuType| gpu.name().eq_ignore_ascii_case(name);
            let is_size = has_unit(size) && policy.is_some_and(|it| it.gpus().any(is_it));
            Some((
                name,
                Size::Memory(Bytes::parse(size).ok().filter(|_| is_size)?),
            ))
        })
    };
    let (name, size) = kind.rsplit_once('.')?;
    let is_part = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_digit());
    let part = (is_part && !name.is_empty()).then_some((name, Size::Part(size)));
    part.or_else(by_memory)
}

/// What stands before and behind each dot.
fn splits(word: &str) -> impl Iterator<Item = (&str, &str)> {
    let dots = word.match_indices('.');
    dots.map(|(at, _)| (&word[..at], &word[at + 1..]))
}

/// Whether a size ends as one of a GPU's memory does: `12g`, `12000MiB`.
fn has_unit(size: &str) -> bool {
    let digits = size.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = size[digits.len()..].to_ascii_lowercase();
    let is_one = |unit| matches!(unit, "" | "b" | "ib");
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    is_number(whole) && is_number(part) && unit.strip_prefix(['g', 'm']).is_some_and(is_one)
}

/// True if the name is `gpu` or `shard` in upper case: Slurm would only say that it does not know the GRES.
fn is_in_other_case(raw: &str) -> bool {
    let name = name_of(raw);
    let mut ours = [Name::Gpu, Name::Shard].iter();
    ours.any(|own| own.as_str().eq_ignore_ascii_case(name))
}

/// True for a slice without `gpu:` before it: `l40s.4:1`, `gpu.4:1`.
fn is_nameless_slice(raw: &str, policy: &Policy) -> bool {
    split_slice(name_of(raw), Some(policy))
        .is_some_and(|(name, _)| name == Name::Gpu.as_str() || policy.gpu(name).is_some())
}

/// True for a type that only a slipped finger tells from a slice of a known one: `l40s.4.`, `l40s.4x`, `l40s.4;1`, or a word:
/// `l40s.quarter`. Slurm would only say that no node has it.
fn is_near_slice(kind: &str, policy: &Policy) -> bool {
    if policy.is_plain_type(kind) || policy.is_reservable(kind) {
        return false;
    }
    let is_word = |size: &str| size.bytes().all(|it| it.is_ascii_alphabetic());
    splits(kind).any(|(name, size)| {
        if is_word(size) {
            return size_meant(size).is_some() && policy.gpu(name).is_some();
        }
        let digits = size.bytes().take_while(u8::is_ascii_digit).count();
        let rest = &size[digits..];
        let is_slip = match rest.as_bytes() {
            // `0g`: of no size.
            _ if has_unit(size) => true,
            // Part of the names of types.
            [b't' | b'T'] | [] => false,
            [letter] if letter.is_ascii_alphabetic() => true,
            [mark, ..] => !mark.is_ascii_alphanumeric(),
        };
        digits > 0 && is_slip && policy.gpu(name).is_some()
    })
}

/// True for a number in the place of a type, or behind one and a dot: `0.25`, `25%`, `l40s.0.5`.
fn is_fraction(kind: &str, policy: Option<&Policy>) -> bool {
    let is_number = |text: &str| match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().is_ok(),
        None => text.starts_with("0.") && text.parse::<f64>().is_ok(),
    };
    let is_shared = |name| policy.is_some_and(|policy| policy.gpu(name).is_some());
    is_number(kind) || splits(kind).any(|(name, size)| is_number(size) && is_shared(name))
}

/// The name of a GRES in an item.
pub(crate) fn name_of(raw: &str) -> &str {
    typed(raw).split([':', '=']).next().unwrap_or_default()
}

/// True if an unreadable item may have been meant as part of a GPU.
fn may_be_a_part(raw: &str, policy: Option<&Policy>) -> bool {
    raw.contains("shard")
        || raw.match_indices("gres").any(|(at, _)| at > 0)
        || raw
            .split([':', '='])
            .any(|word| split_slice(word, policy).is_some() || is_size(word) || is_part(word))
        || typed(raw).contains('/')
}

/// True for a part as people write it elsewhere, that is no number: `25%`, `half`.
fn is_part(word: &str) -> bool {
    let is_number = word.bytes().all(|it| it.is_ascii_digit());
    !is_number && size_meant(word).is_some()
}

/// True for a size without a type, `.4`, and for one in digits of another script.
fn is_size(word: &str) -> bool {
    word.rsplit_once('.')
        .is_some_and(|(_, size)| !size.is_empty() && size.chars().all(char::is_numeric))
}

/// An item without what Slurm puts before it.
pub(crate) fn typed(raw: &str) -> &str {
    Prefix::split(raw).1
}
