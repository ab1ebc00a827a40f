//! What changes a machine: the library and the other parts come to it and go, and the node's mode is switched.

pub(crate) mod hook;
pub(crate) mod install;
pub(crate) mod node;
pub(crate) mod preload;
pub(crate) mod prove;
pub(crate) mod scheduler;
pub(crate) mod setup;
pub(crate) mod uninstall;
