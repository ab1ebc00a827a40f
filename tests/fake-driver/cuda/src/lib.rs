//! `libcuda.so.1` for machines without a GPU.
//!
//! The library does what a program can see of a driver: it hands out handles, memory, errors and times, all accounted
//! for in a node that tests look at (see `softmig-fake-node`). Kernels do nothing but take their time. How it answers
//! was compared with driver 580.159 on an H200: `cuGetProcAddress` for each name, version and flag; the codes of calls
//! before `cuInit`, without a context, with wrong handles, in a forked child and during a capture; and what each kind
//! of memory takes.
//!
//! Memory that NVML shows for no process, a few MiB for `cuInit` and for each context, is left out, and so are the page
//! tables of host memory. Managed memory counts from its allocation on, not from the first touch.
//!
//! One call from end to end: src/export.rs counts it and takes its arguments over (`softmig_fake_node::edge`),
//! src/entry.rs joins the node at the first and locks the driver (src/driver.rs), a topic's file (named after it) does
//! the work, `softmig_fake_node` keeps the accounts. Device addresses are host addresses, so that copies are copies;
//! nothing ever runs on them.
//!
//! A module's image is text: see src/image.rs. A PTX text with such lines in its comments is an image too, so that a
//! client can be run on a real GPU as well. src/export_table.rs says which private table there is.
//!
//! `cargo build -p softmig-fake-cuda -p softmig-fake-nvml` makes the libraries, `softmig_fake_node::install` puts them
//! into a tree, `softmig_fake_node::Node::create` makes the node. With `--features old` (and a target folder of its own)
//! the library leaves out what drivers before CUDA 12 did not have; give such a node `Description::cuda(11_080)`.

mod address;
mod array_shape;
mod arrays;
mod attach;
mod boxes;
mod capture;
mod channels;
#[cfg(not(feature = "old"))]
mod checkpoint;
mod context_memory;
mod contexts;
mod copies;
mod devices;
mod dma_buf;
mod driver;
mod entry;
mod errors;
mod events;
mod export;
mod export_table;
mod external;
mod fills;
mod formats;
mod functions;
mod graph_launch;
mod graph_memory;
mod graph_nodes;
mod graph_queries;
mod graph_ready;
mod graphs;
#[cfg(not(feature = "old"))]
mod green;
mod heap;
mod host;
mod image;
mod init;
mod ipc;
mod launches;
#[cfg(not(feature = "old"))]
mod libraries;
mod limits;
mod memory;
mod modules;
#[cfg(not(feature = "old"))]
mod multicast;
mod pointers;
mod pool_attributes;
mod pool_kinds;
#[cfg(not(feature = "old"))]
mod pool_places;
mod pool_sharing;
mod pools;
mod prefetch;
#[cfg(not(feature = "old"))]
mod prefetch_places;
mod primary;
mod proc_address;
mod ranges;
mod room;
mod sharing;
mod signals;
mod streams;
mod tables;
mod thread;
mod visible;
mod vmm;
mod waiting;
mod work;

/// A call's result: an error is the driver's code.
pub(crate) type Outcome<T = ()> = Result<T, softmig_driver_sys::cuda::CUresult>;

/// Where a function leaves a value; null is "invalid value", as in the real driver.
pub(crate) type Out<T> =
    softmig_fake_node::edge::Out<T, { softmig_driver_sys::cuda::CUDA_ERROR_INVALID_VALUE }>;

/// A function's input; null is "invalid value", as in the real driver.
pub(crate) type In<T> =
    softmig_fake_node::edge::In<T, { softmig_driver_sys::cuda::CUDA_ERROR_INVALID_VALUE }>;
