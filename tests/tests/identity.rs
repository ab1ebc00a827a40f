//! Whose process is this? Attacks on the library's answer, under real Slurm: tests/attempts.md lists them.
//!
//! Every test runs the client `whose` in some place or disguise and compares all that it says with all that it should
//! say. Without the library, or with one that does not look, none of it would be said.

mod answer;
mod conf;
mod disguise;
mod document;
mod elsewhere;
#[cfg(feature = "full")]
mod guest;
mod hardship;
mod mode;
mod place;
mod privilege;
mod site;
