//! GPUs and a ledger for one test: the fake driver, the library and the clients, without Slurm and without root.

use std::ops::Deref;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use softmig_fake_node::{Description, Gpu, MIB};

use crate::memory::ledger;
use crate::stand;
pub use crate::stand::{Running, Said, number};

/// A context's memory of an H200.
pub fn context() -> u64 {
    Gpu::h200(0).context
}

/// GPUs, a ledger, and a limit.
pub struct Stand {
    stand: stand::Stand,
    /// The limit of all processes on each GPU, in bytes.
    pub limit: u64,
}

impl Deref for Stand {
    type Target = stand::Stand;

    fn deref(&self) -> &stand::Stand {
        &self.stand
    }
}

impl Stand {
    /// One H200, the GPU that everything was measured on. The clients may hold `limit_mib` MiB of it.
    pub fn new(limit_mib: u64) -> Result<Stand> {
        Stand::with(limit_mib, Description::new(&[Gpu::h200(0)]))
    }

    /// With the GPUs of this description.
    pub fn with(limit_mib: u64, description: Description) -> Result<Stand> {
        let stand = stand::Stand::new(description, &["ledger"])?;
        let limit = limit_mib * MIB;
        Ok(Stand { stand, limit })
    }

    /// Each process's memory of each GPU by the ledger: see [`ledger::held`].
    pub fn held(&self) -> Result<Vec<Vec<u64>>> {
        ledger::held(&self.path("ledger"))
    }

    /// The allocations of the first GPU that were refused, and after how many the program was given memory.
    pub fn refusals(&self) -> Result<(u32, u32)> {
        let head = std::fs::read(self.path("ledger"))?;
        let record = softmig_region::records(&head).next();
        let record = record.context("no process has used the ledger")?;
        Ok((record.refused, record.recovered))
    }

    /// A client with the library and the limit.
    pub fn client(&self, words: &[&str]) -> Command {
        let mut command = self.preloaded(words);
        command
            .env("CUDA_DEVICE_MEMORY_LIMIT", format!("{}M", self.limit / MIB))
            .env("SOFTMIG_RUN", self.path("ledger"));
        command
    }

    /// Starts a client.
    pub fn start(&self, words: &[&str]) -> Result<Running> {
        Running::start(self.client(words))
    }

    /// Runs a client to its end.
    pub fn run(&self, words: &[&str]) -> Result<Said> {
        self.start(words)?.end()
    }

    /// Fails if more was ever taken of a GPU than its limit.
    pub fn check_peaks(&self) -> Result<()> {
        for device in 0..self.gpus.description().all_devices().count() {
            let (peak, limit) = (self.gpus.peak(device), self.limit);
            ensure!(
                peak <= limit,
                "GPU {device}: {peak} bytes were taken, the limit is {limit}"
            );
        }
        Ok(())
    }
}
