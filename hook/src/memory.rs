//! The ways by which programs take device memory and give it back: the handlers of the table's rows, by what they take.
//!
//! docs/device-memory.md lists every function of the driver's and how it is handled.

pub(crate) mod arguments;
pub(crate) mod arrays;
pub(crate) mod contexts;
pub(crate) mod graphs;
pub(crate) mod kept;
pub(crate) mod linear;
pub(crate) mod managed;
pub(crate) mod modules;
pub(crate) mod physical;
pub(crate) mod pools;
pub(crate) mod shared;
pub(crate) mod stacks;
pub(crate) mod streams;
