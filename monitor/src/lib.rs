//! The node's root daemon: it sees to it that each job gets its share of a GPU's time, and measures each job from outside.
//!
//! The rooms, each of which uses only those before it:
//!
//! - [`jobs`]: which jobs there are, and whose a process is.
//! - [`schedule`]: who gets a GPU, and when. Decisions alone.
//! - [`measure`]: what each job has on the node's GPUs.
//! - [`arbiter`]: speaks with the processes of jobs, and steers GPUs as [`schedule`] decides.
//! - [`status`] shows both, [`watch`] measures again and again and tells of what it finds, and [`notify`] tells systemd.

pub mod arbiter;
pub mod jobs;
pub mod measure;
pub mod notify;
pub mod schedule;
pub mod status;
pub mod watch;
