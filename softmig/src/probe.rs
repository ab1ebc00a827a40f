//! `softmig probe`: the GPUs of this node as NVML shows them, and what to write of them into policy.toml.
//!
//! `catalogue` makes the entries, `notes` has what needs somebody's attention, `text` and `json` are the two ways to print it
//! all. Asking NVML is softmig-nvml's.

mod catalogue;
mod json;
mod notes;
mod text;

use anyhow::{anyhow, bail};
use catalogue::Catalogue;
use clap::Args;
use notes::Note;
use softmig_node::gpu::{Card, installed};
use softmig_node::node::Node;
use softmig_nvml::{Devices, Narrowed, explained, remedy, whole_node};
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
    /// Print one JSON object (docs/probe.md)
    #[arg(long)]
    json: bool,
}

/// All that is known of a node.
struct Findings {
    /// The node's name.
    host: String,
    devices: Devices,
    /// GPUs that the driver lists and NVML did not show.
    unseen: Vec<Card>,
    catalogue: Catalogue,
    notes: Vec<Note>,
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
        let findings = Findings::new(host(), devices, &installed(&node.gpus), container);
        let text = match self.json {
            true => json::of(&findings)?,
            false => text::of(&findings),
        };
        crate::say::text(format_args!("{text}"));
        Ok(match findings.is_complete() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }
}

impl Findings {
    fn new(host: String, devices: Devices, cards: &[Card], container: bool) -> Self {
        let is_seen = |card: &&Card| devices.gpus.iter().any(|gpu| gpu.minor == Some(card.minor));
        let mut unseen: Vec<Card> = cards
            .iter()
            .filter(|card| !is_seen(card))
            .cloned()
            .collect();
        unseen.sort_by_key(|card| card.minor);
        let mut findings = Self {
            host,
            catalogue: Catalogue::of(&devices),
            devices,
            unseen,
            notes: Vec::new(),
        };
        findings.notes = notes::of(&findings, container);
        findings
    }

    /// Whether this is all that the node has.
    fn is_complete(&self) -> bool {
        self.devices.is_complete() && self.unseen.is_empty()
    }
}

/// Fails where the library shows this user no more than his jobs may have, in whatever process.
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

/// The name by which Slurm knows the node, as a rule.
fn host() -> String {
    let names = rustix::system::uname();
    let full = names.nodename().to_string_lossy();
    full.split('.').next().unwrap_or_default().to_owned()
}
