//! The ways by which programs take device memory and give it back: the handlers of exported
//! functions, by what they take.
//!
//! research/device-memory.md lists every function of the driver's and how it is handled.

pub(crate) mod alloc;
pub(crate) mod arrays;
pub(crate) mod contexts;
pub(crate) mod export;
pub(crate) mod graphs;
pub(crate) mod ipc;
pub(crate) mod managed;
pub(crate) mod modules;
pub(crate) mod pools;
pub(crate) mod stacks;
pub(crate) mod streams;
pub(crate) mod vmm;
