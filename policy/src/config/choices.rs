//! Keys of policy.toml whose value is one of certain words.

use serde::Deserialize;

/// How to treat a request for shards that is not a slice: without a type, or of a count that is not on offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RawShards {
    /// It is refused.
    #[default]
    Refuse,
    /// It is granted, up to one GPU.
    Allow,
}

/// Which GPU of a node fills first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// The first that has room, so that others stay free for whole-GPU jobs.
    #[default]
    Pack,
    /// The least loaded, so that every GPU is used.
    Spread,
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
