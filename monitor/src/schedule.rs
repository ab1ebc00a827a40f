//! The decisions about which job gets a GPU, and when. They read no clock and no file.

#![forbid(unsafe_code)]

mod book;
pub mod excess;
pub mod gangs;
pub mod interruptions;
pub mod shares;
pub mod turns;
mod types;

pub use book::{Book, Totals};
pub use types::{Job, Nanos, SeatId};
