//! A run's report: for the test, and for bench/results.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::churn::deck::{Event, KINDS};
use crate::churn::jobs::Found;

#[derive(Debug)]
pub struct Report {
    pub slurm: String,
    pub seed: u64,
    pub jobs: usize,
    /// Jobs that sbatch took.
    pub submitted: usize,
    pub seconds: u64,
    /// Results of the jobs' runs.
    pub found: Vec<Found>,
    /// The states of the jobs that slurmctld knows.
    pub states: BTreeMap<String, usize>,
    pub events: BTreeMap<Event, usize>,
    /// The nodes that had to be given back to Slurm, by its reason.
    pub drained: BTreeMap<String, usize>,
    /// Jobs for whose prolog Slurm waited for ever, although it had run.
    pub cancelled: usize,
    /// Epilogs that slurmd never ran, so that an administrator had to.
    pub without_epilog: usize,
    /// Control groups without a process, and slurmstepd of scripts that Slurm launched twice.
    pub left_by_slurm: Vec<String>,
    /// All else.
    pub left: Vec<String>,
    /// The most that was taken of each GPU at a time.
    pub peaks_mib: Vec<u64>,
    /// The most that its slices may take together.
    pub most_mib: u64,
}

impl Report {
    /// Fails unless nothing was left, and no job had more than it may. And there were jobs that could have.
    pub fn check(&self) -> Result<()> {
        let wrong = |found: &&Found| matches!(found, Found::Loose(_) | Found::Short(_));
        let wrong: Vec<&Found> = self.found.iter().filter(wrong).collect();
        ensure!(wrong.is_empty(), "seed {}: {wrong:#?}", self.seed);
        // As many as there are GPUs on nodes that were set down.
        let down =
            self.events.get(&Event::Down).copied().unwrap_or(0) * crate::churn::site::GPUS as usize;
        let beside = self.found.iter().filter(|it| **it == Found::Beside).count();
        ensure!(
            beside <= down,
            "seed {}: {beside} jobs shared a whole GPU",
            self.seed
        );
        ensure!(
            self.left.is_empty(),
            "seed {}: left: {:#?}",
            self.seed,
            self.left
        );
        let held = self.by_name().get(Found::Held.name()).copied();
        ensure!(held.unwrap_or(0) >= self.jobs / 3, "{:?}", self.by_name());
        let is_within = self.peaks_mib.iter().all(|peak| *peak <= self.most_mib);
        ensure!(is_within, "{:?} of {}", self.peaks_mib, self.most_mib);
        let by_softmig = |reason: &&String| reason.contains("Prolog") || reason.contains("Epilog");
        let drained: Vec<&String> = self.drained.keys().filter(by_softmig).collect();
        ensure!(drained.is_empty(), "seed {}: {drained:?}", self.seed);
        Ok(())
    }

    fn by_name(&self) -> BTreeMap<&'static str, usize> {
        let mut by_name = BTreeMap::new();
        for found in &self.found {
            *by_name.entry(found.name()).or_default() += 1;
        }
        by_name
    }

    fn events(&self) -> Vec<(&'static str, usize)> {
        let count = |event| self.events.get(&event).copied().unwrap_or(0);
        KINDS.map(|(event, name, _)| (name, count(event))).into()
    }

    /// The page of results.
    pub fn page(&self) -> String {
        let mut page = format!(
            "# Churn\n\nWritten by the test `churn` (see bench/README.md); do not edit.\n\n\
             {} jobs of two users on three nodes of two L40S each (the fake driver), Slurm {}, in {} s. Seed {}.\n",
            self.submitted, self.slurm, self.seconds, self.seed
        );
        let mut table = |head: &str, rows: &mut dyn Iterator<Item = (&str, usize)>| {
            let _ = writeln!(page, "\n| {head} | |\n| --- | ---: |");
            for (name, count) in rows {
                let _ = writeln!(page, "| {name} | {count} |");
            }
        };
        table("what happened", &mut self.events().into_iter());
        table("what runs of jobs found", &mut self.by_name().into_iter());
        let states = self
            .states
            .iter()
            .map(|(name, count)| (name.as_str(), *count));
        table("how jobs ended, by slurmctld", &mut { states });
        let drained = self
            .drained
            .iter()
            .map(|(name, count)| (name.as_str(), *count));
        table("nodes that Slurm took away, and got back", &mut { drained });
        let rows = [
            (
                "jobs for whose prolog Slurm waited for ever; cancelled",
                self.cancelled,
            ),
            (
                "epilogs that slurmd never ran; run by hand, as JOB_ENDED of `softmig check` says",
                self.without_epilog,
            ),
            (
                "empty control groups, and slurmstepd of scripts launched twice, which Slurm left",
                self.left_by_slurm.len(),
            ),
            (
                "confs, ledgers, mounts, processes, control groups, seats",
                self.left.len(),
            ),
        ];
        table("left at the end", &mut rows.into_iter());
        for line in &self.left {
            let _ = writeln!(page, "- {line}");
        }
        let peak = self.peaks_mib.iter().max().unwrap_or(&0);
        let _ = writeln!(
            page,
            "\nThe most that was taken of a GPU at a time: {peak} of {} MiB.",
            self.most_mib
        );
        page
    }

    fn json(&self) -> Value {
        json!({
            "slurm": self.slurm, "seed": self.seed, "jobs": self.submitted, "seconds": self.seconds,
            "events": self.events().into_iter().collect::<BTreeMap<_, _>>(),
            "found": self.by_name(), "states": self.states, "drained": self.drained, "without_epilog": self.without_epilog,
            "left_by_slurm": self.left_by_slurm, "left": self.left,
            "peaks_mib": self.peaks_mib, "most_mib": self.most_mib,
        })
    }

    /// Writes both into the folder of results.
    pub fn write(&self, results: &Path) -> Result<()> {
        std::fs::write(results.join("churn.md"), self.page())?;
        let json = serde_json::to_string_pretty(&self.json())? + "\n";
        Ok(std::fs::write(results.join("churn.json"), json)?)
    }
}
