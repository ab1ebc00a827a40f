//! softmig-qos.sh: makes the QOS of each class what the policy says.

use super::text::{Generated, Text};
use crate::settings::qos;
use softmig_policy::Policy;

/// The script's lines for each QOS. sacctmgr adds limits to those that there are, so what is to be a limit no longer has to
/// be taken out by name.
pub(super) const FUNCTIONS: &str = include_str!("qos.sh");

/// The script; it does nothing where the policy has no limits.
pub(super) fn make(policy: &Policy) -> Generated {
    let mut text = Text::default();
    let all = qos::all(policy);
    text.line("#!/bin/sh");
    if all.is_empty() {
        text.note(
            "softmig-qos.sh: nothing to do. No class in policy.toml has a limit or a priority.",
        );
        return text.file("softmig-qos.sh");
    }
    text.note(
        "softmig-qos.sh: the QOS in which Slurm holds each class to its limits, made from policy.toml by `softmig config`.\n\
         \n\
         Run it as an administrator of Slurm's accounting, once slurmctld and slurmdbd run with softmig.conf, and again after each\n\
         change: it changes what changed. The cluster is the one that scontrol talks to, or the one that is named.\n\
         It changes no QOS that softmig has not made, unless told to.\n\
         usage: softmig-qos.sh [--take-over | --remove] [CLUSTER]\n\
         --remove deletes these QOS, once softmig.conf is no longer in slurm.conf.",
    );
    text.line(FUNCTIONS.trim_end());
    let names: Vec<&str> = all.iter().map(|qos| qos.name.as_str()).collect();
    text.line(format!(
        "\nif [ -n \"$remove\" ]; then\n    forget {}\n    exit\nfi",
        names.join(" ")
    ));
    text.line(format!("ask {}", names.join(" ")));
    text.why(
        "billing is shards: of slices, and of whole GPUs those that their type has (TRESBillingWeights in softmig.conf).\n\
         DenyOnLimit: what could never start is refused at once, and not left waiting.",
    );
    for qos in &all {
        text.note(&qos.whose);
        text.line(format!(
            "qos {} '{}' '{}' {qos}",
            qos.name, qos.per_user, qos.per_job
        ));
    }
    text.why(
        "In Slurm each user may use every QOS. Which one a job has is decided by job_submit, from policy.toml; a\n\
         user cannot choose another. Each account gets them, since slurmctld of Slurm 24.11 learns what the account root gets for\n\
         the accounts below it, but not for their users.",
    );
    for whom in ["account", "user"] {
        text.line(format!("allow {whom} {}", names.join(" ")));
    }
    text.why(
        "A class that is no longer in policy.toml leaves its QOS behind; `sacctmgr delete qos NAME` removes it.",
    );
    text.file("softmig-qos.sh")
}
