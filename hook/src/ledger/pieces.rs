//! The pieces in which the driver takes memory from a GPU, and what an address may be besides.

use core::sync::atomic::{AtomicBool, Ordering};

use softmig_region::units;

/// The driver takes memory from the GPU in pieces of this size. Smaller allocations share pieces, and none lies in two;
/// larger ones have pieces of their own (research/gpu-memory.md).
pub(crate) const PIECE: u64 = 2 << 20;

/// The pieces that these bytes take when nothing is shared, in units.
pub(crate) fn in_pieces(bytes: u64) -> u32 {
    units(bytes.div_ceil(PIECE).saturating_mul(PIECE))
}

/// The piece that an address is in.
pub(crate) fn piece_of(address: u64) -> u64 {
    address & !(PIECE.wrapping_sub(1))
}

/// Whether this process ever had managed memory, or another process's.
static ANY_OTHERS: AtomicBool = AtomicBool::new(false);

/// There is such memory.
pub(crate) fn expect_others() {
    ANY_OTHERS.store(true, Ordering::Relaxed);
}

/// Whether there may be such memory.
pub(crate) fn may_be_others() -> bool {
    ANY_OTHERS.load(Ordering::Relaxed)
}
