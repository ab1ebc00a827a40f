//! The part of a request that is about GPUs, also in forms that Slurm would not accept.

use crate::config::policy::Policy;
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
    /// `(l40s, 4)` for `gpu:l40s.4`; `None` for shards and units of mps.
    pub(crate) slice: Option<(&'a str, &'a str)>,
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
            Item::Malformed(raw) if may_be_a_part(raw) => self.malformed = Some(raw),
            Item::Malformed(raw) => self.misspelt = Some(raw),
            // Slurm gives nothing for it.
            Item::Gpu(gres) if gres.count() == 0 => {}
            Item::Gpu(gres) => {
                let is_plain_type =
                    |kind: &&str| policy.is_some_and(|policy| policy.is_plain_type(kind));
                let slice = gres
                    .kind
                    .filter(|kind| gres.name == Name::Gpu && !is_plain_type(kind))
                    .and_then(split_slice);
                let is_near = |kind: &str| {
                    gres.name == Name::Gpu
                        && policy.is_some_and(|policy| is_near_slice(kind, policy))
                };
                if slice.is_none() && gres.kind.is_some_and(is_near) {
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

/// `l40s.4` is a slice by its all-digit suffix; `h100_1g.10gb` is not.
fn split_slice(kind: &str) -> Option<(&str, &str)> {
    let (name, size) = kind.rsplit_once('.')?;
    let digits = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_digit());
    (digits && !name.is_empty()).then_some((name, size))
}

/// True if the name is `gpu` or `shard` in upper case: Slurm would only say that it does not know the GRES.
fn is_in_other_case(raw: &str) -> bool {
    let name = name_of(raw);
    let mut ours = [Name::Gpu, Name::Shard].iter();
    ours.any(|own| own.as_str().eq_ignore_ascii_case(name))
}

/// True for a slice without `gpu:` before it: `l40s.4:1`, `gpu.4:1`.
fn is_nameless_slice(raw: &str, policy: &Policy) -> bool {
    split_slice(name_of(raw))
        .is_some_and(|(name, _)| name == Name::Gpu.as_str() || policy.gpu(name).is_some())
}

/// True for a type that only a slipped finger tells from a slice of a known one: `l40s.4.`, `l40s.4x`, `l40s.4;1`. Slurm
/// would only say that no node has it.
fn is_near_slice(kind: &str, policy: &Policy) -> bool {
    if policy.is_plain_type(kind) || policy.is_reservable(kind) {
        return false;
    }
    kind.match_indices('.').any(|(at, _)| {
        let (name, size) = (&kind[..at], &kind[at + 1..]);
        let digits = size.bytes().take_while(u8::is_ascii_digit).count();
        let rest = &size[digits..];
        // `40g` is a size of memory, and part of the names of many types.
        let is_slip = match rest.as_bytes() {
            [letter] if letter.is_ascii_alphabetic() => !b"gGmMtT".contains(letter),
            [mark, ..] => !mark.is_ascii_alphanumeric(),
            [] => false,
        };
        digits > 0 && is_slip && policy.gpu(name).is_some()
    })
}

/// The name of a GRES in an item.
pub(crate) fn name_of(raw: &str) -> &str {
    typed(raw).split([':', '=']).next().unwrap_or_default()
}

/// True if an unreadable item may have been meant as part of a GPU.
fn may_be_a_part(raw: &str) -> bool {
    raw.contains("shard")
        || raw.match_indices("gres").any(|(at, _)| at > 0)
        || raw
            .split([':', '='])
            .any(|word| split_slice(word).is_some() || is_size(word))
        || typed(raw).contains('/')
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
