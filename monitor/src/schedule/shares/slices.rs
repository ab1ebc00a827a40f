//! The time slices of jobs.

use std::collections::BTreeSet;

use super::{CLASSIFY_EVERY, Job, JobState, Look, Sharing};

/// The time slice in microseconds of a job that yields by itself. Others beside one have their share of a short round, since it
/// waits for all of them after each pause. Shorter slices than `LEAST_SLICE_US` take too much of the GPU.
const YIELDING_SLICE_US: u64 = 16_000;
const ROUND_BESIDE_YIELDING_US: u64 = 4_000;
pub(super) const LEAST_SLICE_US: u64 = 2_000;
/// Where no job yields, each slice is the job's share of one round. A longer round has fewer changes of groups, and lets jobs wait
/// for longer.
pub(super) const ROUND_US: u64 = 32_000;

impl Sharing {
    /// Sets the jobs' slices, as the head of `shares.rs` says.
    pub(super) fn set_slices(&mut self, look: &mut Look) {
        // A program that wants the GPU for a moment now and then is there, also while it wants nothing.
        let since = self.looked - CLASSIFY_EVERY;
        let is_there =
            |it: &JobState| it.used >= since || it.wanted_gpu.is_some_and(|last| last >= since);
        let jobs = self.jobs.iter();
        let yielding: BTreeSet<Job> = jobs
            .filter(|(_, it)| it.yields && is_there(it))
            .map(|(&job, _)| job)
            .collect();
        self.has_yielding = !yielding.is_empty();
        let gangs = &self.phase.gangs;
        for (&job, state) in &mut self.jobs {
            let is_beside_yielding = yielding.iter().any(|&other| other != job);
            state.has_short_phases = gangs.contains(&job) && !yielding.is_subset(gangs);
            let slice_us = match (state.yields, is_beside_yielding) {
                (true, _) => YIELDING_SLICE_US,
                (false, true) => state
                    .share
                    .part_of(ROUND_BESIDE_YIELDING_US)
                    .max(LEAST_SLICE_US),
                (false, false) => state.share.part_of(ROUND_US),
            };
            if std::mem::replace(&mut state.slice_us, slice_us) != slice_us {
                look.slices.push((job, slice_us));
            }
        }
    }
}

impl JobState {
    pub(super) fn classify(&mut self) {
        let (cut, left) = (
            std::mem::take(&mut self.cut),
            std::mem::take(&mut self.left),
        );
        if cut + left > 0 {
            self.yields = left > cut;
        }
    }
}
