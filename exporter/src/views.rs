//! The figures of slices under the names that other exporters have, so that what reads those shows slices too.
//!
//! The names and labels are the others'; the values are the slice's, not the whole card's (docs/usage.md).

mod card;
mod ceems;
mod jobstats;
mod slurm_job;

use crate::cli::View;
use crate::window::Window;
use softmig_usage::Node;
use softmig_usage::metrics::Page;

impl View {
    /// Adds its metrics.
    pub fn add(self, page: &mut Page, now: &Node, window: &Window) {
        match self {
            Self::Jobstats => jobstats::add(page, now, window),
            Self::SlurmJobExporter => slurm_job::add(page, now, window),
            Self::Ceems => ceems::add(page, now, window),
        }
    }
}
