//! What changes a machine: the library comes to it and goes, and the node's mode is switched.

pub(crate) mod install;
pub(crate) mod loaders;
pub(crate) mod node;
pub(crate) mod preload;
pub(crate) mod scheduler;
pub(crate) mod uninstall;
