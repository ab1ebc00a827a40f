//! Packs: jobs of one user, account or reservation on one GPU that run at the same time, as clients of an MPS server of their own.
//!
//! NVIDIA's server runs the kernels of all its clients side by side. In return its clients share their end: where one ends with work
//! queued, all others end. They do not, if its channels are disabled as soon as it has ended, and only then the driver's files are
//! closed that it had (research/packs.md). So a process of this program, the supervisor (`supervisor`), has these files open as well. There is
//! one for each pack, which starts NVIDIA's control program and stays when the daemon ends. The daemon asks it by a socket
//! (`question`), and [`Packs`] starts and ends it. Whether all this has effect is measured first (`proof`).
//!
//! Each client that has ended has a thread that closes its files. Who keeps one waiting keeps those of the same pack, which then has fewer
//! places for clients.

mod device;
mod id;
mod kept;
mod proof;
mod question;
mod registry;
mod supervisor;
#[cfg(test)]
mod tests;

pub use id::PackId;
pub use proof::{PROOF, prove};
pub use registry::{Key, PackMember, Packs, users_in};
pub use supervisor::supervise;
