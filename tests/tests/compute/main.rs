//! A share of a GPU's time is held, whatever is launched and however: in processes without Slurm, on the fake driver's clock,
//! where a kernel takes exactly as long as it says.

mod liveness;
mod lives;
mod stand;
mod ways;
