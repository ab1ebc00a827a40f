//! Faults in Slurm's settings and in the GPUs of its nodes.

use super::Example;
use crate::site::check::facts::{
    Cluster, GresLine, InForce, Lines, Lua, LuaPlugins, Settings, Version,
};
use crate::site::check::finding::{Code, Finding};
use crate::site::check::rules;
use crate::site::check::rules::example::{
    KEPT, LIMITS, cluster, declared, node, policy_with, reservation, setting,
};
use softmig_policy::Policy;

/// The findings on the cluster after one change, with these lines added to the policy.
pub(super) fn found(more: &str, change: impl FnOnce(&mut Cluster)) -> Vec<Finding> {
    let mut cluster = cluster();
    change(&mut cluster);
    let policy = policy_with(more);
    let mut found = rules::cluster(&policy, &cluster, 60);
    found.extend(rules::windows(&policy, Some(&cluster), 60));
    found
}

pub(super) fn examples() -> Vec<Example> {
    let all = [settings(), control_groups(), scripts(), gpus(), files()];
    all.concat()
}

const SPREAD: &str = "[placement]\nshards = \"spread\"\n";
const EXTRA: &str = "[tag]\nfield = \"extra\"\n";
const METRICS: &str = "[metrics]\ntextfile = \"/var/lib/softmig/softmig.prom\"\n";
const MPS: &str = "[legacy.mps]\ntype = \"l40s\"\nunits_per_gpu = 320\n";

/// One setting of slurm.conf.
fn settings() -> Vec<Example> {
    let parameters = "SelectTypeParameters";
    let scheduler = ("SchedulerParameters", "extra_constraints");
    let run_in_job = ("PrologFlags", "RunInJob");
    let tmpfs = ("JobContainerType", "job_container/tmpfs");
    let recent = [
        (Code::SelectType, "", ("SelectType", "select/linear")),
        (Code::GresTypes, "", ("GresTypes", "tmpdisk")),
        (
            Code::MultipleSharingGresPj,
            "",
            (parameters, "MULTIPLE_SHARING_GRES_PJ"),
        ),
        (Code::Placement, "", (parameters, "LL_SHARED_GRES")),
        (Code::Placement, SPREAD, (parameters, "")),
        (Code::Prolog, "", ("Prolog", "")),
        (Code::Epilog, "", ("Epilog", "")),
        (Code::NotLookedAt, "", ("Prolog", "/etc/slurm/prolog.sh")),
        (Code::PrologFlags, "", ("PrologFlags", "Serial")),
        (Code::JobSubmit, "", ("JobSubmitPlugins", "")),
        (Code::CliFilter, "", ("CliFilterPlugins", "")),
        (
            Code::Proctrack,
            "",
            ("ProctrackType", "proctrack/linuxproc"),
        ),
        (Code::Proctrack, "", ("ProctrackType", "")),
        (Code::ConstrainDevices, "", ("TaskPlugin", "task/affinity")),
        (Code::TagField, EXTRA, scheduler),
        (Code::TagField, "", scheduler),
        (Code::LegacyMps, MPS, ("GresTypes", "gpu,shard")),
        (Code::PrivateData, METRICS, ("PrivateData", "jobs")),
        (Code::DefPerGpu, "", ("DefCpuPerGPU", "4")),
        (Code::DefPerGpu, "", ("JobDefaults", "DefMemPerGPU=100")),
        (
            Code::SpecResources,
            LIMITS,
            ("AllowSpecResourcesUsage", "YES"),
        ),
    ];
    let old = [
        (Code::SelectType, "", ("SelectType", "")),
        (Code::LlSharedGresTooOld, "", (parameters, "LL_SHARED_GRES")),
        (Code::PlacementAlwaysPacks, SPREAD, (parameters, "")),
        (Code::TagField, EXTRA, ("SchedulerParameters", "")),
    ];
    let of_release = |release: &'static str| {
        move |(code, more, (key, value)): (Code, &str, (&str, &str))| {
            let found = found(more, |cluster| {
                cluster.version = release.parse().ok();
                cluster.settings.set(key, value);
            });
            (code, found)
        }
    };
    let recent = recent.into_iter().map(of_release("24.11"));
    let mut all: Vec<Example> = recent.collect();
    all.extend(old.into_iter().map(of_release("22.05")));
    let own = found("", |cluster| {
        cluster.settings.set("Prolog", "/etc/slurm/prolog.sh");
        let texts = &mut cluster.own_scripts;
        texts.insert("/etc/slurm/prolog.sh".into(), "exit 0\n".into());
    });
    all.push((Code::Prolog, own));
    let private = found("", |cluster| {
        for (key, value) in [run_in_job, tmpfs] {
            cluster.settings.set(key, value);
        }
    });
    all.push((Code::PrologRunInJob, private));
    let unknown = found("", |cluster| cluster.version = None);
    all.push((Code::NotLookedAt, unknown));
    all
}

/// cgroup.conf.
fn control_groups() -> Vec<Example> {
    let cgroup = |release: &str, key: &str, value: &str| {
        found("", |cluster| {
            cluster.version = release.parse().ok();
            let mut settings: Settings = [("ConstrainDevices", "yes")].into_iter().collect();
            settings.set(key, value);
            cluster.cgroup = Ok(settings);
        })
    };
    let unseen = |cluster: &mut Cluster| cluster.cgroup = Err("no such file".into());
    vec![
        (
            Code::ConstrainDevices,
            cgroup("24.11", "ConstrainDevices", "no"),
        ),
        (
            Code::ConstrainDeviceMemory,
            cgroup("24.11", "ConstrainDeviceMemory", "yes"),
        ),
        (Code::CgroupSluid, cgroup("26.05.1", "CgroupPlugin", "")),
        (Code::CgroupSluid, cgroup("26.05.5", "CgroupPlugin", "")),
        (Code::NotLookedAt, found("", unseen)),
    ]
}

/// The Lua scripts and modules, and the policy that slurmctld reads.
fn scripts() -> Vec<Example> {
    let scripts = |change: &dyn Fn(&mut LuaPlugins)| found("", |cluster| change(&mut cluster.lua));
    let lua = |change: &dyn Fn(&mut Lua)| {
        found("", |cluster| {
            let both = [&mut cluster.lua.job_submit, &mut cluster.lua.cli_filter];
            both.into_iter()
                .flat_map(|plugin| &mut plugin.lua)
                .for_each(change);
        })
    };
    let text = |text: &str| Ok(Some(text.to_string()));
    let first = || Some(("/usr/lib/liblua.so".into(), Version(5, 4)));
    let in_force = |closed: Option<&str>, last_good: Option<&str>| {
        found("", |cluster| {
            cluster.in_force = Some(InForce {
                user: "slurm".into(),
                closed: closed.map(Into::into),
                last_good: last_good.map(Into::into),
            });
        })
    };
    let last_good = Some("/var/spool/slurmctld/softmig-policy.toml");
    vec![
        (
            Code::JobSubmit,
            scripts(&|lua| lua.job_submit.script = Ok(None)),
        ),
        (
            Code::JobSubmit,
            scripts(&|lua| lua.job_submit.script = text("return 0")),
        ),
        (
            Code::CliFilterScript,
            scripts(&|lua| lua.cli_filter.script = Ok(None)),
        ),
        (
            Code::CliFilter,
            scripts(&|lua| lua.cli_filter.script = text("return 0")),
        ),
        (
            Code::CliFilter,
            scripts(&|lua| lua.cli_filter.script = text("softmig_cli_filter")),
        ),
        (Code::LuaModule, lua(&|lua| lua.module.built_for = None)),
        (
            Code::LuaModule,
            lua(&|lua| lua.module.built_for = Some(Err("it is not ELF".into()))),
        ),
        (
            Code::LuaVersion,
            lua(&|lua| lua.module.built_for = Some(Ok(Version(5, 4)))),
        ),
        (
            Code::LuaGlibc,
            lua(&|lua| lua.module.newer_glibc = Some((Version(2, 38), Version(2, 28)))),
        ),
        (Code::LuaStray, lua(&|lua| lua.first = first())),
        (
            Code::PolicyUnreadable,
            in_force(Some(Policy::PATH), last_good),
        ),
        (Code::PolicyUnreadable, in_force(Some("/etc/softmig"), None)),
        (Code::PolicyInForce, in_force(None, last_good)),
    ]
}

/// GPUs and shards of a node, and of [[nodes]] in the policy.
fn gpus() -> Vec<Example> {
    const MIG: &str =
        "[gpu.\"h100_1g.10gb\"]\nmemory_mib = 9856\nreserved_mib = 4\nshards = 1\nmig = true\n";
    const UNCUT: &str = "[gpu.t4]\nmemory_mib = 15360\nreserved_mib = 400\nshards = 1\n";
    const PLAIN: &str = "plain_types = [\"v100\"]\n";
    const BESIDE: &str = "gpu:l40s:3,gpu:v100:1,shard:l40s:12";
    let with = |(code, more, release, gres): (Code, &str, &str, &str)| {
        let found = found(more, |cluster| {
            cluster.version = release.parse().ok();
            cluster.nodes[0] = node("gpu1", gres);
        });
        (code, found)
    };
    let nodes = |names: &str, gpus: &str| {
        let entry = format!("[[nodes]]\nnames = \"{names}\"\ngpus = [{gpus}]\n");
        found(&entry, |_| {})
    };
    let cpus = |cluster: &mut Cluster| cluster.nodes[0].cpus = Some(15);
    let mut all = vec![
        (Code::NodeMissing, nodes("gpu[1,9]", "\"l40s:4\"")),
        (Code::NodeGpus, nodes("gpu[1-2]", "\"l40s:2\"")),
        (Code::NodeGpus, nodes("cpu1", "\"l40s:2\"")),
        (Code::NodeUnlisted, nodes("gpu[1-2]", "\"l40s:4\"")),
        (Code::CpusBelowSlices, found("", cpus)),
    ];
    let of_nodes = [
        (
            Code::MpsAndShard,
            "",
            "24.11",
            "gpu:l40s:4,shard:l40s:16,mps:l40s:400",
        ),
        (Code::GpusUntyped, "", "24.11", "gpu:4,shard:l40s:16"),
        (Code::GpusUnknown, "", "24.11", "gpu:v100:4"),
        (Code::ShardsUntyped, "", "24.11", "gpu:l40s:4,shard:16"),
        (Code::ShardsUneven, "", "24.11", "gpu:l40s:4,shard:l40s:15"),
        (
            Code::ShardsUneven,
            "",
            "24.11",
            "gpu:l40s:4,shard:l40s:16,shard:h200:8",
        ),
        (Code::ShardsPerGpu, "", "24.11", "gpu:l40s:4,shard:l40s:32"),
        (Code::ShardsPerGpu, UNCUT, "24.11", "gpu:t4:4,shard:t4:8"),
        (Code::ShardsUnknown, "", "24.11", "gpu:v100:4,shard:v100:8"),
        (
            Code::ShardsUnknown,
            PLAIN,
            "24.11",
            "gpu:v100:4,shard:v100:4",
        ),
        (Code::ShardsMissing, "", "24.11", "gpu:l40s:4"),
        (Code::ShardsOfAllTypes, PLAIN, "24.11", BESIDE),
        (
            Code::ReservableShared,
            KEPT,
            "24.11",
            "gpu:l40s:3,gpu:l40s_r:1,shard:l40s:12,shard:l40s_r:4",
        ),
        (
            Code::MigShared,
            MIG,
            "24.11",
            "gpu:h100_1g.10gb:7,shard:h100_1g.10gb:14",
        ),
        (
            Code::GpusOrder,
            "",
            "24.11",
            "gpu:l40s:1,gpu:v100:1,gpu:l40s:2",
        ),
    ];
    all.extend(of_nodes.into_iter().map(with));
    all
}

/// Lines of gres.conf and slurm.conf, and reservations.
fn files() -> Vec<Example> {
    let gres = |name: &str, kind: &str, files: &[&str]| GresLine {
        nodes: vec!["gpu1".into()],
        name: name.into(),
        kind: Some(kind.into()),
        count: files.is_empty().then_some(8),
        files: files.iter().map(|file| file.to_string()).collect(),
    };
    let gres_conf = |in_node: &str, lines: Vec<GresLine>| {
        found("", |cluster| {
            cluster.nodes[0] = node("gpu1", in_node);
            cluster.gres_conf = Ok(lines);
        })
    };
    let l40s = "gpu:l40s:4,shard:l40s:16";
    let turned = ["/dev/nvidia1", "/dev/nvidia0"];
    let lines = |lines: Lines| found("", |cluster| cluster.lines = lines);
    let twice = |name: &str| {
        vec![
            declared(name, "softmig.conf", 40),
            declared(name, "slurm.conf", 9),
        ]
    };
    let included = vec![declared("n1", "a.conf", 1), declared("n1", "a.conf", 1)];
    let both = vec![
        setting("TaskPlugin", "task/cgroup", "softmig.conf", 3),
        setting("TaskPlugin", "task/affinity", "slurm.conf", 9),
    ];
    let unseen = |cluster: &mut Cluster| cluster.gres_conf = Err("no such file".into());
    let none = Lines::default;
    let invaded = |cluster: &mut Cluster| {
        cluster.reservations = Ok(vec![reservation("course", &["gpu1"], "gres/gpu:l40s=1")]);
    };
    vec![
        (
            Code::GresConf,
            gres_conf(l40s, vec![gres("shard", "l40s", &[])]),
        ),
        (
            Code::MpsAndShard,
            gres_conf(l40s, vec![gres("mps", "l40s", &[])]),
        ),
        (
            Code::GpusOrder,
            gres_conf(
                "gpu:l40s:2,shard:l40s:8",
                vec![gres("gpu", "l40s", &turned)],
            ),
        ),
        (Code::NotLookedAt, found("", unseen)),
        (
            Code::NodeTwice,
            lines(Lines {
                nodes: twice("gpu1"),
                ..none()
            }),
        ),
        (
            Code::NodeTwice,
            lines(Lines {
                nodes: included,
                ..none()
            }),
        ),
        (
            Code::PartitionTwice,
            lines(Lines {
                partitions: twice("quick"),
                ..none()
            }),
        ),
        (
            Code::PartitionNodes,
            lines(Lines {
                undefined: vec![declared("gpu9", "slurm.conf", 9)],
                ..none()
            }),
        ),
        (
            Code::SettingTwice,
            lines(Lines {
                settings: both,
                ..none()
            }),
        ),
        (Code::ReservationInvaded, found("", invaded)),
    ]
}
