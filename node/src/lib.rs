//! The part that the programs on a node share: how a job is read, decided on, recorded and removed again.
//!
//! Slurm runs the prolog as root before a job's first process, and the epilog after its last. In between, the files
//! below `/var/run/softmig` say what the job may take of its GPUs:
//!
//! ```text
//! environment --job--> decide --allowance--> JobFiles --files--> hook, monitor
//!                        ^                       |
//!   tag, else slurmctld, |                     clear  <-- epilog
//!   else the policy -----+
//! ```
//!
//! [`job`] reads what Slurm says, [`gpu`] what the driver says, [`allowance`] decides by both, [`job_files`] puts
//! it on disk and [`clear`] takes it away. [`node`] says where files are, [`dir`] the one way in which they are opened,
//! [`report`] the logs, [`events`] what happened, [`usage_file`] and [`usage_socket`] what jobs used, [`gate`] which jobs have the device gate. [`this_process`] and [`whole_node`] say where this process is. [`slurmctld`] and [`sacct`] ask Slurm. [`proofs`] keeps what `softmig check --node` measured of the GPUs; the monitor reads it.
//!
//! Slurm drains a node whose prolog fails, so failing is for one case: a slice job would otherwise start beside
//! a limit that is missing or an older job's. Nothing that a user can type leads there, nor files that leave no room: such
//! a job starts without its limits, and gets no GPU.

#![forbid(unsafe_code)]

pub mod allowance;
pub mod clear;
pub mod command;
pub mod dir;
pub mod events;
pub mod folder;
pub mod gate;
pub mod gpu;
pub mod job;
pub mod job_files;
mod lock;
pub mod node;
pub mod packs;
pub mod proofs;
mod queue;
pub mod report;
mod run_folder;
pub mod sacct;
pub mod slurmctld;
pub mod this_process;
pub mod usage_file;
pub mod usage_socket;
pub mod whole_node;
