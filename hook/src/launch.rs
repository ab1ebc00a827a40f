//! What is launched: the handlers of the functions that give the GPU work or wait for it.
//!
//! - [`kernels`]: kernels. Graphs are in [`crate::memory::graphs`], since they keep memory.
//! - [`copies`]: copies and fills, and what only keeps a stream waiting.
//! - [`waits`]: the program waits for the GPU.

pub(crate) mod copies;
pub(crate) mod kernels;
pub(crate) mod waits;
