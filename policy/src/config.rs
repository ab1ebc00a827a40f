//! policy.toml: what it says, and whether it may say so.

pub(crate) mod amount;
pub mod catalogue;
pub mod classes;
pub mod clock;
pub(crate) mod error;
pub(crate) mod file;
pub mod gates;
pub mod legacy;
pub(crate) mod messages;
pub(crate) mod names;
pub mod node_policy;
pub(crate) mod node_words;
pub mod nodes;
pub mod policy;
pub mod quota;
pub mod reservable;
pub mod routes;
