//! `softmig config`: what Slurm needs, made from policy.toml alone.

mod cgroup_conf;
mod gres_conf;
mod merge;
mod qos;
mod reservations;
mod softmig_conf;
mod text;
mod words;
mod write;

use crate::ask::here;
use crate::files::policy_file::{self, PolicyFile};
use crate::output::say::say;
use anyhow::{Context, bail};
use clap::Args;
use softmig_policy::config::reservable::Reservable;
use softmig_policy::slurm::release::SlurmVersion;
use softmig_policy::{Policy, now};
use std::path::PathBuf;
use std::process::ExitCode;
use text::Generated;
use write::Written;

/// Prints the configuration that Slurm needs, made from policy.toml alone.
///
/// softmig.conf is for slurm.conf to include, above the site's own lines of nodes and partitions; gres.conf and cgroup.conf
/// lie beside it. softmig-qos.sh and softmig-reservations.sh are run as Slurm's administrator after each change. docs/check.md
/// has the steps. The same policy, Slurm release and, where GPUs are reserved, time make the same text.
///
/// Exit status: 0 done, 3 files are there that differ and were left, 2 wrong usage, 1 the policy cannot be read, reserves a GPU
/// that no node has, or a file cannot be written.
#[derive(Args)]
pub(crate) struct Config {
    /// The Slurm release that is to read it; without this, that of the Slurm on this machine
    #[arg(long, value_name = "YY.MM")]
    slurm_version: Option<SlurmVersion>,
    /// The policy
    #[arg(long, value_name = "FILE", default_value = Policy::PATH)]
    policy: PathBuf,
    /// Write the files to this folder. One that is there and differs is left, and the new one goes beside it as NAME.new
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
    /// Replace files that differ; each old one stays beside its new one as NAME.old
    #[arg(long, requires = "write")]
    force: bool,
}

const FILES_DIFFER: u8 = 3;

impl Config {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let PolicyFile { policy, .. } = policy_file::read(&self.policy)?;
        if let Some(kind) = type_of_no_node(&policy, now()) {
            bail!(
                "{}: [[reservable]] type = \"{kind}\": no node in [[nodes]] has a GPU of this type, so none would be reserved; \
                 write for example gpus = [\"{kind}:1\"]",
                self.policy.display()
            );
        }
        let files = files(&policy, self.version()?, now());
        let Some(folder) = &self.write else {
            crate::output::say::text(format_args!("{}", as_one(&files)));
            return Ok(ExitCode::SUCCESS);
        };
        let mut code = ExitCode::SUCCESS;
        for written in write::all(&files, folder, self.force)? {
            say!("{written}");
            if matches!(written, Written::Beside { .. }) {
                code = ExitCode::from(FILES_DIFFER);
            }
        }
        Ok(code)
    }

    /// The release that is named, or that of the Slurm here, which is said.
    fn version(&self) -> anyhow::Result<SlurmVersion> {
        if let Some(version) = self.slurm_version {
            return Ok(version);
        }
        let version = here::version().context(
            "Slurm is not on this machine, so its release is not known; name the release that is to read the files: \
             --slurm-version YY.MM",
        )?;
        eprintln!("softmig config: for Slurm {version}, which is on this machine");
        Ok(version)
    }
}

/// The type of a reservation that is not over, if the inventory has it nowhere. A site without `[[nodes]]` has its own.
fn type_of_no_node(policy: &Policy, now: i64) -> Option<&str> {
    let gpus = || policy.nodes().iter().flat_map(|nodes| nodes.gpus());
    let is_missing = |kind: &&str| gpus().all(|gpus| gpus.kind != *kind);
    let mut kinds = policy.reservables().iter().map(Reservable::kind);
    let is_kept = |kind: &&str| policy.is_reserved(kind, now);
    kinds.find(|kind| is_kept(kind) && is_missing(kind) && !policy.nodes().is_empty())
}

/// All files for a release of Slurm at a time, in seconds since 1970.
fn files(policy: &Policy, version: SlurmVersion, now: i64) -> Vec<Generated> {
    vec![
        softmig_conf::make(policy, version, now),
        gres_conf::make(policy, now),
        cgroup_conf::make(version),
        qos::make(policy),
        reservations::make(policy, version, now),
    ]
}

/// All texts below each other, each below its name.
fn as_one(files: &[Generated]) -> String {
    let texts = files
        .iter()
        .map(|file| format!("==> {} <==\n{}", file.name, file.text));
    texts.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
