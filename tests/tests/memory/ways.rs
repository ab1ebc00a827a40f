//! Every way to take device memory: the driver never sees more than the limit taken, all of it can be had, and what is
//! given back can be had again.

use anyhow::{Context, Result, ensure};
use softmig_fake_node::MIB;

use crate::memory::stand::{Said, Stand, context, number};

/// CUDA_ERROR_OUT_OF_MEMORY.
pub const OUT_OF_MEMORY: u64 = 2;

/// Fills a slice twice, in steps of `step` bytes. The second time it takes as much as the first.
fn fills(way: &str, limit_mib: u64, step: u64, how: &str) -> Result<()> {
    let (_, said) = fills_once(way, limit_mib, step, how)?;
    let again = said.number("again", "blocks")?;
    ensure!(said.number("took", "blocks")? == again, "{said:#?}");
    Ok(())
}

/// Fills a slice, up to its limit and not beyond.
fn fills_once(way: &str, limit_mib: u64, step: u64, how: &str) -> Result<(Stand, Said)> {
    let stand = Stand::new(limit_mib)?;
    let said = stand.run(&["takes", way, &step.to_string(), "fill", how])?;
    said.check()?;
    ensure!(said.text("start")? == "0", "{said:#?}");
    ensure!(said.number("took", "then")? == OUT_OF_MEMORY, "{said:#?}");
    ensure!(said.number("again", "then")? == OUT_OF_MEMORY, "{said:#?}");
    ensure!(said.text("gave")? == "0", "{said:#?}");
    stand.check_peaks().with_context(|| format!("{said:#?}"))?;
    let (peak, room) = (stand.gpus.peak(0), stand.limit - context());
    ensure!(
        peak >= context() + room * 98 / 100,
        "{} of {} MiB were had, {} beside the context: {said:#?}",
        peak / MIB,
        stand.limit / MIB,
        room / MIB
    );
    Ok((stand, said))
}

/// Makes a test of each way.
macro_rules! ways {
    (mod $module:ident within $limit:literal MiB in steps of $step:literal MiB; $($name:ident: $way:literal;)*) => {
        mod $module {
            $(
                #[test]
                fn $name() -> anyhow::Result<()> {
                    super::fills($way, $limit, $step << 20, "linked")
                }
            )*
        }
    };
}

ways! {
    mod the_limit_holds_for within 4096 MiB in steps of 8 MiB;
    plain_memory: "cuMemAlloc_v2";
    pitched_memory: "cuMemAllocPitch_v2";
    managed_memory: "cuMemAllocManaged";
    allocations_in_a_stream: "cuMemAllocAsync";
    allocations_in_a_threads_stream: "cuMemAllocAsync_ptsz";
    an_own_pool: "cuMemAllocFromPoolAsync";
    an_own_pool_in_a_threads_stream: "cuMemAllocFromPoolAsync_ptsz";
    a_pool_for_each_allocation: "cuMemPoolCreate";
    mapped_physical_memory: "cuMemMap";
    handles_of_physical_memory: "cuMemCreate";
    arrays: "cuArrayCreate_v2";
    arrays_of_three_dimensions: "cuArray3DCreate_v2";
    mipmapped_arrays: "cuMipmappedArrayCreate";
    nodes_of_graphs: "cuGraphAddMemAllocNode";
    nodes_of_any_kind: "cuGraphAddNode";
    nodes_with_edges: "cuGraphAddNode_v2";
    nodes_with_edges_since_cuda_13: "cuGraphAddNode_v3";
    graphs_within_graphs: "child-graph";
    graphs_that_are_uploaded: "cuGraphUpload";
    graphs_that_are_uploaded_in_a_threads_stream: "cuGraphUpload_ptsz";
    graphs_in_a_threads_stream: "cuGraphLaunch_ptsz";
    graphs_of_cuda_10: "cuGraphInstantiate";
    graphs_of_cuda_11: "cuGraphInstantiate_v2";
    graphs_with_parameters: "cuGraphInstantiateWithParams";
    graphs_with_parameters_in_a_threads_stream: "cuGraphInstantiateWithParams_ptsz";
    a_pool_that_is_made_the_gpus: "cuDeviceSetMemPool";
    handles_of_mapped_memory: "cuMemRetainAllocationHandle";
    memory_that_a_descriptor_keeps: "cuMemExportToShareableHandle";
    memory_that_a_dma_buf_keeps: "cuMemGetHandleForAddressRange";
    captured_allocations: "captured";
    stacks: "cuCtxSetLimit";
}

// Each step is a context of 518 MiB.
ways! {
    mod the_limit_holds_for_further within 4200 MiB in steps of 518 MiB;
    contexts: "cuCtxCreate_v2";
    contexts_of_old: "cuCtxCreate";
    contexts_with_affinity: "cuCtxCreate_v3";
    contexts_with_parameters: "cuCtxCreate_v4";
}

/// How much code takes is known only after it is loaded; if that is too much, it is unloaded again. Meanwhile one step
/// more than the limit is in use. Small modules are looked at together.
#[test]
fn the_limit_holds_for_code() -> Result<()> {
    const STEP: u64 = 16 << 20;
    const LOOK: u64 = 32 << 20;
    for way in [
        "cuModuleLoad",
        "cuModuleLoadData",
        "cuModuleLoadDataEx",
        "cuModuleLoadFatBinary",
        "cuLibraryLoadData",
        "cuLibraryLoadFromFile",
    ] {
        let stand = Stand::new(2048)?;
        let mut client = stand.start(&["takes", way, &STEP.to_string(), "hold", "0"])?;
        let took = client.hears("took: ")?;
        ensure!(number(&took, "then")? == OUT_OF_MEMORY, "{way}: {took}");
        client.hears("holding: ")?;
        let (used, peak) = (stand.gpus.usage()?[0].used, stand.gpus.peak(0));
        let most = stand.limit + LOOK;
        ensure!(used <= most && peak <= most + STEP, "{way}: {used}, {peak}");
        let room = stand.limit - context();
        ensure!(used >= context() + room * 98 / 100, "{way}: {used}");
        client.end()?;
        if way.starts_with("cuLibrary") {
            continue;
        }
        let said = stand.run(&["takes", way, &STEP.to_string(), "fill"])?;
        ensure!(said.text("gave")? == "0", "{way}: {said:#?}");
        let again = said.number("again", "blocks")?;
        ensure!(said.number("took", "blocks")? == again, "{way}: {said:#?}");
    }
    Ok(())
}

// 32-bit addresses are few.
ways! {
    mod the_limit_holds_in_a_context_of_old_for within 900 MiB in steps of 4 MiB;
    plain_memory: "cuMemAlloc";
    pitched_memory: "cuMemAllocPitch";
    arrays: "cuArrayCreate";
    arrays_of_three_dimensions: "cuArray3DCreate";
}

/// Fills a slice in a way that keeps what it took. As many bytes more than the limit may be taken until that is seen.
fn keeps(way: &str, step: u64, beyond: u64) -> Result<()> {
    let stand = Stand::new(2048)?;
    let said = stand.run(&["takes", way, &step.to_string(), "fill"])?;
    said.check()?;
    for when in ["took", "again"] {
        let then = said.number(when, "then")?;
        ensure!(then == OUT_OF_MEMORY, "{way}: {said:#?}");
    }
    let blocks = said.number("took", "blocks")?;
    ensure!(blocks > 40, "{way}: {said:#?}");
    let again = said.number("again", "blocks")?;
    ensure!(again <= blocks / 50, "{way}: {said:#?}");
    let peak = stand.gpus.peak(0);
    ensure!(peak <= stand.limit + beyond, "{way}: {peak}");
    let room = stand.limit - context();
    ensure!(peak >= context() + room * 97 / 100, "{way}: {peak}");
    Ok(())
}

/// They keep what they took until the primary context goes.
#[test]
fn the_limit_holds_for_green_contexts() -> Result<()> {
    keeps("cuGreenCtxCreate", 4 << 20, 0)
}

/// They keep what they took until their context goes. Several are looked at together.
#[test]
fn the_limit_holds_for_streams() -> Result<()> {
    keeps("cuStreamCreate", 512 << 10, 32 << 20)?;
    keeps("cuStreamCreateWithPriority", 512 << 10, 32 << 20)
}

/// The four ways to the driver's functions.
#[test]
fn the_limit_holds_for_functions_found_otherwise() -> Result<()> {
    for way in [
        "cuMemAlloc_v2",
        "cuMemAllocAsync",
        "cuMemAllocAsync_ptsz",
        "captured",
    ] {
        for how in ["dlsym", "cuGetProcAddress", "cuGetProcAddress_v2"] {
            fills(way, 4096, 8 << 20, how)?;
        }
    }
    for how in ["dlsym", "cuGetProcAddress", "cuGetProcAddress_v2"] {
        fills("cuMemAlloc", 900, 4 << 20, how)?;
    }
    Ok(())
}

#[test]
fn the_limit_holds_for_small_pieces() -> Result<()> {
    let limit = context() / MIB + 64;
    fills("cuMemAlloc_v2", limit, 4096, "linked")?;
    fills("cuMemAlloc_v2", limit + 512, 512 << 10, "linked")?;
    fills("cuMemAllocAsync", 4096, 256 << 10, "linked")?;
    fills("cuMemAlloc_v2", limit + 512, (1 << 20) + 1, "linked")?;
    fills("cuArrayCreate_v2", limit + 512, 256 << 10, "linked")?;
    Ok(())
}
