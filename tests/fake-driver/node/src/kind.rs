//! The kinds of device memory, by the purpose for which it is taken.

/// The purpose for which device memory is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Kind {
    /// Contexts, and what their limits add.
    Context,
    /// `cuMemAlloc` and `cuMemAllocPitch`.
    Alloc,
    /// `cuMemAllocManaged`. NVML counts it for the GPU and for no process, as a real one does (seen on an H200). Beyond
    /// the device's room it is on the host.
    Managed,
    /// The memory of pools, in use or not.
    Pool,
    /// `cuMemCreate`: memory that lives until released and unmapped by all.
    Vmm,
    /// Arrays and mipmapped arrays.
    Array,
    /// The memory that graphs hold for their memory nodes.
    Graph,
    /// Code and variables of modules.
    Module,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 8] = [
        Kind::Context,
        Kind::Alloc,
        Kind::Managed,
        Kind::Pool,
        Kind::Vmm,
        Kind::Array,
        Kind::Graph,
        Kind::Module,
    ];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// Bytes of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes([u64; Kind::ALL.len()]);

impl Bytes {
    /// Those of one kind.
    #[must_use]
    pub fn of(&self, kind: Kind) -> u64 {
        self.0.get(kind.index()).copied().unwrap_or(0)
    }

    /// All together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The bytes that the process uses by NVML.
    #[must_use]
    pub fn seen_by_nvml(&self) -> u64 {
        self.total() - self.of(Kind::Managed)
    }

    pub(crate) fn add(&mut self, kind: Kind, bytes: u64) {
        if let Some(of) = self.0.get_mut(kind.index()) {
            *of += bytes;
        }
    }

    /// Adds another's figures: a process that loaded the driver twice has two.
    pub fn add_all(&mut self, other: &Bytes) {
        for kind in Kind::ALL {
            self.add(kind, other.of(kind));
        }
    }
}
