//! NVIDIA's kernel driver, as far as the monitor calls it (`rm/`), for machines without a GPU.
//!
//! Preloaded into the monitor (`LD_PRELOAD`), this library plays the kernel driver. It takes the driver's calls before the
//! kernel does, so the monitor is the one that is shipped. It carries the calls out in the node (`softmig_fake_node`), where
//! the fake libcuda has made its channel groups.
//!
//! - src/entry.rs: how the calls come here. The kernel sends a signal for each, since a filter says so; opening a device's
//!   file is `open64`.
//! - src/client.rs: what a client of the driver has: its GPU, memory, and the log of switches.
//! - src/call.rs: each call, by its number.

mod call;
mod client;
mod entry;
mod memory;
