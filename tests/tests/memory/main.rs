//! No path takes device memory beyond the limit: what clients get, what they hear, and what the driver saw them have.
//!
//! Most tests need no Slurm: a [`stand`] has a GPU of the fake driver and a ledger, and its clients are limited by their
//! environment. Where the job matters they run in real ones.

mod crowd;
mod garbage;
mod gpus;
mod jobs;
mod launches;
mod ledger;
mod lives;
mod races;
mod shares;
mod stand;
mod variables;
mod ways;
