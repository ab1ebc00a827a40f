//! Names and files on a node: what the prolog, the hook and the monitor read. It needs no allocator.

pub mod cgroup;
pub mod conf;
pub mod environment;
pub mod limits;
pub mod node_conf;
pub mod size;
pub(crate) mod split;
pub mod tag;
