//! The decisions about which job gets a GPU, and when. They read no clock and no file.
//!
//! [`shares`] has the jobs of a GPU whose own scheduler is steered, [`turns`] those of a GPU where they take turns. Both keep a [`turns::Book`].

#![forbid(unsafe_code)]

pub mod shares;
pub mod turns;
