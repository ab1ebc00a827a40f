//! Graphs: nodes, what each comes after, and what can be run.

use std::collections::{BTreeMap, BTreeSet};

use softmig_driver_sys::cuda::*;

use crate::Outcome;
use crate::driver::{Driver, new_handle};
use crate::entry::locked;
use crate::export::exports;
use crate::work::Op;
use crate::{In, Out};
use crate::{graph_launch, graph_memory};
use softmig_fake_node::edge::handle;

/// All graphs, and those made ready to run.
#[derive(Default)]
pub(crate) struct Graphs {
    graphs: BTreeMap<usize, Graph>,
    ready: BTreeMap<usize, Ready>,
}

/// A graph. Its nodes are in an order in which they may run: each is added after those that it comes after.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    number: usize,
    after: Vec<usize>,
    pub(crate) work: NodeWork,
}

/// What a node does.
#[derive(Clone, Debug)]
pub(crate) enum NodeWork {
    Op(Op),
    /// Takes the memory of this address.
    Allocate(u64),
    /// Gives the memory of this address back.
    Free(u64),
    /// Records an event.
    Record(usize),
    /// Waits for an event.
    Wait(usize),
    Nothing,
}

/// A graph made ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) graph: usize,
    pub(crate) nodes: Vec<NodeWork>,
    pub(crate) flags: u64,
}

exports! {
    static SYMBOLS;

    /// Makes a graph without nodes.
    fn cuGraphCreate [cuGraphCreate 10000] (out: Out<CUgraph>, flags: u32) => locked(|driver| {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let number = new_handle();
        driver.graphs.enter(number, Graph::new());
        out.set(handle(number))
    });

    /// Ends a graph. What was made ready of it can still run.
    fn cuGraphDestroy [cuGraphDestroy 10000] (graph: CUgraph) => locked(|driver| {
        driver.graphs.graphs.remove(&(graph as usize)).map(|_| ()).ok_or(CUDA_ERROR_INVALID_VALUE)
    });

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

    /// Ends a graph that was made ready.
    fn cuGraphExecDestroy [cuGraphExecDestroy 10000] (ready: CUgraphExec) => locked(|driver| {
        driver.graphs.ready.remove(&(ready as usize)).map(|_| ()).ok_or(CUDA_ERROR_INVALID_VALUE)
    });
}

/// The flag CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.
const UPLOAD: u64 = 2;

impl Graph {
    pub(crate) fn new() -> Graph {
        Graph { nodes: Vec::new() }
    }

    /// Adds a node after those.
    pub(crate) fn add(&mut self, work: NodeWork, after: Vec<usize>) -> usize {
        let number = new_handle();
        self.nodes.push(Node {
            number,
            after,
            work,
        });
        number
    }

    /// Whether all of these are nodes of it.
    pub(crate) fn has_all(&self, nodes: &[usize]) -> bool {
        let known: BTreeSet<usize> = self.nodes.iter().map(|node| node.number).collect();
        nodes.iter().all(|node| known.contains(node))
    }

    /// These nodes and all that they come after.
    pub(crate) fn before(&self, nodes: impl Iterator<Item = usize>) -> BTreeSet<usize> {
        let mut found: BTreeSet<usize> = nodes.collect();
        // From the last to the first: a node's own predecessors were all added before it.
        for node in self.nodes.iter().rev() {
            if found.contains(&node.number) {
                found.extend(&node.after);
            }
        }
        found
    }

    fn takes_memory(&self) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.any(|node| matches!(node.work, NodeWork::Allocate(_)))
    }
}

impl Graphs {
    pub(crate) fn enter(&mut self, number: usize, graph: Graph) {
        self.graphs.insert(number, graph);
    }

    pub(crate) fn forget(&mut self, number: usize) {
        self.graphs.remove(&number);
    }

    pub(crate) fn get(&self, number: usize) -> Option<&Graph> {
        self.graphs.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Outcome<&mut Graph> {
        let graph = self.graphs.get_mut(&number);
        graph.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    pub(crate) fn ready(&self, number: usize) -> Outcome<&Ready> {
        self.ready.get(&number).ok_or(CUDA_ERROR_INVALID_VALUE)
    }
}

/// Adds a node that comes after those that the program names, and returns its handle.
pub(crate) fn add(
    driver: &mut Driver,
    graph: usize,
    after: In<CUgraphNode>,
    count: usize,
    work: NodeWork,
) -> Outcome<CUgraphNode> {
    let after: Vec<usize> = after
        .list(count)?
        .into_iter()
        .map(|node| node as usize)
        .collect();
    let graph = driver.graphs.get_mut(graph)?;
    if !graph.has_all(&after) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(handle(graph.add(work, after)))
}

fn instantiate(driver: &mut Driver, number: usize, flags: u64) -> Outcome<usize> {
    let graph = driver.graphs.get(number).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let mut ready = driver.graphs.ready.values();
    // A graph's addresses can be in use once at a time (seen on an H200).
    if graph.takes_memory() && ready.any(|ready| ready.graph == number) {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let ready = Ready {
        graph: number,
        nodes: graph.nodes.iter().map(|node| node.work.clone()).collect(),
        flags,
    };
    graph_memory::check(driver, &ready)?;
    let number = new_handle();
    driver.graphs.ready.insert(number, ready);
    Ok(number)
}
