//! Names and files on a node: what the prolog, the hook and the monitor read. It needs no allocator.

pub mod cgroup;
pub mod env_limits;
pub mod fixed_str;
pub mod identity;
pub mod job_conf;
pub(crate) mod kv;
pub mod limits;
pub mod names;
pub mod node_conf;
pub mod paths;
pub mod process_group;
pub mod process_view;
pub mod size;
#[cfg(feature = "std")]
pub mod softmig_conf;
pub mod tag;
