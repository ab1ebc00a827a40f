//! All that the library exports, topic by topic.

use crate::export::Symbol;
use crate::*;

/// In every driver.
static TABLES: &[&[Symbol]] = &[
    init::SYMBOLS,
    devices::SYMBOLS,
    contexts::SYMBOLS,
    attach::SYMBOLS,
    primary::SYMBOLS,
    limits::SYMBOLS,
    memory::SYMBOLS,
    prefetch::SYMBOLS,
    host::SYMBOLS,
    copies::SYMBOLS,
    boxes::SYMBOLS,
    fills::SYMBOLS,
    pointers::SYMBOLS,
    pools::SYMBOLS,
    pool_attributes::SYMBOLS,
    pool_sharing::SYMBOLS,
    vmm::SYMBOLS,
    ipc::SYMBOLS,
    dma_buf::SYMBOLS,
    external::SYMBOLS,
    arrays::SYMBOLS,
    streams::SYMBOLS,
    events::SYMBOLS,
    signals::SYMBOLS,
    capture::SYMBOLS,
    graphs::SYMBOLS,
    graph_nodes::SYMBOLS,
    graph_queries::SYMBOLS,
    graph_ready::SYMBOLS,
    graph_launch::SYMBOLS,
    graph_memory::SYMBOLS,
    modules::SYMBOLS,
    functions::SYMBOLS,
    launches::SYMBOLS,
    proc_address::SYMBOLS,
    export_table::SYMBOLS,
];

/// In drivers from CUDA 12 on.
#[cfg(not(feature = "old"))]
static NEW_TABLES: &[&[Symbol]] = &[
    contexts::NEW_SYMBOLS,
    checkpoint::SYMBOLS,
    multicast::SYMBOLS,
    pool_places::SYMBOLS,
    prefetch_places::SYMBOLS,
    libraries::SYMBOLS,
    green::SYMBOLS,
    capture::NEW_SYMBOLS,
    copies::NEW_SYMBOLS,
    boxes::NEW_SYMBOLS,
    signals::NEW_SYMBOLS,
    launches::NEW_SYMBOLS,
    proc_address::NEW_SYMBOLS,
];
#[cfg(feature = "old")]
static NEW_TABLES: &[&[Symbol]] = &[];

/// All functions.
pub(crate) fn all() -> impl Iterator<Item = &'static Symbol> {
    let tables = TABLES.iter().chain(NEW_TABLES);
    tables.flat_map(|table| table.iter())
}
