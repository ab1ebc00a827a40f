//! Installing softmig on a machine, and removing it: one plan of steps for its roles.

mod image;
mod leftovers;
pub(crate) mod library;
mod place;
pub(crate) mod plan;
pub(crate) mod record;
pub(crate) mod removal;
pub(crate) mod role;
pub(crate) mod script;
mod step;
mod tree;
mod units;
