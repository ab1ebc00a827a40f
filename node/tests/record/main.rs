//! The files that the prolog leaves on disk for a job. A folder takes the place of the node.

mod again;
mod files;
mod names;
mod world;
