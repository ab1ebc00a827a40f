//! The handlers of the functions that give the GPU work.
//!
//! - [`kernels`]: kernels. Graphs are in [`crate::memory::graphs`], since they keep memory.
//! - [`copies`]: copies and fills, and what only keeps a stream waiting.

pub(crate) mod copies;
pub(crate) mod kernels;
