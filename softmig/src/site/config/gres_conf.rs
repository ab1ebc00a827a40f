//! gres.conf: the devices of each node, and the shards that each is counted in.

use super::text::{Generated, Text};
use crate::settings::gres::{self, NodeGres, device_files};
use softmig_policy::Policy;

pub(super) fn make(policy: &Policy, now: i64) -> Generated {
    let mut text = Text::default();
    text.note(
        "gres.conf: the GPUs of each node and their shards, made from policy.toml by `softmig config`.\n\
         The same file for all nodes, beside slurm.conf.",
    );
    text.why(
        "Off, so that a type is called what policy.toml calls it; NVML's own names are longer.",
    );
    text.line("AutoDetect=off");
    let all = gres::all(policy, now);
    if all.is_empty() {
        text.why(
            "policy.toml has no [[nodes]]. With them the lines of all nodes would be here, such as\n  \
             [[nodes]]\n  names = \"gpu[01-04]\"\n  gpus = [\"TYPE:COUNT\"]\n\
             All GPUs of a node belong here in the order of their devices: softmig takes Slurm's index of a GPU for the\n\
             number of its device.",
        );
    }
    for node in &all {
        if node.has_mig() {
            with_mig(&mut text, policy, node);
        } else {
            without_mig(&mut text, node);
        }
    }
    text.file("gres.conf")
}

/// Each GPU has its device, in their order: softmig takes Slurm's index of a GPU for the number of its device.
fn without_mig(text: &mut Text, node: &NodeGres) {
    let names = &node.names;
    text.why(&format!("{names}: {node}"));
    for gres in &node.types {
        let (kind, files) = (&gres.kind, device_files(&gres.minors));
        text.line(format!(
            "NodeName={names} Name=gpu Type={kind} File={files}"
        ));
    }
    let shared = node.types.iter().any(|gres| gres.shared);
    if shared {
        text.note(
            "A shard is part of one GPU. The type is here and on the node's line in softmig.conf.",
        );
    }
    if shared && node.types.iter().any(|gres| !gres.shared) {
        text.note(
            "No job can request the shard of a GPU that is not shared; Slurm drains a node where only some GPUs have shards.",
        );
    }
    for gres in node.types.iter().filter(|gres| gres.shards() > 0) {
        let (kind, files) = (&gres.kind, device_files(&gres.minors));
        let count = gres.shards();
        text.line(format!(
            "NodeName={names} Name=shard Type={kind} Count={count} File={files}"
        ));
    }
}

/// MIG instances have no numbers that policy.toml could give: NVML says what there is.
fn with_mig(text: &mut Text, policy: &Policy, node: &NodeGres) {
    let names = &node.names;
    text.why(&format!(
        "{names}: {node}\n\
         MIG instances are found through NVML; `slurmd -G` on the node lists them. A type in policy.toml must be part of the\n\
         name that NVML gives, in lower case and with '_' for blanks."
    ));
    text.line(format!("NodeName={names} AutoDetect=nvml"));
    for gres in node.types.iter().filter(|gres| gres.shards() > 0) {
        let (kind, count) = (&gres.kind, gres.shards());
        text.note("No line can name an instance for its shards; Slurm spreads them evenly.");
        text.line(format!(
            "NodeName={names} Name=shard Type={kind} Count={count}"
        ));
    }
    let elsewhere = |kind: &str| gres::shards_of_type(policy, kind).is_some();
    let types: Vec<&str> = node
        .types
        .iter()
        .filter(|gres| !gres.shared && elsewhere(&gres.kind))
        .map(|gres| gres.kind.as_str())
        .collect();
    if !types.is_empty() {
        text.note(&format!(
            "No shards of {} here: beside MIG instances Slurm cannot say which GPUs have them. They can be had whole.",
            types.join(" and ")
        ));
    }
}
