//! Graphs made ready to run: how they come to be, what of them can be changed, and their end.

use std::collections::BTreeMap;
use std::ffi::c_char;

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::Outcome;
use crate::context_memory;
use crate::driver::{Driver, new_handle};
use crate::entry::locked;
use crate::export::exports;
use crate::graph_nodes;
use crate::graph_queries::kind;
use crate::graphs::NodeWork;
use crate::{graph_launch, graph_memory};
use softmig_fake_node::edge::handle;

/// All of them.
pub(crate) type AllReady = BTreeMap<usize, Ready>;

/// A graph made ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) graph: usize,
    /// The graph's nodes, and what each does: several things where it runs a graph.
    nodes: Vec<(usize, Vec<NodeWork>)>,
    pub(crate) flags: u64,
}

exports! {
    static SYMBOLS;

    /// Makes a graph ready to run. No graph of this driver's has errors to be told of.
    fn cuGraphInstantiate [cuGraphInstantiate 10000] (
        out: Out<CUgraphExec>, graph: CUgraph, error: Out<CUgraphNode>, log: Out<c_char>, size: usize
    ) => locked(|driver| instantiate_with_log(driver, out, graph, error, log, size));

    /// Makes a graph ready to run. No graph of this driver's has errors to be told of.
    fn cuGraphInstantiate_v2 [cuGraphInstantiate 11000] (
        out: Out<CUgraphExec>, graph: CUgraph, error: Out<CUgraphNode>, log: Out<c_char>, size: usize
    ) => locked(|driver| instantiate_with_log(driver, out, graph, error, log, size));

    /// Makes a graph ready to run.
    fn cuGraphInstantiateWithFlags [cuGraphInstantiateWithFlags 11040] (
        out: Out<CUgraphExec>, graph: CUgraph, flags: u64
    ) => locked(|driver| out.set(handle(instantiate(driver, graph as usize, flags)?)));

    /// Makes a graph ready to run, and uploads it if the parameters say so.
    fn cuGraphInstantiateWithParams [cuGraphInstantiateWithParams 12000],
        cuGraphInstantiateWithParams_ptsz [12000] (
        out: Out<CUgraphExec>, graph: CUgraph, parameters: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>
    ) |per_thread| => locked(|driver| {
        let mut asked = parameters.get()?;
        let made = instantiate(driver, graph as usize, asked.flags);
        asked.result_out = match made {
            Ok(_) => CUDA_GRAPH_INSTANTIATE_SUCCESS,
            Err(_) => CUDA_GRAPH_INSTANTIATE_ERROR,
        };
        asked.hErrNode_out = handle(0);
        parameters.set(asked)?;
        let ready = made?;
        out.set(handle(ready))?;
        if asked.flags & UPLOAD != 0 {
            graph_launch::upload(driver, ready, asked.hUploadStream as usize, per_thread)?;
        }
        Ok(())
    });

    /// Takes over what another graph of the same shape does.
    fn cuGraphExecUpdate [cuGraphExecUpdate 10020] (
        ready: CUgraphExec, graph: CUgraph, error: Out<CUgraphNode>, result: Out<CUgraphExecUpdateResult>
    ) => locked(|driver| {
        error.set_if_wanted(handle(0));
        let outcome = update(driver, ready as usize, graph as usize)?;
        result.set(outcome)?;
        verdict(outcome)
    });

    /// Takes over what another graph of the same shape does.
    fn cuGraphExecUpdate_v2 [cuGraphExecUpdate 12000] (
        ready: CUgraphExec, graph: CUgraph, result: Out<CUgraphExecUpdateResultInfo>
    ) => locked(|driver| {
        let outcome = update(driver, ready as usize, graph as usize)?;
        result.set(CUgraphExecUpdateResultInfo {
            result: outcome,
            errorNode: handle(0),
            errorFromNode: handle(0),
        })?;
        verdict(outcome)
    });

    /// Changes what a node does.
    fn cuGraphExecNodeSetParams [cuGraphExecNodeSetParams 12020] (
        ready: CUgraphExec, node: CUgraphNode, parameters: Out<CUgraphNodeParams>
    ) => locked(|driver| {
        let asked = parameters.get()?;
        let work = match asked.type_ {
            CU_GRAPH_NODE_TYPE_KERNEL => vec![graph_nodes::kernel_of(driver, &asked)?],
            CU_GRAPH_NODE_TYPE_GRAPH => {
                // SAFETY: the type says which part of the union the program filled in, and any bytes are a handle.
                let child = unsafe { asked.__bindgen_anon_1.graph };
                driver.graphs.all_leaves(child.graph as usize)
            }
            _ => return Err(CUDA_ERROR_NOT_SUPPORTED),
        };
        replace(driver, ready as usize, node as usize, work)
    });

    /// Lets a node that runs a graph do what that one's nodes do.
    fn cuGraphExecChildGraphNodeSetParams [cuGraphExecChildGraphNodeSetParams 11010] (
        ready: CUgraphExec, node: CUgraphNode, child: CUgraph
    ) => locked(|driver| {
        let work = driver.graphs.all_leaves(child as usize);
        replace(driver, ready as usize, node as usize, work)
    });

    /// Ends a graph that was made ready.
    fn cuGraphExecDestroy [cuGraphExecDestroy 10000] (ready: CUgraphExec) => locked(|driver| {
        driver.graphs.ready.remove(&(ready as usize)).map(|_| ()).ok_or(CUDA_ERROR_INVALID_VALUE)
    });
}

/// The flag CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.
const UPLOAD: u64 = 2;

impl Ready {
    /// All that it does.
    pub(crate) fn work(&self) -> impl Iterator<Item = &NodeWork> {
        self.nodes.iter().flat_map(|(_, work)| work)
    }
}

/// A graph that was made ready.
pub(crate) fn get(driver: &Driver, number: usize) -> Outcome<&Ready> {
    let ready = driver.graphs.ready.get(&number);
    ready.ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn instantiate_with_log(
    driver: &mut Driver,
    out: Out<CUgraphExec>,
    graph: CUgraph,
    error: Out<CUgraphNode>,
    log: Out<c_char>,
    size: usize,
) -> Outcome {
    error.set_if_wanted(handle(0));
    if size > 0 {
        log.set_if_wanted(0);
    }
    out.set(handle(instantiate(driver, graph as usize, 0)?))
}

fn instantiate(driver: &mut Driver, number: usize, flags: u64) -> Outcome<usize> {
    let graph = driver.graphs.get_whole(number)?;
    let mut ready = driver.graphs.ready.values();
    // A graph's addresses can be in use once at a time (seen on an H200).
    if driver.graphs.has_memory(number) && ready.any(|ready| ready.graph == number) {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let nodes = graph.nodes.iter();
    let ready = Ready {
        graph: number,
        nodes: nodes
            .map(|node| (node.number, driver.graphs.leaves(&node.work)))
            .collect(),
        flags,
    };
    graph_memory::check(driver, &ready)?;
    let others = driver.graphs.ready.values();
    let count = others.map(|ready| ready.work().count()).sum::<usize>() + ready.work().count();
    let work: Vec<NodeWork> = ready.work().cloned().collect();
    context_memory::provide_graph(driver, &work, count)?;
    let number = new_handle();
    driver.graphs.ready.insert(number, ready);
    Ok(number)
}

/// Takes over what a graph does, if its nodes are of the same kinds, and says what came of it.
fn update(driver: &mut Driver, ready: usize, graph: usize) -> Outcome<CUgraphExecUpdateResult> {
    let old = get(driver, ready)?;
    let new = driver.graphs.get_free(graph)?;
    if old.nodes.len() != new.nodes.len() {
        return Ok(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    }
    let new: Vec<Vec<NodeWork>> = new
        .nodes
        .iter()
        .map(|node| driver.graphs.leaves(&node.work))
        .collect();
    for ((_, old), new) in old.nodes.iter().zip(&new) {
        if !old.iter().map(kind).eq(new.iter().map(kind)) {
            return Ok(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
        }
        // Memory is at addresses of the graph that it was made of, and stays there.
        if !old
            .iter()
            .zip(new)
            .all(|(old, new)| place(old) == place(new))
        {
            return Ok(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
        }
    }
    let all: Vec<NodeWork> = new.iter().flatten().cloned().collect();
    context_memory::provide_graph(driver, &all, 0)?;
    let ready = driver.graphs.ready.get_mut(&ready);
    for ((_, old), new) in ready
        .into_iter()
        .flat_map(|ready| &mut ready.nodes)
        .zip(new)
    {
        *old = new;
    }
    Ok(CU_GRAPH_EXEC_UPDATE_SUCCESS)
}

fn verdict(outcome: CUgraphExecUpdateResult) -> Outcome {
    match outcome {
        CU_GRAPH_EXEC_UPDATE_SUCCESS => Ok(()),
        _ => Err(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE),
    }
}

/// Lets one node do something else of the same kind.
fn replace(driver: &mut Driver, ready: usize, node: usize, work: Vec<NodeWork>) -> Outcome {
    context_memory::provide_graph(driver, &work, 0)?;
    let ready = driver.graphs.ready.get_mut(&ready);
    let nodes = ready.into_iter().flat_map(|ready| &mut ready.nodes);
    let (_, old) = nodes
        .into_iter()
        .find(|(number, _)| *number == node)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let same = old.iter().map(kind).eq(work.iter().map(kind));
    if !same || old.iter().chain(&work).any(|work| place(work).is_some()) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    *old = work;
    Ok(())
}

/// The address that a node takes or gives back.
fn place(work: &NodeWork) -> Option<u64> {
    match work {
        NodeWork::Allocate(address) | NodeWork::Free(address) => Some(*address),
        _ => None,
    }
}
