//! The identity of this process, which is its job or its user, and the limits that follow from it.
//!
//! - [`host`]: what [`softmig_policy::node::identity`] asks to find the job.
//! - [`gate`]: lets a call through or not.
//! - [`monitor`]: asks the monitor.
//! - [`admission`]: has it let this process through the device gate.
//! - [`pack`]: makes this process one of its job's pack.
//! - [`neighbours`]: the limits that hold outside jobs; [`neighbour_search`] finds them.
//! - [`mod@share`]: which share of a GPU's time.
//! - [`message`]: all that the library can say; [`log`] says it in the job's log.

pub(crate) mod admission;
pub(crate) mod gate;
pub(crate) mod host;
pub(crate) mod log;
pub(crate) mod message;
pub(crate) mod monitor;
pub(crate) mod neighbour_search;
pub(crate) mod neighbours;
pub(crate) mod pack;
pub(crate) mod share;
