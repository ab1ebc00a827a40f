//! A program's view of a GPU of which it has a slice.
//!
//! Every test runs the client `views`, which asks CUDA and NVML all there is to ask, in each version of each function,
//! with too little room and with enough. Without the library, or with one that does not look, it sees the whole GPU and
//! every process on it.

mod alone;
mod jobs;
mod look;
