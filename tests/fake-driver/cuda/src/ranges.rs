//! The map of addresses: everything that the driver gave out or was told of.

use std::collections::BTreeMap;

use crate::address::Area;
use crate::heap::Part;
use softmig_fake_node::BlockId;

/// All of it, by the first address.
#[derive(Default)]
pub(crate) struct Ranges(BTreeMap<u64, Range>);

/// One allocation.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    /// The addresses in use, which are as long as was asked for.
    pub(crate) area: Area,
    /// The context it belongs to; 0 for none.
    pub(crate) context: usize,
    pub(crate) device: usize,
    pub(crate) source: Source,
}

/// How an allocation came to be, which says how it goes.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// `cuMemAlloc` and the like.
    Device { part: Part },
    /// `cuMemAllocManaged`.
    Managed { part: Part },
    /// From a memory pool, with its block once it is shared.
    Pool {
        pool: usize,
        bytes: u64,
        shared: Option<BlockId>,
    },
    /// A node of a graph. It has memory while live.
    Graph { bytes: u64, live: bool },
    /// A part of a reservation with physical memory behind it.
    Mapped { physical: u64 },
    /// Another process's memory: all that is mapped of it, and what this process holds it by.
    Imported { whole: Area, block: BlockId },
    /// A buffer in imported external memory.
    External,
    /// A variable of a module.
    Variable,
    /// A managed variable of a module or library.
    ManagedVariable,
    /// Host memory from the driver.
    Host,
    /// Host memory that the program announced.
    Registered,
}

impl Range {
    /// Whether host and device share it.
    pub(crate) fn is_managed(&self) -> bool {
        matches!(
            self.source,
            Source::Managed { .. } | Source::ManagedVariable
        )
    }

    /// Whether it is memory of a device.
    pub(crate) fn is_device(&self) -> bool {
        !matches!(self.source, Source::Host | Source::Registered)
    }
}

impl Ranges {
    pub(crate) fn insert(&mut self, range: Range) {
        self.0.insert(range.area.start, range);
    }

    /// The range that begins here.
    pub(crate) fn at(&self, start: u64) -> Option<&Range> {
        self.0.get(&start)
    }

    pub(crate) fn at_mut(&mut self, start: u64) -> Option<&mut Range> {
        self.0.get_mut(&start)
    }

    /// The range of this address.
    pub(crate) fn around(&self, address: u64) -> Option<&Range> {
        let (_, range) = self.0.range(..=address).next_back()?;
        range.area.has(address, 1).then_some(range)
    }

    pub(crate) fn remove(&mut self, start: u64) -> Option<Range> {
        self.0.remove(&start)
    }

    /// Takes out all that belongs to a context.
    pub(crate) fn remove_context(&mut self, context: usize) -> Vec<Range> {
        let gone: Vec<u64> = self
            .0
            .values()
            .filter(|range| range.context == context)
            .map(|range| range.area.start)
            .collect();
        gone.iter()
            .filter_map(|start| self.0.remove(start))
            .collect()
    }

    /// All of it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range> {
        self.0.values()
    }
}
