//! The jobs of a node as root's files and the kernel tell of them, whatever their processes are or claim.
//!
//! [`confs`] has what each job may have, [`mod@owner`] says whose a process is, and [`owners`] remembers it.
//! [`patience`] keeps a user from making others wait. [`acl`] lets one user or group read what is root's.

#![deny(unsafe_code)]

pub mod acl;
pub mod confs;
pub mod log;
pub mod owner;
pub mod owners;
pub(crate) mod packet;
pub mod patience;
pub(crate) mod pidfd;
