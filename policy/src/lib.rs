//! Everything softmig decides about a request for part of a GPU.
//!
//! One crate parses requests, decides on them and computes limits. Submission, the node's prolog, the hook in each
//! process and the `softmig` command all call it, so the limits shown at submission, written on the node and enforced
//! in the job are the same numbers:
//!
//! ```
//! use softmig_policy::{Context, Policy, Request, Verdict, decide};
//!
//! let policy = Policy::parse("[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n").unwrap();
//! let request = Request { tres_per_node: Some("gres/gpu:l40s.4:1".into()), ..Request::default() };
//! let Verdict::Granted(grant) = decide(&policy, &request, &Context::default()) else { panic!() };
//! assert_eq!(grant.request.tres_per_node.as_deref(), Some("gres/shard:l40s:1"));
//! assert_eq!(grant.limits.memory_mib(), 11366);
//! ```
//!
//! From request to limit: [`gres`] reads the text, [`policy`] knows what an administrator wrote and [`catalogue`] the GPUs,
//! [`decide()`] applies the rules and makes [`limits`], which the [`tag`] carries to the node and the [`conf`] into the job.
//!
//! Without the `std` feature only sizes, limits, tag, conf and the node's own settings ([`node_conf`]) remain: they need
//! no allocator, for the hook.

#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

pub mod cgroup;
pub mod conf;
pub mod environment;
pub mod limits;
pub mod node_conf;
pub mod size;
mod split;
pub mod tag;

#[cfg(feature = "std")]
pub mod allocation;
#[cfg(feature = "std")]
mod amount;
#[cfg(feature = "std")]
mod asked;
#[cfg(feature = "std")]
mod asker;
#[cfg(feature = "std")]
pub mod catalogue;
#[cfg(feature = "std")]
mod ceilings;
#[cfg(feature = "std")]
pub mod classes;
#[cfg(feature = "std")]
pub mod clock;
#[cfg(feature = "std")]
pub mod configured;
#[cfg(feature = "std")]
mod convert;
#[cfg(feature = "std")]
mod decide;
#[cfg(feature = "std")]
mod entitlement;
#[cfg(feature = "std")]
mod error;
#[cfg(feature = "std")]
mod file;
#[cfg(feature = "std")]
pub mod gates;
#[cfg(feature = "std")]
pub mod gres;
#[cfg(feature = "std")]
mod host;
#[cfg(feature = "std")]
pub mod hostlist;
#[cfg(feature = "std")]
pub mod legacy;
#[cfg(feature = "std")]
mod messages;
#[cfg(feature = "std")]
mod names;
#[cfg(feature = "std")]
pub mod node_policy;
#[cfg(feature = "std")]
mod node_words;
#[cfg(feature = "std")]
pub mod nodes;
#[cfg(feature = "std")]
mod offers;
#[cfg(feature = "std")]
pub mod options;
#[cfg(feature = "std")]
pub mod policy;
#[cfg(feature = "std")]
pub mod quota;
#[cfg(feature = "std")]
mod refusal;
#[cfg(feature = "std")]
mod request;
#[cfg(feature = "std")]
pub mod reservable;
#[cfg(feature = "std")]
pub mod routes;
#[cfg(feature = "std")]
pub mod slurm_conf;
#[cfg(feature = "std")]
mod wall_time;
#[cfg(feature = "std")]
mod wanted;

#[cfg(feature = "std")]
pub use asker::{Asker, Fact};
#[cfg(feature = "std")]
pub use clock::now;
#[cfg(feature = "std")]
pub use decide::{Context, Grant, Verdict, decide, decide_without_policy};
#[cfg(feature = "std")]
pub use entitlement::Terms;
#[cfg(feature = "std")]
pub use error::PolicyError;
pub use limits::Limits;
#[cfg(feature = "std")]
pub use node_policy::NodePolicy;
#[cfg(feature = "std")]
pub use policy::Policy;
#[cfg(feature = "std")]
pub use refusal::{Code, Refusal};
#[cfg(feature = "std")]
pub use request::Request;
pub use tag::Tag;
#[cfg(feature = "std")]
pub use wall_time::WallTime;
