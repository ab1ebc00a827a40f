//! Running graphs: their nodes one after the other in one stream.

use softmig_driver_sys::cuda::*;

use crate::Outcome;
use crate::driver::Driver;
use crate::entry::locked;
use crate::export::exports;
use crate::graphs::NodeWork;
use crate::streams::{self, Default};
use crate::{capture, events, graph_memory, graph_ready};

exports! {
    static SYMBOLS;

    /// Runs a graph.
    fn cuGraphLaunch [cuGraphLaunch 10000], cuGraphLaunch_ptsz [10000] (ready: CUgraphExec, stream: CUstream)
        |per_thread| => locked(|driver| launch(driver, ready as usize, stream as usize, per_thread));

    /// Takes the memory that a graph will need.
    fn cuGraphUpload [cuGraphUpload 11010], cuGraphUpload_ptsz [11010] (ready: CUgraphExec, stream: CUstream)
        |per_thread| => locked(|driver| upload(driver, ready as usize, stream as usize, per_thread));
}

fn launch(driver: &mut Driver, ready: usize, stream: usize, per_thread: bool) -> Outcome {
    let stream = streams::resolve(driver, stream, Default::of(per_thread))?;
    let ready = graph_ready::get(driver, ready)?.clone();
    if let Some(id) = streams::get(driver, stream)?.capture {
        // A graph within a graph is its nodes here.
        for node in ready.work() {
            capture::add_node(driver, id, stream, node.clone())?;
        }
        return Ok(());
    }
    capture::refuse_implicit(driver, stream)?;
    graph_memory::begin(driver, &ready)?;
    for node in ready.work() {
        match node {
            NodeWork::Op(op) => streams::run(driver, stream, op.clone())?,
            NodeWork::Record(event) => events::record_now(driver, *event, stream)?,
            NodeWork::Wait(event) => events::wait_now(driver, *event, stream)?,
            // The memory was taken and given back above, all at once: nothing looks in between.
            NodeWork::Allocate(_) | NodeWork::Free(_) | NodeWork::Nothing => {}
            // Its nodes are among these.
            NodeWork::Graph(_) => {}
        }
    }
    Ok(())
}

/// Takes the memory that a graph will need.
pub(crate) fn upload(
    driver: &mut Driver,
    ready: usize,
    stream: usize,
    per_thread: bool,
) -> Outcome {
    streams::resolve(driver, stream, Default::of(per_thread))?;
    let ready = graph_ready::get(driver, ready)?.clone();
    graph_memory::provide(driver, &ready)
}
