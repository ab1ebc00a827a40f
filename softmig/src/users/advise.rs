//! `softmig advise`: what slices would have saved, by the jobs that Slurm's accounting has.

mod advice;
mod catalogue;
mod replay;
mod text;

use crate::ask::sacct;
use crate::files::policy_file;
use crate::output::say;
use anyhow::{Context as _, bail};
use catalogue::Catalogue;
use clap::Args;
use softmig_policy::Policy;
use std::collections::HashMap;
use std::path::PathBuf;

/// Tells which jobs with a whole GPU a slice would have held, and what that would have saved.
///
/// Reads Slurm's accounting: the memory and utilization of GPUs that jobstats keeps in AdminComment, or Slurm itself in
/// TRESUsageInMax. softmig need not be installed for it. The queue is replayed twice: with whole GPUs, and with slices.
#[derive(Args)]
pub(crate) struct Advise {
    /// From when on, as sacct's --starttime takes it
    #[arg(
        long,
        value_name = "TIME",
        default_value = "now-90days",
        conflicts_with = "file"
    )]
    since: String,
    /// A file with what sacct printed, instead of asking it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The policy with the types of GPUs and their slices
    #[arg(long, value_name = "FILE", default_value = Policy::PATH)]
    policy: PathBuf,
    /// Without a policy: into how many parts each GPU could be cut
    #[arg(long, value_name = "N", requires = "gpu", conflicts_with = "policy")]
    shards_per_gpu: Option<u32>,
    /// Without a policy: a type of GPU and its memory, such as l40s=46068; several times for several types
    #[arg(long, value_name = "TYPE=MIB", requires = "shards_per_gpu")]
    gpu: Vec<String>,
    /// The type of jobs whose type Slurm did not record
    #[arg(long, value_name = "TYPE")]
    r#type: Option<String>,
    /// How many GPUs of a type there are, such as l40s=16, for the replay. Default: as the policy's [[nodes]] say, else the
    /// most that were in use at once
    #[arg(long, value_name = "TYPE=N")]
    gpus: Vec<String>,
    /// By how many percent a slice has to have more memory than the job was measured to use
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = headroom)]
    headroom: f64,
    /// Print one JSON object
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print a line with commas for each slice
    #[arg(long)]
    csv: bool,
}

impl Advise {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let policy =
            match self.shards_per_gpu {
                Some(shards) => Catalogue::plain(shards, &self.gpu)?,
                None => policy_file::read(&self.policy)
                    .context(
                        "for types of GPUs without a policy there are --shards-per-gpu and --gpu",
                    )?
                    .policy,
            };
        let mut catalogue = Catalogue::new(policy, self.r#type.clone(), self.headroom)?;
        let gpus: HashMap<String, u32> = self
            .gpus
            .iter()
            .map(|gpus| number(gpus))
            .collect::<anyhow::Result<_>>()?;
        if let Some(kind) = gpus.keys().find(|kind| catalogue.gpu(kind).is_none()) {
            bail!("--gpus={kind}: the policy has no such type");
        }
        let history = match &self.file {
            Some(file) => sacct::of_file(file)?,
            None => sacct::of_slurm(&self.since, None)?,
        };
        let advice = advice::advise(&history, &mut catalogue, &gpus);
        let text = match (self.json, self.csv) {
            (true, _) => format!("{}\n", serde_json::to_string_pretty(&advice)?),
            (_, true) => text::csv(&advice)?,
            _ => text::plain(&advice),
        };
        say::text(format_args!("{text}"));
        Ok(())
    }
}

fn number(text: &str) -> anyhow::Result<(String, u32)> {
    let parts = text
        .rsplit_once('=')
        .and_then(|(kind, count)| Some((kind.to_string(), count.parse().ok()?)));
    // The replay keeps something of each.
    let parts = parts.filter(|(_, count)| (1..=1_000_000).contains(count));
    parts.with_context(|| format!("--gpus={text}: write a type and a number: l40s=16"))
}

fn headroom(text: &str) -> Result<f64, String> {
    let percent = text
        .parse()
        .ok()
        .filter(|percent| (0.0..=1000.0).contains(percent));
    percent.ok_or_else(|| "write a percentage from 0 to 1000".to_string())
}

#[cfg(test)]
mod tests;
