//! softmig-reservations.sh: Slurm's reservations for reserved GPUs.

use super::text::{Generated, Text};
use super::words::cores_in_sockets;
use crate::settings::accounting;
use softmig_policy::Policy;
use softmig_policy::config::inventory::NodeGpus;
use softmig_policy::config::reservable::{Holder, Reservable, Window};
use softmig_policy::slurm::release::SlurmVersion;

/// The script's lines for each.
pub(super) const FUNCTIONS: &str = include_str!("reservations.sh");

pub(super) fn make(policy: &Policy, version: SlurmVersion, now: i64) -> Generated {
    let mut text = Text::default();
    text.line("#!/bin/sh");
    let why_not = why_not(policy, version);
    if let Some(why_not) = why_not {
        text.note(&format!(
            "softmig-reservations.sh: nothing to do. {why_not}"
        ));
        return text.file("softmig-reservations.sh");
    }
    text.note(
        "softmig-reservations.sh: Slurm's reservations for reserved GPUs, made from policy.toml by\n\
         `softmig config`.\n\
         \n\
         Run it as Slurm's administrator after each change, and once after a time is over. Others are kept off such a GPU by its\n\
         type alone; the reservation also keeps its part of the node's cores for its holder, whose jobs are drawn in without\n\
         --reservation (MAGNETIC). They go on when its time is over (FLEX), as Slurm would else end all that it drew in. It stays on its\n\
         nodes also while they are drained (STATIC_ALLOC).",
    );
    text.line(FUNCTIONS.trim_end());
    for reservable in policy.reservables() {
        one(&mut text, policy, reservable, now);
    }
    text.why("Those whose time is over, or that policy.toml has no longer.");
    text.line("tidy");
    text.file("softmig-reservations.sh")
}

/// Why the reservations cannot be made, if they cannot.
fn why_not(policy: &Policy, version: SlurmVersion) -> Option<String> {
    let keeps = "The type of its own keeps others off such a GPU, but not off the node's CPUs; a reservation of the whole node would:\n  \
                 scontrol create reservation ReservationName=NAME Nodes=NODE Users=USER StartTime=... EndTime=... Flags=IGNORE_JOBS";
    if policy.reservables().is_empty() {
        return Some("policy.toml has no [[reservable]].".to_string());
    }
    if !version.reserves_gpus() {
        return Some(format!(
            "Slurm {version} cannot reserve single GPUs ({} can).\n{keeps}",
            SlurmVersion::RESERVES_GPUS
        ));
    }
    if accounting::for_policy(policy).is_none() {
        return Some(format!(
            "Slurm reserves only what slurmdbd counts, and no class in policy.toml\nhas a limit that needs it.\n{keeps}"
        ));
    }
    None
}

fn one(text: &mut Text, policy: &Policy, reservable: &Reservable, now: i64) {
    let kind = reservable.kind();
    text.why(&format!(
        "{kind} for {}, {}: {}",
        reservable.holder().called(),
        reservable.utc(),
        reservable.reason()
    ));
    if reservable.window(now) == Window::Over {
        text.note("This time is over.");
        return;
    }
    let (mut gpus, mut cores) = (0, 0);
    let mut names = Vec::new();
    for nodes in policy.nodes() {
        let count = |own: &dyn Fn(&NodeGpus) -> bool| -> u64 {
            let gpus = nodes.gpus().iter().filter(|gpus| own(gpus));
            gpus.map(|gpus| u64::from(gpus.count)).sum()
        };
        let own = count(&|gpus| gpus.kind == kind);
        if own == 0 {
            continue;
        }
        let Some(all_cores) = cores_in_sockets(nodes) else {
            text.note(&format!(
                "No reservation, since [[nodes]] does not say what sockets {names} has: Slurm takes a core of each socket with a\n\
                 GPU, and without Sockets= and CoresPerSocket= in `slurm` each CPU is one.",
                names = nodes.names()
            ));
            return;
        };
        gpus += own;
        names.push(nodes.names());
        // The GPU's part of its node, and one core at least.
        cores += (all_cores * own / count(&|_| true)).max(own);
    }
    if gpus == 0 {
        text.note("No reservation, since [[nodes]] has no such GPU.");
        return;
    }
    let holder = match reservable.holder() {
        Holder::User(name) => format!("Users={name}"),
        Holder::Account(name) => format!("Accounts={name}"),
    };
    // A name can have a domain before it, behind which a shell would look for more.
    let holder = if holder.contains('\\') {
        format!("'{holder}'")
    } else {
        holder
    };
    text.line(format!(
        "reservation {} {} {} {holder} Flags=MAGNETIC,FLEX,IGNORE_JOBS,STATIC_ALLOC Nodes={} TRES=cpu={cores},gres/gpu:{kind}={gpus}",
        reservable.reservation(),
        reservable.start().unwrap_or(0),
        reservable.end(),
        names.join(",")
    ));
}
