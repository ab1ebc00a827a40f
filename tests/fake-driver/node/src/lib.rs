//! The node of the fake driver: its GPUs as data, the state that its processes share, and what a test may look at.
//!
//! A test makes a node, and the fake `libcuda.so.1` and `libnvidia-ml.so.1` find it at [`PLACE`] (or where
//! [`PLACE_VARIABLE`] says; these are test libraries). All that such a node knows lives in one file that every process
//! of it maps: src/layout.rs. Read on in this order:
//!
//! 1. [`Gpu`] and [`models`]: what a GPU is. [`Description`]: what a node is.
//! 2. [`Process`]: how a process takes part. Its death is seen by a lock that the kernel drops with it, so neither
//!    `kill -9` nor a pid namespace nor `closefrom` confuses the accounts.
//! 3. [`Kind`] and `memory`: who holds how much of which GPU. `block`: memory that several processes hold.
//! 4. `timeline`: when a kernel runs. `runlist`: the same where the GPUs have a scheduler. `groups`: what that schedules.
//! 5. [`Node`] and [`DeviceUsage`]: what a test makes and reads.
//! 6. [`Membership`], [`Function`] and [`edge`]: what both libraries need at their C interface. [`kernel`]: what libcuda and
//!    the fake kernel driver (`softmig-fake-rm`) say to each other.
//!
//! ```no_run
//! use softmig_fake_node::{Gpu, Kind, Node};
//! let node = Node::create("/run/fake-gpu/node", &Gpu::several(4, Gpu::l40s))?;
//! // ... run a program that takes memory ...
//! for device in node.usage()? {
//!     for process in &device.processes {
//!         println!("{} {:?} {}", device.uuid, process.pid, process.bytes.of(Kind::Alloc));
//!     }
//! }
//! # Ok::<(), softmig_fake_node::NodeError>(())
//! ```

mod block;
mod calls;
mod checkpoint;
mod clock;
mod description;
pub mod edge;
mod error;
mod files;
mod gpu;
mod groups;
mod install;
pub mod kernel;
mod kind;
pub(crate) mod layout;
mod lock;
mod mapped;
mod membership;
mod memory;
pub mod models;
mod mps;
mod node;
mod ofd;
mod pids;
mod process;
mod reap;
mod runlist;
mod timeline;
mod usage;
mod visible;

pub use block::{Block, BlockId};
pub use calls::{Function, Slow};
pub use checkpoint::Stage;
pub use description::{Clock, Description, Device};
pub use error::{AttachError, CheckpointError, MemoryError, NodeError};
pub use gpu::{Answers, Gpu, Instance, Mig};
pub use groups::{Found, Group, Progress, Switch};
pub use install::{KERNEL_DRIVER, install};
pub use kind::{Bytes, Kind};
pub use membership::{Membership, Standing};
pub use mps::ServerNotReady;
pub use node::Node;
pub use process::Process;
pub use usage::{DeviceUsage, Participant, ProcessUsage};

/// Where a process looks for its node's file.
pub const PLACE: &str = "/run/fake-gpu/node";

/// The variable that names another place.
pub const PLACE_VARIABLE: &str = "FAKE_GPU_NODE";

/// One MiB.
pub const MIB: u64 = 1 << 20;

/// Where this process's node is.
#[must_use]
pub fn place() -> std::path::PathBuf {
    std::env::var_os(PLACE_VARIABLE).map_or_else(|| PLACE.into(), Into::into)
}
