//! Names and files on a node: what the prolog, the hook and the monitor read. It needs no allocator.

pub mod cgroup;
pub mod env_limits;
pub mod job_conf;
pub(crate) mod kv;
pub mod limits;
pub mod node_conf;
pub mod size;
pub mod tag;
