//! The policy: which GPUs there are, how they may be cut, and what else an administrator decides in policy.toml.

use crate::limits::{Limits, LimitsError, MAX_SHARDS_PER_GPU, Mode, Share, TypeName};
use crate::messages::{self, Messages};
use crate::refusal::Code;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// A policy that was read and found consistent.
#[derive(Clone, Debug)]
pub struct Policy {
    gpus: BTreeMap<String, GpuType>,
    plain_types: Vec<String>,
    messages: Messages,
    /// What becomes of shard requests that are no slice.
    pub raw_shards: RawShards,
    /// Where the tag travels.
    pub tag_field: TagField,
    /// What the prolog does for a job of which it can learn nothing.
    pub on_unknown: OnUnknown,
    /// A file that prolog and epilog log to besides the system's log.
    pub node_log_file: Option<String>,
}

/// What becomes of a request for shards that is no slice: untyped, or of a count that is not offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RawShards {
    /// It is refused.
    #[default]
    Refuse,
    /// It is granted, up to one GPU.
    Allow,
}

/// The field of the job record that carries the tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TagField {
    /// `extra` where it reaches the prolog and is free text, else `comment`.
    #[default]
    Auto,
    /// `extra`.
    Extra,
    /// `comment`.
    Comment,
}

/// What the prolog does for a job without a tag when slurmctld gives no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnUnknown {
    /// The job gets the smallest slice of its GPU's type.
    #[default]
    Smallest,
    /// The prolog fails, and Slurm drains the node.
    Drain,
}

/// A type of GPU that may be cut.
#[derive(Clone, Debug)]
pub struct GpuType {
    name: TypeName,
    usable_mib: u64,
    shards: u32,
    slices: Vec<u32>,
    mode: Mode,
}

impl GpuType {
    /// The type's name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The shards of one GPU.
    pub fn shards_per_gpu(&self) -> u32 {
        self.shards
    }

    /// The slices on offer, largest first: 2 is half a GPU.
    pub fn slices(&self) -> &[u32] {
        &self.slices
    }

    /// The limits of a slice that is on offer.
    pub fn slice(&self, size: u32) -> Option<Limits> {
        if !self.slices.contains(&size) {
            return None;
        }
        self.limits(self.shards / size).ok()
    }

    /// The limits of so many shards, on offer or not.
    pub fn limits(&self, shards: u32) -> Result<Limits, LimitsError> {
        let share = Share::new(shards, self.shards)?;
        Limits::new(self.name, share, share.of(self.usable_mib), self.mode)
    }

    /// So many shards as `--gres` takes them.
    pub(crate) fn as_option(&self, shards: u32) -> String {
        match self.slice_of_shards(u64::from(shards)) {
            Some(size) => format!("--gres=gpu:{}.{size}:1", self.name()),
            None => format!("--gres=shard:{}:{shards}", self.name()),
        }
    }

    /// The slice that has exactly so many shards.
    pub fn slice_of_shards(&self, shards: u64) -> Option<u32> {
        self.slices
            .iter()
            .copied()
            .find(|size| u64::from(self.shards / size) == shards)
    }
}

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

impl Policy {
    /// Where every part of softmig looks for it.
    pub const PATH: &str = "/etc/softmig/policy.toml";

    /// Reads a policy.toml.
    ///
    /// ```
    /// use softmig_policy::Policy;
    /// let error = Policy::parse("[gpu.l40s]\nmemory_mb = 46068\n").unwrap_err();
    /// assert_eq!(error.to_string(), "line 2: unknown key memory_mb; did you mean memory_mib?");
    /// ```
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let file: File = toml::from_str(text).map_err(|error| reading_error(text, &error))?;
        let mut gpus = BTreeMap::new();
        for (key, entry) in file.gpu {
            let line = line_of(text, &entry.span());
            let gpu = entry
                .into_inner()
                .check(&key)
                .map_err(|message| PolicyError {
                    line,
                    message: format!("[gpu.{key}]: {message}"),
                })?;
            gpus.insert(key, gpu);
        }
        if let Some(log_file) = file
            .node
            .log_file
            .as_deref()
            .filter(|path| !path.starts_with('/'))
        {
            return Err(PolicyError {
                line: None,
                message: format!("[node]: log_file = \"{log_file}\" is not an absolute path"),
            });
        }
        Ok(Self {
            gpus,
            messages: Messages::check(file.messages, text)?,
            plain_types: file.plain_types,
            raw_shards: file.raw_shards,
            tag_field: file.tag.field,
            on_unknown: file.node.on_unknown,
            node_log_file: file.node.log_file,
        })
    }

    /// The type of that exact name; Slurm's types are case sensitive.
    pub fn gpu(&self, name: &str) -> Option<&GpuType> {
        self.gpus.get(name)
    }

    /// The site's own line to a refusal.
    pub fn message(&self, code: Code) -> Option<&str> {
        self.messages.of(code)
    }

    /// All types, by name.
    pub fn gpus(&self) -> impl Iterator<Item = &GpuType> {
        self.gpus.values()
    }

    /// Whether a type that ends like a slice is listed as a plain type.
    pub fn is_plain_type(&self, name: &str) -> bool {
        self.gpus.contains_key(name) || self.plain_types.iter().any(|plain| plain == name)
    }

    /// The known type that a misspelt one most likely means.
    pub fn nearest_type(&self, name: &str) -> Option<&GpuType> {
        let same_letters = self
            .gpus()
            .find(|gpu| gpu.name().eq_ignore_ascii_case(name));
        same_letters.or_else(|| {
            let names = self.gpus.keys().map(String::as_str);
            self.gpu(nearest(name, names)?)
        })
    }
}

/// policy.toml as it is written. Every key is described in conf/policy.toml.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    raw_shards: RawShards,
    #[serde(default)]
    plain_types: Vec<String>,
    #[serde(default)]
    tag: TagTable,
    #[serde(default)]
    node: NodeTable,
    #[serde(default)]
    messages: messages::Table,
    #[serde(default)]
    gpu: BTreeMap<String, toml::Spanned<GpuTable>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TagTable {
    #[serde(default)]
    field: TagField,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeTable {
    #[serde(default)]
    on_unknown: OnUnknown,
    log_file: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuTable {
    memory_mib: u32,
    reserved_mib: u32,
    shards: u32,
    slices: Option<Vec<u32>>,
    #[serde(default)]
    mode: Mode,
}

impl GpuTable {
    fn check(self, key: &str) -> Result<GpuType, String> {
        let name = TypeName::new(key).map_err(|_| {
            "a type has letters, digits, '-', '_' and '.', at most 63, and is no bare number"
                .to_string()
        })?;
        if self.reserved_mib >= self.memory_mib {
            return Err(format!(
                "reserved_mib = {} leaves nothing of memory_mib = {}",
                self.reserved_mib, self.memory_mib
            ));
        }
        if !(1..=MAX_SHARDS_PER_GPU).contains(&self.shards) {
            return Err(format!(
                "shards = {} is not from 1 to {MAX_SHARDS_PER_GPU} (a shard is at least 1 % of a GPU)",
                self.shards
            ));
        }
        let usable_mib = self.memory_mib - self.reserved_mib;
        if usable_mib < self.shards {
            return Err(format!(
                "{usable_mib} MiB in {} shards leaves less than 1 MiB for one",
                self.shards
            ));
        }
        Ok(GpuType {
            name,
            usable_mib: u64::from(usable_mib),
            slices: check_slices(self.slices, self.shards)?,
            shards: self.shards,
            mode: self.mode,
        })
    }
}

/// The slices on offer, largest first; all that the shards allow when the table does not say.
fn check_slices(slices: Option<Vec<u32>>, shards: u32) -> Result<Vec<u32>, String> {
    let divisors = (2..=shards).filter(|size| shards.is_multiple_of(*size));
    let Some(mut slices) = slices else {
        return Ok(divisors.collect());
    };
    if let Some(wrong) = slices
        .iter()
        .find(|&&size| size < 2 || !shards.is_multiple_of(size))
    {
        let possible: Vec<String> = divisors.map(|size| size.to_string()).collect();
        if possible.is_empty() {
            return Err("slices is set, but one shard cannot be cut; leave slices out".to_string());
        }
        return Err(format!(
            "slices has {wrong}, which does not divide {shards} shards; possible are {}",
            possible.join(", ")
        ));
    }
    slices.sort_unstable();
    slices.dedup();
    Ok(slices)
}

fn reading_error(text: &str, error: &toml::de::Error) -> PolicyError {
    PolicyError {
        line: error.span().and_then(|span| line_of(text, &span)),
        message: with_nearest_key(error.message()),
    }
}

/// serde says "unknown field `a`, expected one of `b`, `c`"; say which of them was most likely meant.
fn with_nearest_key(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field `") else {
        return message.to_string();
    };
    let mut quoted = rest.split('`').step_by(2);
    let unknown = quoted.next().unwrap_or_default();
    let known: Vec<&str> = quoted.filter(|key| !key.is_empty()).collect();
    match nearest(unknown, known.iter().copied()) {
        Some(key) => format!("unknown key {unknown}; did you mean {key}?"),
        None => format!("unknown key {unknown}; known here are {}", known.join(", ")),
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
    use super::*;

    fn error(text: &str) -> String {
        Policy::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_policy_offers_nothing_and_lifts_nothing() {
        let policy = Policy::parse("").unwrap();
        assert_eq!(policy.gpus().count(), 0);
        assert_eq!(policy.raw_shards, RawShards::Refuse);
        assert_eq!(policy.on_unknown, OnUnknown::Smallest);
    }

    #[test]
    fn every_divisor_is_on_offer_unless_the_table_says_otherwise() {
        let policy = Policy::parse(
            "[gpu.a]\nmemory_mib = 100\nreserved_mib = 0\nshards = 12\n\
             [gpu.b]\nmemory_mib = 100\nreserved_mib = 0\nshards = 12\nslices = [6, 2, 2]\n",
        )
        .unwrap();
        assert_eq!(policy.gpu("a").unwrap().slices(), [2, 3, 4, 6, 12]);
        assert_eq!(policy.gpu("b").unwrap().slices(), [2, 6]);
        assert_eq!(policy.gpu("b").unwrap().slice(4), None);
        assert_eq!(policy.gpu("b").unwrap().slice_of_shards(2), Some(6));
        assert_eq!(policy.gpu("b").unwrap().slice_of_shards(3), None);
    }

    #[test]
    fn a_wrong_key_is_named_with_its_line_and_the_nearest_right_one() {
        assert_eq!(
            error("\n[gpu.l40s]\nmemory_mib = 1\nreserved_mb = 1\n"),
            "line 4: unknown key reserved_mb; did you mean reserved_mib?"
        );
        assert_eq!(
            error("raw_shard = \"allow\"\n"),
            "line 1: unknown key raw_shard; did you mean raw_shards?"
        );
        assert_eq!(
            error("[nodes]\n"),
            "line 1: unknown key nodes; did you mean node?"
        );
        assert!(
            error("zzz = 1\n").starts_with("line 1: unknown key zzz; known here are raw_shards,")
        );
    }

    #[test]
    fn a_missing_or_senseless_figure_is_an_error() {
        let gpu = |body: &str| error(&format!("# first line\n[gpu.x]\n{body}"));
        for (body, expected) in [
            (
                "memory_mib = 1\nreserved_mib = 0\n",
                "line 2: missing field `shards`",
            ),
            (
                "memory_mib = 100\nreserved_mib = 100\nshards = 4\n",
                "line 2: [gpu.x]: reserved_mib = 100 leaves nothing of memory_mib = 100",
            ),
            (
                "memory_mib = 100\nreserved_mib = 0\nshards = 0\n",
                "line 2: [gpu.x]: shards = 0 is not from 1 to 100 (a shard is at least 1 % of a GPU)",
            ),
            (
                "memory_mib = 100\nreserved_mib = 97\nshards = 4\n",
                "line 2: [gpu.x]: 3 MiB in 4 shards leaves less than 1 MiB for one",
            ),
            (
                "memory_mib = 100\nreserved_mib = 0\nshards = 8\nslices = [3]\n",
                "line 2: [gpu.x]: slices has 3, which does not divide 8 shards; possible are 2, 4, 8",
            ),
        ] {
            assert_eq!(gpu(body), expected);
        }
        assert!(gpu("memory_mib = -1\n").contains("line 3: invalid value"));
        assert!(
            gpu("mode = \"fair\"\n").contains("unknown variant `fair`, expected `hard` or `soft`")
        );
    }
}
