//! Routes: the partition of a slice job whose user named none.

use crate::config::error::{PolicyError, line_of};
use crate::config::gpu_types::GpuType;
use crate::config::node_line::check_slurm_words;
use crate::slurm::time_limit::WallTime;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// A route.
#[derive(Clone, Debug)]
pub struct Route {
    partition: String,
    types: Vec<String>,
    max_time: Option<WallTime>,
    jobs: Option<Jobs>,
    slurm: String,
}

/// The jobs that a route takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Jobs {
    /// Those with a script.
    Batch,
    /// Those of salloc and srun, for which a user waits.
    Interactive,
}

/// The table as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteTable {
    partition: String,
    types: Option<Vec<String>>,
    max_time: Option<WallTime>,
    jobs: Option<Jobs>,
    #[serde(default)]
    slurm: String,
}

impl RouteTable {
    fn check(self, gpus: &BTreeMap<String, GpuType>) -> Result<Route, String> {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if self.partition.is_empty() || !self.partition.bytes().all(known) {
            return Err(format!(
                "partition = \"{}\" is not a valid partition name",
                self.partition
            ));
        }
        if self.types.as_ref().is_some_and(Vec::is_empty) {
            return Err("types = [] matches no job; omit types to match all".to_string());
        }
        let types = self.types.unwrap_or_default();
        if let Some(unknown) = types.iter().find(|name| !gpus.contains_key(*name)) {
            return Err(format!("types has {unknown}, which has no [gpu.*] table"));
        }
        check_slurm_words(&self.slurm)?;
        Ok(Route {
            partition: self.partition,
            types,
            max_time: self.max_time,
            jobs: self.jobs,
            slurm: self.slurm,
        })
    }
}

/// Checks the tables. `text` is the whole policy.toml.
pub(crate) fn check(
    tables: Vec<Spanned<RouteTable>>,
    gpus: &BTreeMap<String, GpuType>,
    text: &str,
) -> Result<Vec<Route>, PolicyError> {
    tables
        .into_iter()
        .map(|table| {
            let line = line_of(text, &table.span());
            table
                .into_inner()
                .check(gpus)
                .map_err(|message| PolicyError::new("[[route]]", line, message))
        })
        .collect()
}

impl Route {
    /// The partition.
    pub fn partition(&self) -> &str {
        &self.partition
    }

    /// The GPU types that it is for; an empty list is all.
    pub fn types(&self) -> &[String] {
        &self.types
    }

    /// The longest job that it is for.
    pub fn max_time(&self) -> Option<WallTime> {
        self.max_time
    }

    /// More words for the partition's line in slurm.conf.
    pub fn slurm(&self) -> &str {
        &self.slurm
    }

    /// True if it takes slices of this type, for a job with this time limit in minutes, with a script or without.
    pub(crate) fn takes(&self, gpu_type: &str, time_limit: Option<u32>, batch: bool) -> bool {
        let type_fits = self.types.is_empty() || self.types.iter().any(|name| name == gpu_type);
        let time_fits = match (self.max_time, time_limit) {
            (None, _) => true,
            (Some(most), Some(asked)) => asked <= most.minutes(),
            // Slurm would give it the partition's own default, which is not known here.
            (Some(_), None) => false,
        };
        let jobs_fit = match self.jobs {
            None => true,
            Some(Jobs::Batch) => batch,
            Some(Jobs::Interactive) => !batch,
        };
        type_fits && time_fits && jobs_fit
    }
}
