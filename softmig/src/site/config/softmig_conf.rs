//! softmig.conf: what slurm.conf includes.

use super::text::{Generated, Text};
use super::words::{self, word};
use crate::settings::accounting::{self, Accounting};
use crate::settings::slurm_conf::{self, Wanted};
use crate::settings::{gres, partitions};
use softmig_policy::Policy;
use softmig_policy::config::choices::Placement;
use softmig_policy::slurm::release::SlurmVersion;

pub(super) fn make(policy: &Policy, version: SlurmVersion, now: i64) -> Generated {
    let accounting = accounting::for_policy(policy);
    let wanted = slurm_conf::for_policy(policy, version);
    let mut text = Text::default();
    text.note(&format!(
        "softmig.conf: what softmig needs of Slurm {version}, made from policy.toml by `softmig config`.\n\
         \n\
         Make it again after a change of policy.toml. slurm.conf takes it in with its first line:\n  \
         include softmig.conf\n\
         If a setting is here and in slurm.conf, the last one counts, which is then slurm.conf's: `softmig check` tells of it\n\
         (SETTING_TWICE). Words of your own for a list here go into [slurm] of policy.toml. If a node or partition is in both,\n\
         slurmctld does not start: take it out of slurm.conf."
    ));
    programs(&mut text, policy, &wanted);
    scheduling(&mut text, policy, &wanted, version);
    control_groups(&mut text, policy, &wanted);
    host_memory(&mut text, policy);
    limits(&mut text, policy, &wanted, accounting.as_ref());
    nodes(&mut text, policy, now);
    all_partitions(&mut text, policy, accounting.as_ref(), now);
    text.file("softmig.conf")
}

/// The line of a setting; in a list, with the site's own words behind those of softmig.
fn setting(text: &mut Text, policy: &Policy, wanted: &Wanted, key: &str) {
    let words = wanted.iter().filter(|(own, _)| *own == key);
    let mut all: Vec<&str> = words
        .flat_map(|(_, words)| words)
        .map(String::as_str)
        .collect();
    for own in policy.slurm_words().get(key) {
        if !all.iter().any(|word| word.eq_ignore_ascii_case(own)) {
            all.push(own);
        }
    }
    text.line(format!("{key}={}", all.join(",")));
}

fn programs(text: &mut Text, policy: &Policy, wanted: &Wanted) {
    text.why(
        "Decides on requests for part of a GPU, in slurmctld, by job_submit.lua beside slurm.conf.",
    );
    setting(text, policy, wanted, "JobSubmitPlugins");
    text.note(
        "The same answer in the user's own sbatch, salloc and srun, by cli_filter.lua beside slurm.conf. Without it srun cannot\n\
         ask for a slice.",
    );
    setting(text, policy, wanted, "CliFilterPlugins");
    text.why(
        "Write a job's limits on its node before it starts, and remove them after its end. Programs of your own:\n\
         from Slurm 24.11 on, Prolog= and Epilog= of slurm.conf run as well. In older releases the last line counts alone, so let\n\
         your own program there run softmig's, too.",
    );
    setting(text, policy, wanted, "Prolog");
    setting(text, policy, wanted, "Epilog");
    text.note(
        "The prolog runs when nodes are given to a job, not at its first step; and what a user starts over ssh counts as the job's.",
    );
    setting(text, policy, wanted, "PrologFlags");
}

fn scheduling(text: &mut Text, policy: &Policy, wanted: &Wanted, version: SlurmVersion) {
    text.why("A slice is a number of shards of one GPU.");
    if let Some(mps) = policy.mps() {
        text.note(&format!(
            "mps, because policy.toml has [legacy.mps]: Slurm's clients send --gres=mps:{} only where they know the name. No node\n\
             has any.",
            mps.units_per_gpu()
        ));
    }
    setting(text, policy, wanted, "GresTypes");
    setting(text, policy, wanted, "SelectType");
    let spread = policy.placement == Placement::Spread;
    match (spread, version.spreads_shards()) {
        (true, true) => text.note(
            "LL_SHARED_GRES: a slice goes to the GPU of its node with the most shards free ([placement] shards = \"spread\").",
        ),
        (true, false) => text.note(&format!(
            "[placement] shards = \"spread\" needs Slurm {}: this release always fills one GPU after the other, and does not\n\
             start with LL_SHARED_GRES.",
            SlurmVersion::SPREADS_SHARDS
        )),
        (false, _) => text.note(
            "A node's GPUs fill one after the other, so that others stay free for jobs on whole ones ([placement] shards = \"pack\").",
        ),
    }
    text.note("Never MULTIPLE_SHARING_GRES_PJ: it spreads one slice over several GPUs.");
    setting(text, policy, wanted, "SelectTypeParameters");
}

fn control_groups(text: &mut Text, policy: &Policy, wanted: &Wanted) {
    text.why(
        "A job lives in a control group: that is how a process is known to be the job's, and what fences it off from other GPUs\n\
         (cgroup.conf).",
    );
    setting(text, policy, wanted, "ProctrackType");
    setting(text, policy, wanted, "TaskPlugin");
}

/// Under CR_Core_Memory a job that names no memory takes the node's.
fn host_memory(text: &mut Text, policy: &Policy) {
    let each = policy.nodes().iter().map(words::memory_per_cpu);
    let least = each
        .collect::<Option<Vec<u64>>>()
        .and_then(|each| each.into_iter().min());
    text.why("A job that names no memory would take the node's, and no second slice would fit beside it.");
    match least {
        Some(memory) => {
            text.note("This is what each CPU has of it on the node that has the least.");
            text.line(format!("DefMemPerCPU={memory}"));
        }
        None => text.note(
            "Add to slurm.conf, as far as it is not there:\n  DefMemPerCPU=4000\n\
             [[nodes]] with CPUs= and RealMemory= in `slurm` would let this be worked out.",
        ),
    }
}

fn limits(text: &mut Text, policy: &Policy, wanted: &Wanted, accounting: Option<&Accounting>) {
    let Some(accounting) = accounting else {
        text.why(
            "No class in policy.toml has a limit or a priority, so Slurm has nothing to count, and slurmdbd is not needed.",
        );
        return;
    };
    text.why(
        "What a class may hold is counted by slurmctld in a QOS for each class, which slurmdbd keeps (softmig-qos.sh). Where slurmdbd\n\
         is, AccountingStorageHost, is for slurm.conf to say. Without slurmdbd slurmctld does not start with these lines.",
    );
    setting(text, policy, wanted, "AccountingStorageType");
    setting(text, policy, wanted, "AccountingStorageTRES");
    setting(text, policy, wanted, "AccountingStorageEnforce");
    if accounting.priority {
        text.note(
            "Classes have priorities, which count only where a QOS counts in a job's priority. The weight is the site's to choose\n\
             beside its other PriorityWeight lines.",
        );
        setting(text, policy, wanted, "PriorityType");
        setting(text, policy, wanted, "PriorityWeightQOS");
    }
}

fn nodes(text: &mut Text, policy: &Policy, now: i64) {
    if policy.nodes().is_empty() {
        text.why(
            "policy.toml has no [[nodes]], so the lines of the nodes are for slurm.conf. Each names its GPUs and their shards, both\n\
             with the type: with untyped shards jobs start, but every step in them fails. For COUNT GPUs of a type that is",
        );
        for gpu in policy.gpus() {
            let shards = gres::shards_of_type(policy, gpu.name());
            text.note(&match shards {
                Some(shards) => format!(
                    "  NodeName=... Gres=gpu:{name}:COUNT,shard:{name}:COUNT times {shards}",
                    name = gpu.name()
                ),
                None => format!("  NodeName=... Gres=gpu:{}:COUNT", gpu.name()),
            });
        }
        return;
    }
    text.why(
        "The nodes of policy.toml. Shards are named with their type: with untyped ones jobs start, but every step in them fails.",
    );
    for (nodes, gres) in policy.nodes().iter().zip(gres::all(policy, now)) {
        // GRES of the site's own, such as licences of a node.
        let own = word(nodes.slurm(), "Gres").map_or(String::new(), |own| format!(",{own}"));
        let mut line = format!("NodeName={} Gres={gres}{own}", nodes.names());
        for word in nodes.slurm().split_ascii_whitespace() {
            let is_gres = word
                .split_once('=')
                .is_some_and(|(name, _)| name.eq_ignore_ascii_case("Gres"));
            if !is_gres {
                line.push(' ');
                line += word;
            }
        }
        text.line(line);
    }
}

fn all_partitions(text: &mut Text, policy: &Policy, accounting: Option<&Accounting>, now: i64) {
    let mut weighed = String::new();
    if let Some(weights) = accounting.and_then(|accounting| accounting.weights.as_ref()) {
        weighed = format!(" TRESBillingWeights=\"{weights}\"");
        text.why(&format!(
            "A whole GPU counts as its shards, so that one limit holds for slices and whole GPUs. Each PartitionName line in\n\
             slurm.conf that has nodes with GPUs needs these words:\n \
             {weighed}\n\
             A job without GPUs weighs nothing there, also in fair share. So the words are not for other partitions, and not for\n\
             PartitionName=DEFAULT."
        ));
    }
    let partitions = partitions::all(policy, now);
    if partitions.is_empty() {
        return;
    }
    text.why("Where slice jobs go whose users name no partition ([[route]]). slurm.conf has no line of its own for these.");
    for partition in partitions {
        let line = partition.to_string();
        let own = word(&line, "TRESBillingWeights").is_some();
        let weighed = if own { "" } else { &weighed };
        if partition.nodes.is_empty() {
            text.note(&format!(
                "[[nodes]] in policy.toml has no GPUs for {}; write its nodes in slurm.conf:\n  {line}{weighed} Nodes=...",
                partition.name
            ));
        } else {
            text.line(format!("{line}{weighed}"));
        }
    }
}
