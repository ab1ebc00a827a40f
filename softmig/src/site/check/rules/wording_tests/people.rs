//! Faults in limits, classes, gates and reserved GPUs: accounting, partitions, reservations and jobs.

use super::Example;
use super::cluster::found;
use crate::site::check::facts::{Accounting, Cluster};
use crate::site::check::finding::{Code, Finding};
use crate::site::check::rules;
use crate::site::check::rules::example::{
    KEPT, LIMITS, association, job, limited, node, policy_with, qos, reservation,
};

pub(super) fn examples() -> Vec<Example> {
    [
        accounting(),
        of_qos(),
        partitions(),
        classes(),
        gates(),
        reserved(),
    ]
    .concat()
}

/// The findings on a cluster that holds users to limits, after one change.
fn limits(more: &str, change: impl FnOnce(&mut Cluster)) -> Vec<Finding> {
    let mut cluster = limited();
    change(&mut cluster);
    rules::cluster(&policy_with(&format!("{LIMITS}{more}")), &cluster, 60)
}

fn accounting() -> Vec<Example> {
    let settings = [
        (Code::Accounting, "AccountingStorageType", ""),
        (
            Code::AccountingTres,
            "AccountingStorageTRES",
            "cpu,mem,gres/gpu,gres/shard",
        ),
        (
            Code::AccountingEnforce,
            "AccountingStorageEnforce",
            "associations",
        ),
        (Code::PriorityUnused, "PriorityWeightQOS", "0"),
        (Code::BillingMaxTres, "PriorityFlags", "MAX_TRES"),
    ]
    .into_iter()
    .map(|(code, key, value)| {
        let found = limits("", |cluster| cluster.settings.set(key, value));
        (code, found)
    });
    let mut all: Vec<Example> = settings.collect();
    let silent = limits("", |cluster| {
        cluster.accounting = Err("slurmdbd did not say".into())
    });
    all.push((Code::NotLookedAt, silent));
    all
}

fn of_qos() -> Vec<Example> {
    let changed = |change: &dyn Fn(&mut Accounting)| {
        limits("", |cluster| cluster.accounting.iter_mut().for_each(change))
    };
    let field = |key: &str, value: &str| changed(&|own| own.qos[1].fields.set(key, value));
    let person = |name: &str| association("teaching", name, &["normal"]);
    let gpus_only = |name: &str| {
        found("", |cluster| {
            let own = qos(name, &[("GrpTRES", "gres/gpu=4")]);
            cluster
                .accounting
                .iter_mut()
                .for_each(|all| all.qos.push(own.clone()));
        })
    };
    vec![
        (Code::QosMissing, changed(&|own| own.qos.truncate(1))),
        (Code::QosLimits, field("MaxTRESPerUser", "billing=3")),
        (Code::QosLimits, field("MaxWall", "")),
        (Code::QosPriority, field("Priority", "0")),
        (Code::QosFlags, field("Flags", "")),
        (
            Code::QosNotAllowed,
            changed(&|own| own.associations.push(person("bob"))),
        ),
        (
            Code::QosNotAllowed,
            changed(&|own| own.associations.extend(["bob", "eve"].map(person))),
        ),
        (Code::OtherQos, limits("other_qos = [\"long\"]\n", |_| {})),
        (Code::LimitGpuOnly, gpus_only("long")),
    ]
}

fn partitions() -> Vec<Example> {
    let partition = |more: &str, at: usize, key: &str, value: &str| {
        found(more, |cluster| {
            cluster.partitions[at].settings.set(key, value)
        })
    };
    let weights = "TRESBillingWeights";
    let mixed = found("", |cluster| {
        cluster.partitions[0].nodes.push("cpu1".into());
        cluster.partitions[0]
            .settings
            .set(weights, "GRES/gpu=4,GRES/shard=1");
    });
    let route = |to: &str| found(&format!("[[route]]\npartition = \"{to}\"\n"), |_| {});
    vec![
        (
            Code::BillingWeights,
            partition(LIMITS, 0, weights, "CPU=1.0"),
        ),
        (
            Code::BillingGpuOnly,
            partition("", 0, weights, "GRES/gpu=10.0"),
        ),
        (
            Code::BillingWithoutGpus,
            partition("", 1, weights, "GRES/gpu=4,GRES/shard=1"),
        ),
        (Code::BillingWithoutGpus, mixed),
        (
            Code::QosPartition,
            partition(LIMITS, 0, "AllowQos", "normal"),
        ),
        (
            Code::PartitionExclusive,
            partition(LIMITS, 0, "OverSubscribe", "EXCLUSIVE"),
        ),
        (
            Code::CpusBelowSlices,
            partition("", 0, "MaxCPUsPerNode", "63"),
        ),
        (Code::DefPerGpu, partition("", 0, "DefCpuPerGPU", "4")),
        (Code::RoutePartition, route("quick")),
        (Code::RouteGpus, route("cpu")),
    ]
}

/// A policy with these defaults, a class with these members, and more lines.
fn class(defaults: &str, members: &str, more: &str) -> String {
    format!("[defaults]\n{defaults}\n[classes.student]\nmembers = {{ {members} }}\n{more}")
}

fn classes() -> Vec<Example> {
    let with = |more: &str| found(more, |_| {});
    let never = |shards: u32, gpus: u32| {
        with(&format!(
            "[defaults]\nshards = {shards}\nwhole_gpus = {gpus}\n"
        ))
    };
    let unlimited = "shards = \"unlimited\"\nwhole_gpus = \"unlimited\"";
    let of_groups = class(
        "shards = 8\nwhole_gpus = 1",
        "groups = [2000]",
        "shards = 4\n",
    );
    let unknown = class(unlimited, "users = [\"alcie\"], accounts = [\"lab\"]", "");
    let coarse = "[gpu.a40]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\nslices = [2]\n";
    let coarse = rules::contradictions::check(
        &softmig_policy::Policy::parse(&format!("[defaults]\nshards = 1\n{coarse}")).unwrap(),
    );
    vec![
        (Code::ClassNever, never(3, 1)),
        (Code::ClassNever, coarse),
        (Code::ClassMembers, with(&unknown)),
        (Code::ClassGroups, with(&of_groups)),
    ]
}

fn gates() -> Vec<Example> {
    let gate = |what: &str, more: &str| {
        let gate = format!("[[gate]]\nwhat = \"{what}\"\nreservation = [\"course_.*\"]\n{more}");
        found(&gate, |cluster| cluster.reservations = Ok(Vec::new()))
    };
    let accounts = "[[gate]]\nwhat = \"slice\"\nreservation = [\"r\"]\naccounts = [\"a\"]\n";
    let unlimited = "shards = \"unlimited\"\nwhole_gpus = \"unlimited\"";
    let members = "users = [\"alice\"], accounts = [\"a\", \"c\"], groups = [7]";
    let of_class = class(unlimited, members, accounts);
    vec![
        (Code::GateReservation, gate("slice", "")),
        (
            Code::GatePartition,
            gate("slice", "partitions = [\"gpu\", \"old\"]\n"),
        ),
        (
            Code::GateAccount,
            gate("slice", "accounts = [\"teachings\"]\n"),
        ),
        (Code::GateGres, gate("fpga", "")),
        (Code::GateClass, found(&of_class, |_| {})),
    ]
}

/// A GPU that is reserved for alice.
fn reserved() -> Vec<Example> {
    let at = |now: i64, gres: &str| {
        let mut cluster = limited();
        cluster.nodes[0] = node("gpu1", gres);
        rules::windows(&policy_with(KEPT), Some(&cluster), now)
    };
    let (shared, kept) = (
        "gpu:l40s:4,shard:l40s:16",
        "gpu:l40s:3,gpu:l40s_r:1,shard:l40s:12,shard:l40s_r:1",
    );
    let moved = |nodes: &[&str], tres: &str| {
        found(KEPT, |cluster| {
            cluster.nodes[0] = node("gpu1", kept);
            let name = "softmig_l40s_r_19700101000100";
            cluster.reservations = Ok(vec![reservation(name, nodes, tres)]);
        })
    };
    let jobs = |now: i64, count: usize| {
        let mut cluster = limited();
        let jobs = (1..=count).map(|id| job(&id.to_string(), "bob", "b", "gpu:l40s_r:1"));
        cluster.jobs = Ok(jobs.collect());
        rules::cluster(&policy_with(KEPT), &cluster, now)
    };
    let unknown = KEPT.replace("alice", "alcie");
    vec![
        (Code::ReservableWindow, at(0, kept)),
        (Code::ReservableWindow, at(60, kept)),
        (Code::ReservableOver, at(120, kept)),
        (Code::ReservableOver, at(120, shared)),
        (Code::ReservableType, at(60, shared)),
        (Code::ReservableHolder, found(&unknown, |_| {})),
        (Code::ReservableMoved, moved(&["gpu2"], "gres/gpu:l40s_r=1")),
        (Code::ReservableMoved, moved(&[], "cpu=8")),
        (Code::ReservableJobs, jobs(60, 1)),
        (Code::ReservableJobs, jobs(120, 8)),
    ]
}
