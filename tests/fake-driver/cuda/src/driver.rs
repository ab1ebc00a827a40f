//! Everything that this process has of the GPUs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{BlockId, Device, Process};

use crate::Outcome;
use crate::arrays::Arrays;
use crate::capture::Captures;
use crate::contexts::Contexts;
use crate::events::Events;
use crate::external::External;
use crate::functions::Functions;
use crate::graph_memory::GraphMemory;
use crate::graphs::Graphs;
use crate::heap::Heap;
#[cfg(not(feature = "old"))]
use crate::libraries::Libraries;
use crate::modules::Modules;
use crate::pools::Pools;
use crate::ranges::Ranges;
use crate::streams::Streams;
use crate::vmm::Virtual;

/// Made by `cuInit`.
pub(crate) struct Driver {
    /// This process's part in the node.
    pub(crate) node: &'static Process,
    /// The node's numbers of the devices that the program has: `CUdevice` is an index into it.
    ordinals: Vec<usize>,
    pub(crate) contexts: Contexts,
    pub(crate) heap: Heap,
    pub(crate) ranges: Ranges,
    pub(crate) pools: Pools,
    pub(crate) memory: Virtual,
    /// How often each block of another process is open here.
    pub(crate) opened: BTreeMap<BlockId, u32>,
    pub(crate) external: BTreeMap<usize, External>,
    pub(crate) arrays: Arrays,
    pub(crate) modules: Modules,
    #[cfg(not(feature = "old"))]
    pub(crate) libraries: Libraries,
    pub(crate) functions: Functions,
    pub(crate) streams: Streams,
    pub(crate) events: Events,
    pub(crate) captures: Captures,
    pub(crate) graphs: Graphs,
    pub(crate) graph_memory: GraphMemory,
    /// Whether the driver's own thread runs.
    pub(crate) attended: bool,
}

impl Driver {
    pub(crate) fn new(node: &'static Process, ordinals: Vec<usize>) -> Driver {
        Driver {
            node,
            ordinals,
            contexts: Contexts::default(),
            heap: Heap::default(),
            ranges: Ranges::default(),
            pools: Pools::default(),
            memory: Virtual::default(),
            opened: BTreeMap::default(),
            external: BTreeMap::default(),
            arrays: Arrays::default(),
            modules: Modules::default(),
            #[cfg(not(feature = "old"))]
            libraries: Libraries::default(),
            functions: Functions::default(),
            streams: Streams::default(),
            events: Events::default(),
            captures: Captures::default(),
            graphs: Graphs::default(),
            graph_memory: GraphMemory::default(),
            attended: false,
        }
    }

    /// How many devices the program has.
    pub(crate) fn device_count(&self) -> usize {
        self.ordinals.len()
    }

    /// The node's number of a device that the program names.
    pub(crate) fn device(&self, ordinal: CUdevice) -> Outcome<usize> {
        usize::try_from(ordinal)
            .ok()
            .and_then(|ordinal| self.ordinals.get(ordinal).copied())
            .ok_or(CUDA_ERROR_INVALID_DEVICE)
    }

    /// The program's device number.
    pub(crate) fn ordinal(&self, device: usize) -> Outcome<CUdevice> {
        let ordinal = self.ordinals.iter().position(|known| *known == device);
        ordinal
            .and_then(|ordinal| CUdevice::try_from(ordinal).ok())
            .ok_or(CUDA_ERROR_INVALID_DEVICE)
    }

    pub(crate) fn described(&self, device: usize) -> Outcome<Device<'static>> {
        let described = self.node.description().device(device);
        described.ok_or(CUDA_ERROR_INVALID_DEVICE)
    }
}

/// A number for a new object. None is given twice, so a handle that is out of date names nothing.
pub(crate) fn new_handle() -> usize {
    // The first few numbers mean something in places: streams 1 and 2 are the default streams.
    static NEXT: AtomicUsize = AtomicUsize::new(0x1000);
    // Relaxed: only that no two are the same matters.
    NEXT.fetch_add(0x10, Ordering::Relaxed)
}
