//! A share of a GPU's time is held, whatever is launched and however: on the fake driver's clock, where a kernel takes exactly
//! as long as it says. Most tests need no Slurm: the clients are limited by their environment, as `softmig run` does it.

mod captures;
mod gpus;
mod jobs;
mod liveness;
mod lives;
pub mod site;
pub mod stand;
mod steered;
mod surface;
mod ways;
