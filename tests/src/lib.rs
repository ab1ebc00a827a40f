//! A real Slurm cluster on loopback, and the behaviour tests that run on it.
//!
//! ```no_run
//! use softmig_tests::{Cluster, Slurm};
//!
//! # fn main() -> anyhow::Result<()> {
//! let cluster = Cluster::builder(Slurm::V24_11).nodes(2).start()?;
//! let job = cluster.user("alice").sbatch(&["--gres=shard:l40s:1"], "sleep 60")?;
//! cluster.wait_job(job, "RUNNING")?;
//! println!("{:?}", cluster.node(0).list("/dev")?);
//! # Ok(())
//! # }
//! ```
//!
//! One picture, from the outside in:
//!
//! - the test process holds a [`Cluster`], a [`Machine`] with Slurm's daemons started in it;
//! - [`supervisor`], a process of its own, notices when the test process is gone and leaves nothing behind;
//! - [`init`] is process 1 of the machine: it lays a throw-away layer over a Debian root and moves in;
//! - one [`holder`] process for each node holds the mounts that make it a node of its own.

#[cfg(not(target_os = "linux"))]
compile_error!("the test cluster is made of Linux namespaces");

pub mod accounting;
pub mod builder;
pub mod cluster;
pub mod command;
pub mod config;
mod crashes;
pub mod daemons;
pub mod documents;
pub mod driver;
pub mod each_slurm;
pub mod gpus;
pub mod holder;
pub mod init;
pub mod jobs;
pub mod machine;
pub mod mounts;
pub mod node;
pub mod place;
pub mod programs;
pub mod prometheus;
pub mod reportseff;
pub mod requests;
pub mod rest;
pub mod runtimes;
pub mod site;
pub mod slurm;
pub mod softmig;
pub mod spec;
pub mod strace;
pub mod supervisor;
pub mod uml;
pub mod units;
pub mod user;

pub use accounting::Accounting;
pub use builder::Builder;
pub use cluster::Cluster;
pub use command::{Call, Client, Output};
pub use gpus::Gpus;
pub use machine::{Machine, Root};
pub use node::Node;
pub use rest::Reply;
pub use slurm::Slurm;
pub use user::User;
