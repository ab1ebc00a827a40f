//! Ends what got past the library, when the administrator says so (policy.toml, `[monitor]`), and counts what it would have ended
//! otherwise.
//!
//! [`observation`] has what one measurement shows, as plain values; [`snapshot`] makes it, and [`evidence`] says whether the
//! node enforces. [`rules`] decides from one observation after the other what is to be ended, [`escalation`] how: a signal that
//! asks, one that does not, the whole job. [`target`] sends signals: by a file of the process, which no other process can come
//! to be. [`job_processes`] ends all of a job, [`holders`] finds who may keep memory that is in no process's figure, [`tally`]
//! counts, [`message`] tells users.

#![forbid(unsafe_code)]

pub mod enforcer;
pub mod escalation;
pub mod evidence;
pub mod holders;
pub mod job_processes;
pub mod message;
pub mod observation;
pub mod rules;
pub mod snapshot;
pub mod tally;
pub mod target;

#[cfg(test)]
mod cost_tests;
