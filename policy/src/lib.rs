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
//! There are four rooms, and a file imports only from its own room and from those above it in this list; `cargo xtask ci`
//! checks it:
//!
//! - [`node`]: limits, the tag that carries them to the node, the conf that carries them into the job, and the node's own
//!   settings. For the hook it needs neither std nor an allocator, and it is all that remains without the `std` feature.
//! - [`slurm`]: Slurm's language, such as requests and lists of GRES and of nodes. It knows no policy.
//! - [`config`]: what policy.toml says, and whether it may say so.
//! - `decision`: from a request and a policy to a verdict. [`decide()`] is its door.

#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

pub mod node;

#[cfg(feature = "std")]
pub mod config;
#[cfg(feature = "std")]
mod decision;
#[cfg(feature = "std")]
pub mod slurm;

pub use node::limits::Limits;
pub use node::tag::Tag;
#[cfg(feature = "std")]
pub use {
    config::clock::now,
    config::error::PolicyError,
    config::node_policy::NodePolicy,
    config::policy::Policy,
    config::refusal_code::Code,
    decision::decide::{decide, decide_without_policy},
    decision::gate_check::gate_before,
    decision::refusal::Refusal,
    decision::step::one_gpu_as_slice,
    decision::submitter::{MaybeKnown, Submitter},
    decision::typed::decide_typed,
    decision::verdict::{Context, Grant, Terms, Verdict},
    decision::wording::may_hold,
    slurm::job_request::Request,
    slurm::time_limit::WallTime,
};
