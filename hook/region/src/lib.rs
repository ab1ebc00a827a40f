//! The ledger of one job on one node: the memory of each GPU that the job's processes hold.
//!
//! It is a file that all of them map. It says how much each process holds. The limit is not in it, since the job's user
//! can write here. Reading and changing it always ends, whatever it contains, and harms no other job.
//!
//! Any process can be killed at any instruction and leaves nothing to repair: see [`GpuLedger::reserve`]. The kernel tells
//! whether the process behind a slot still lives, by a lock on one byte of the file for each slot ([`lock_offset`]), and in the same way
//! whose memory is in use after a process's end ([`kept_offset`]).
//!
//! The file, in the machine's own byte order:
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 4095 | `Head`: version, GPUs, the grant under way on each GPU, the job's cap on its time, the most that was held, what was refused |
//! | from 4096 on, 65536 for each GPU | a line of 64 bytes for each slot, which begins with its `Word` |

#![cfg_attr(not(test), no_std)]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "a test that fails says so"
    )
)]

mod atomic;
pub mod calls;
mod exports;
mod gpu_ledger;
mod layout;
mod pace;
mod record;
pub mod seat;
mod word;

pub use exports::Orphans;
pub use gpu_ledger::{Full, GpuLedger, Slot, Taken};
pub use layout::{KEPT, Ledger, MAX_GPUS, SLOTS, kept_offset, lock_offset, size};
pub use pace::{Pace, Rate};
pub use record::{RECORDS, Record, key, records};

/// The bytes of a unit: 64 KiB, the smallest piece in which drivers hand out a GPU's memory to processes.
pub const UNIT: u64 = 64 << 10;

/// The units that hold these bytes, [`u32::MAX`] at most.
pub fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

/// The units of these MiB, [`u32::MAX`] at most.
pub const fn units_of_mib(mib: u32) -> u32 {
    const IN_A_MIB: u64 = (1 << 20) / UNIT;
    mib.saturating_mul(IN_A_MIB as u32)
}

/// The bytes of these units.
pub fn bytes(units: u32) -> u64 {
    u64::from(units).saturating_mul(UNIT)
}

#[cfg(test)]
mod tests;
