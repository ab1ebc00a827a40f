//! Graphs: nodes, and what each comes after.

use std::collections::{BTreeMap, BTreeSet};

use softmig_driver_sys::cuda::*;

use crate::Outcome;
use crate::driver::{Driver, new_handle};
use crate::entry::locked;
use crate::export::exports;
use crate::graph_ready::AllReady;
use crate::work::Op;
use crate::{In, Out};
use softmig_fake_node::edge::handle;

/// All graphs, and those made ready to run.
#[derive(Default)]
pub(crate) struct Graphs {
    graphs: BTreeMap<usize, Graph>,
    pub(crate) ready: AllReady,
}

/// A graph. Its nodes are in an order in which they may run: each is added after those that it comes after.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    /// Whether it is within a node of another graph, with which it goes.
    owned: bool,
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) number: usize,
    after: Vec<usize>,
    pub(crate) work: NodeWork,
}

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
    /// Runs the graph that is within it.
    Graph(usize),
    Nothing,
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

    /// Ends a graph. Its executable graphs can still run.
    fn cuGraphDestroy [cuGraphDestroy 10000] (graph: CUgraph) => locked(|driver| {
        driver.graphs.get_free(graph as usize)?;
        driver.graphs.forget(graph as usize);
        Ok(())
    });
}

impl Graph {
    pub(crate) fn new() -> Graph {
        Graph {
            nodes: Vec::new(),
            owned: false,
        }
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
}

impl Graphs {
    pub(crate) fn enter(&mut self, number: usize, graph: Graph) {
        self.graphs.insert(number, graph);
    }

    /// Ends a graph, and those within it.
    pub(crate) fn forget(&mut self, number: usize) {
        let Some(graph) = self.graphs.remove(&number) else {
            return;
        };
        for node in graph.nodes {
            if let NodeWork::Graph(child) = node.work {
                self.forget(child);
            }
        }
    }

    pub(crate) fn get(&self, number: usize) -> Option<&Graph> {
        self.graphs.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Outcome<&mut Graph> {
        let graph = self.graphs.get_mut(&number);
        graph.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// A graph that is within no other.
    pub(crate) fn get_free(&self, number: usize) -> Outcome<&Graph> {
        let graph = self.graphs.get(&number).filter(|graph| !graph.owned);
        graph.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// A graph that can be made ready by itself.
    pub(crate) fn get_whole(&self, number: usize) -> Outcome<&Graph> {
        match self.graphs.get(&number) {
            None => Err(CUDA_ERROR_INVALID_VALUE),
            Some(graph) if graph.owned => Err(CUDA_ERROR_NOT_SUPPORTED),
            Some(graph) => Ok(graph),
        }
    }

    /// A node, of whatever graph.
    pub(crate) fn node(&self, number: usize) -> Outcome<&Node> {
        let mut nodes = self.graphs.values().flat_map(|graph| &graph.nodes);
        nodes
            .find(|node| node.number == number)
            .ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// A node's work; where that is to run a graph, the work of that one's nodes.
    pub(crate) fn leaves(&self, work: &NodeWork) -> Vec<NodeWork> {
        match work {
            NodeWork::Graph(child) => self.all_leaves(*child),
            other => vec![other.clone()],
        }
    }

    /// The same of all nodes of a graph.
    pub(crate) fn all_leaves(&self, number: usize) -> Vec<NodeWork> {
        let nodes = self.graphs.get(&number).map(|graph| &graph.nodes);
        let nodes = nodes.into_iter().flatten();
        nodes.flat_map(|node| self.leaves(&node.work)).collect()
    }

    /// Whether a graph takes memory or gives it back.
    pub(crate) fn has_memory(&self, number: usize) -> bool {
        let leaves = self.all_leaves(number);
        let mut leaves = leaves.iter();
        leaves.any(|work| matches!(work, NodeWork::Allocate(_) | NodeWork::Free(_)))
    }

    /// Puts a graph into a node of another: a copy, or with `moved` the graph itself. Returns what that node does.
    pub(crate) fn embed(&mut self, into: usize, number: usize, moved: bool) -> Outcome<NodeWork> {
        self.get_free(number)?;
        // No graph is to end up within itself.
        if moved && (into == number || self.get_free(into).is_err()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Each allocation has one place where it is taken, so a copy cannot have it too.
        if !moved && self.has_memory(number) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let child = if moved { number } else { self.copy(number)? };
        self.get_mut(child)?.owned = true;
        Ok(NodeWork::Graph(child))
    }

    /// Copies a graph and those within it.
    fn copy(&mut self, number: usize) -> Outcome<usize> {
        let mut copy = self
            .graphs
            .get(&number)
            .cloned()
            .ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mut numbers = BTreeMap::new();
        for node in &mut copy.nodes {
            numbers.insert(node.number, new_handle());
            if let NodeWork::Graph(child) = &mut node.work {
                *child = self.copy(*child)?;
            }
        }
        let renumber = |number: &mut usize| {
            if let Some(new) = numbers.get(number) {
                *number = *new;
            }
        };
        for node in &mut copy.nodes {
            renumber(&mut node.number);
            node.after.iter_mut().for_each(renumber);
        }
        let number = new_handle();
        self.graphs.insert(number, copy);
        Ok(number)
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
