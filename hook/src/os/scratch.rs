//! Memory for a short while.

use core::ptr::NonNull;

use softmig_policy::node::node_conf::LONGEST;

use super::error::Error;
use super::mapping::{map, unmap};

/// Memory for one text, neither the program's nor on its stack, which may be small. Gone when dropped.
pub(crate) struct Scratch(NonNull<u8>);

impl Scratch {
    /// A conf or the list of a process's control groups; both are smaller by far. One byte is to see the end.
    const SIZE: usize = LONGEST + 1;

    /// Takes the memory.
    pub(crate) fn new() -> Result<Self, Error> {
        map(Self::SIZE).map(Self)
    }

    /// The memory.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is this large, all zero at first, and nobody else's.
        unsafe { core::slice::from_raw_parts_mut(self.0.as_ptr(), Self::SIZE) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        unmap(self.0, Self::SIZE);
    }
}
