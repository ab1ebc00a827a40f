//! `softmig probe`: the GPUs of this node as NVML shows them, and what to write of them into policy.toml.
//!
//! `catalogue` makes the entries, `notes` has what an administrator should look at, `text` and `json` are the two ways to
//! print it all. Asking NVML is softmig-nvml's.

mod catalogue;
mod findings;
mod json;
mod notes;
mod text;

use crate::ask::here::node_words;
use crate::ask::slurmd::host_name;
use anyhow::{anyhow, bail};
use clap::Args;
use findings::Findings;
use softmig_node::gpu::installed;
use softmig_node::node::Node;
use softmig_node::whole_node::{Narrowed, whole_node};
use softmig_nvml::{Devices, explained, remedy};
use std::path::Path;
use std::process::ExitCode;

/// Shows this node's GPUs and MIG instances as NVML has them, and the policy.toml entries for them.
///
/// Reads only. Types are called by the product's name: they must be those of gres.conf. How finely a GPU is cut is for you
/// to decide, and marked so.
///
/// Exit status: 0 everything was read; 1 NVML does not answer, or not for all GPUs; 2 wrong usage.
#[derive(Args)]
pub(crate) struct Probe {
    /// Print one JSON object (docs/check.md)
    #[arg(long)]
    json: bool,
    /// Print a policy.toml: the entries, and all else as comments
    #[arg(long, conflicts_with = "json")]
    toml: bool,
}

impl Probe {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let node = Node::this_machine();
        let container = match whole_node() {
            Ok(()) => false,
            // Perhaps all of the node's GPUs were given to it.
            Err(Narrowed::Container) => true,
            Err(narrowed) => return Err(narrowed.into()),
        };
        be_without_jobs(&node.run)?;
        let devices = Devices::of_this_node()
            .map_err(|error| anyhow!("{}; {}", explained(&error), remedy(&error)))?;
        let mut findings = Findings::new(host_name(), devices, &installed(&node.gpus));
        findings.notes = notes::all(&findings, container);
        findings.slurm = node_words();
        let text = match (self.json, self.toml) {
            (true, _) => json::encode(&findings)?,
            (false, true) => text::toml(&findings),
            (false, false) => text::page(&findings),
        };
        crate::output::say::text(format_args!("{text}"));
        Ok(if findings.is_complete() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

/// Fails where the library shows this user no more than the user's jobs may have.
fn be_without_jobs(run: &Path) -> anyhow::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let jobs = std::fs::read_dir(run.join("uid").join(user.to_string()));
    if jobs.is_ok_and(|mut jobs| jobs.next().is_some()) {
        bail!(
            "you have jobs with slices on this node, and are shown no more than those; run it as root, with sudo"
        );
    }
    Ok(())
}
