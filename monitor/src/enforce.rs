//! Ends what got past the library, when the administrator says so (policy.toml, `[monitor]`), and counts what it would have ended
//! otherwise.
//!
//! [`look`] has what one measurement shows, as plain values; [`scene`] makes it, and [`grounds`] says whether the node enforces. [`rules`] decides from one look after the other
//! what is to be ended, [`ladder`] how: a signal that asks, one that does not, the whole job. [`target`] sends signals: by a
//! file of the process, which no other process can come to be. [`group`] ends all of a job, [`holders`] finds who may keep memory
//! that is in no process's figure, [`tally`] counts, [`message`] tells users.

#![forbid(unsafe_code)]

pub mod enforcer;
pub mod grounds;
pub mod group;
pub mod holders;
pub mod ladder;
pub mod look;
pub mod message;
pub mod rules;
pub mod scene;
pub mod tally;
pub mod target;

#[cfg(test)]
mod cost_tests;
