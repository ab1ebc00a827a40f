//! The node's root daemon: it grants the turns on each GPU and measures each job from outside.
//!
//! [`arbiter`] lets jobs take turns, as [`turns`] decides, and [`status`] says who does. [`judge`] measures, [`watch`] does
//! so again and again and tells of what it finds. [`notify`] tells systemd.

pub mod arbiter;
pub mod judge;
pub mod notify;
pub mod sharing;
pub mod status;
pub mod turns;
pub mod watch;
