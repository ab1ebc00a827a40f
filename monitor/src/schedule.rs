//! Who gets a GPU, and when: decisions alone, which read no clock and no file.
//!
//! [`shares`] has the jobs of a GPU whose own scheduler is steered, [`turns`] those of a GPU where they take turns.

#![forbid(unsafe_code)]

pub mod shares;
pub mod turns;
