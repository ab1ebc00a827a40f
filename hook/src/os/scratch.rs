//! Memory for a short while.

use softmig_policy::node::node_conf::LONGEST;

use super::cells::Mapped;
use super::error::Error;

/// Memory for one text, neither the program's nor on its stack, which may be small. Gone when dropped.
pub(crate) struct Scratch(Mapped<u8>);

impl Scratch {
    /// A conf or the list of a process's control groups; both are smaller by far. One byte is to see the end.
    const SIZE: usize = LONGEST + 1;

    /// Takes the memory.
    pub(crate) fn new() -> Result<Self, Error> {
        Mapped::new(Self::SIZE).map(Self)
    }

    /// The memory.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
