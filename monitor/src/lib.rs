//! The node's daemon, which runs as root: it gives each job its share of a GPU's time, and measures each job from outside.
//!
//! The rooms, each of which uses only those before it:
//!
//! - [`Cli`]: the options.
//! - [`jobs`]: which jobs there are, and whose a process is.
//! - [`schedule`]: decides which job gets a GPU, and when.
//! - [`gate`]: which processes may open GPUs.
//! - [`packs`]: MPS servers for jobs that run at the same time, and what must outlive their processes.
//! - [`arbiter`]: speaks with the processes of jobs, and steers GPUs as [`schedule`] decides.
//! - [`measure`]: what each job has on the node's GPUs.
//! - [`enforce`]: ends what got past the library, when the administrator says so.
//! - [`usage`]: adds up what each job has and had of GPUs, and gives it out.
//! - [`notify`]: tells systemd.
//! - [`watch`]: measures again and again, and logs what it finds.

pub mod arbiter;
mod cli;
#[cfg(test)]
mod crowd_tests;
pub mod enforce;
pub mod gate;
pub mod jobs;
pub mod measure;
pub mod notify;
pub mod packs;
pub mod schedule;
pub mod usage;
pub mod watch;

pub use cli::Cli;
