//! No path takes device memory beyond the limit. The tests look at what clients get, at what they hear, and at what the
//! driver saw them have.
//!
//! Most tests need no Slurm. They have a GPU of the fake driver and a ledger, and their clients are limited by the
//! environment. Tests for which the job matters run clients in real jobs.

mod crowd;
mod exports;
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
