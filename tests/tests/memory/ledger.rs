//! A ledger's content, read from a copy: nothing that a test does changes it.

use std::path::Path;

use anyhow::{Context, Result};
use softmig_region::{Ledger, SLOTS, UNIT};

/// A line of the file.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// The bytes that each process holds of each GPU, the smallest first, and orphans as if a process had them. Processes that hold nothing
/// are left out. Dead ones are in it until another process needs what they held.
pub fn held(path: &Path) -> Result<Vec<Vec<u64>>> {
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let mut lines = vec![Line([0; 64]); bytes.len().div_ceil(64)];
    for (line, bytes) in lines.iter_mut().zip(bytes.chunks(64)) {
        line.0[..bytes.len()].copy_from_slice(bytes);
    }
    // SAFETY: aligned, and all of it is the copy, which is this function's alone and outlives the ledger.
    let ledger = unsafe { Ledger::at(lines.as_ptr().cast(), bytes.len()) };
    let ledger = ledger.context("no ledger")?;
    let by_gpu = ledger.gpus().map(|gpu| {
        let units = (0..SLOTS).map(|slot| gpu.held_by(slot));
        let bytes = units
            .chain([gpu.orphans().units()])
            .map(|units| u64::from(units) * UNIT);
        let mut held: Vec<u64> = bytes.filter(|bytes| *bytes > 0).collect();
        held.sort_unstable();
        held
    });
    Ok(by_gpu.collect())
}
