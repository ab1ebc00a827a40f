//! Every file in conf/ is read by what it is for: the parser of the policy, or a real Slurm.

use std::collections::BTreeSet;

use softmig_policy::Policy;
use softmig_policy::node::node_conf::{IDENTITY, Identity, NODE, NodeConf, NodeMode};

/// The files under test. A file that is in the folder and not here fails a test.
const FILES: [&str; 17] = [
    "90-softmig-exporter.preset",
    "90-softmig-notices.preset",
    "cgroup.conf",
    "cli_filter.lua",
    "containers",
    "gres.conf",
    "job_submit.lua",
    "node.conf",
    "policy.toml",
    "run-softmig.mount",
    "slurm.conf",
    "softmig-exporter.service",
    "softmig-monitor.service",
    "softmig-notices.service",
    "sysusers.d",
    "task_epilog.sh",
    "tmpfiles.d",
];

/// The folder that administrators copy from.
fn conf(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../conf")
        .join(name)
}

fn text_of(name: &str) -> String {
    std::fs::read_to_string(conf(name)).unwrap_or_else(|error| panic!("conf/{name}: {error}"))
}

#[test]
fn every_file_is_known_to_these_tests() {
    let there: BTreeSet<String> = std::fs::read_dir(conf(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(there, FILES.map(String::from).into());
}

/// A file for a container runtime, without its comments.
fn of_containers(name: &str) -> String {
    let text = text_of(&format!("containers/{name}"));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.collect::<Vec<_>>().join("\n")
}

/// tests/containers.rs runs all but Enroot's with the runtimes themselves.
#[test]
fn the_files_for_containers_mount_what_a_job_needs() {
    const PATHS: [&str; 4] = [
        "/usr/lib/softmig",
        "/etc/ld.so.preload",
        "/etc/softmig",
        "/var/run/softmig",
    ];
    for line in of_containers("apptainer.conf").lines() {
        assert!(
            line.is_empty() || line.starts_with("bind path = "),
            "{line}"
        );
    }
    for path in PATHS {
        let line = format!("\nbind path = {path}\n");
        assert!(format!("{}\n", of_containers("apptainer.conf")).contains(&line));
        let volume = format!("\"{path}:{path}:ro");
        assert!(of_containers("containers.conf").contains(&volume));
    }
    let cdi: serde_json::Value = serde_json::from_str(&of_containers("softmig.json")).unwrap();
    let mounts = &cdi["devices"][0]["containerEdits"]["mounts"];
    let mounts: Vec<_> = mounts.as_array().unwrap().iter().collect();
    for mount in &mounts {
        assert_eq!(mount["hostPath"], mount["containerPath"]);
        assert_eq!(mount["options"][0], "ro");
    }
    let hosts: Vec<_> = mounts.iter().map(|mount| &mount["hostPath"]).collect();
    assert_eq!(hosts, PATHS);
    // fstab(5): what, where, kind, options.
    let fstab = of_containers("enroot.fstab");
    let lines = fstab.lines().filter(|line| !line.is_empty());
    let fields: Vec<Vec<&str>> = lines
        .map(|line| line.split_whitespace().collect())
        .collect();
    for (fields, path) in fields.iter().zip(PATHS) {
        let is_file = path == "/etc/ld.so.preload";
        let start = if is_file {
            "x-create=file,bind,ro,"
        } else {
            "x-create=dir,rbind,ro,"
        };
        assert!(
            fields[..3] == [path, path, "none"] && fields[3].starts_with(start),
            "{fields:?}"
        );
    }
    assert_eq!(fields.len(), PATHS.len());
}

/// The first value of a setting in a unit.
fn setting<'a>(unit: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = unit.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

/// A unit starts with none of the rights that a line takes away, so such a line has to stay.
#[test]
fn the_exporter_runs_as_a_user_without_rights() {
    let unit = text_of("softmig-exporter.service");
    let setting = |name: &str| setting(&unit, name);
    let (user, group) = (
        setting("User").unwrap(),
        setting("SupplementaryGroups").unwrap(),
    );
    let made = text_of("sysusers.d/softmig-exporter.conf");
    let made: Vec<Vec<&str>> = made
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    for line in [["g", group], ["u", user], ["m", user]] {
        assert!(
            made.iter().any(|words| words.starts_with(&line)),
            "{line:?} is not in {made:?}"
        );
    }
    assert!(made.contains(&vec!["m", user, group]));
    for (name, value) in [
        ("CapabilityBoundingSet", ""),
        ("AmbientCapabilities", ""),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("PrivateDevices", "yes"),
        ("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6"),
    ] {
        assert_eq!(setting(name), Some(value), "{name}");
    }
    assert!(
        text_of("90-softmig-exporter.preset").ends_with("\ndisable softmig-exporter.service\n")
    );
}

#[test]
fn users_are_told_only_where_the_site_starts_it() {
    let preset = text_of("90-softmig-notices.preset");
    assert!(preset.ends_with("\ndisable softmig-notices.service\n"));
    let unit = text_of("softmig-notices.service");
    for (name, value) in [
        ("ExecStart", "/usr/bin/softmig events --follow --tell-users"),
        ("CapabilityBoundingSet", ""),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("ProtectKernelLogs", "yes"),
        ("ProtectKernelModules", "yes"),
        ("ProtectKernelTunables", "yes"),
        ("PrivateDevices", "yes"),
        ("RestrictNamespaces", "yes"),
    ] {
        assert_eq!(setting(&unit, name), Some(value), "{name}");
    }
    assert!(setting(&unit, "MemoryMax").is_some());
}

/// Its files are all below these, and what users have it do has an end.
#[test]
fn the_monitor_writes_only_its_own_files_and_takes_no_more_than_a_part() {
    let unit = text_of("softmig-monitor.service");
    for (name, value) in [
        ("ProtectSystem", "strict"),
        ("RuntimeDirectory", "softmig"),
        ("StateDirectory", "softmig"),
        ("ReadWritePaths", "/var/log -/sys/fs/bpf"),
        // Packs keep their server when it is restarted.
        ("KillMode", "process"),
        // One of its helpers that is ended for its memory ends nothing else.
        ("OOMPolicy", "continue"),
    ] {
        assert_eq!(setting(&unit, name), Some(value), "{name}");
    }
    for name in ["MemoryMax", "CPUQuota", "TasksMax", "LimitNOFILE"] {
        assert!(setting(&unit, name).is_some(), "{name}");
    }
}

/// The keys that the parser knows after this table header, as it lists them for one that is like none of them.
fn known_keys(header: &str) -> Vec<String> {
    let Err(error) = Policy::parse(&format!("{header}\nqqqqqqqqqqqqqqqqqqqq = 1\n")) else {
        panic!("{header}: an unknown key was accepted");
    };
    match error.message.split_once("known here are ") {
        Some((before, known)) if before.contains("unknown key") => {
            known.split(", ").map(String::from).collect()
        }
        // No table of that name, but a key.
        _ => Vec::new(),
    }
}

#[test]
fn the_example_policy_shows_every_key() {
    let text = text_of("policy.toml");
    let policy = Policy::parse(&text).unwrap();
    assert!(policy.gpus().count() > 1);
    // A key that has no value by default is shown in an example.
    let shown = |key: &str| {
        text.lines().any(|line| {
            let line = line.trim_start_matches(['#', ' ']);
            line.strip_prefix(key)
                .is_some_and(|rest| rest.trim_start().starts_with('='))
                || line.starts_with('[') && line.ends_with(&format!(".{key}]"))
        })
    };
    let tables = known_keys("");
    assert!(tables.len() > 2, "{tables:?}");
    let mut keys = 0;
    for table in tables {
        let inside = [
            known_keys(&format!("[{table}]")),
            known_keys(&format!("[{table}.x]")),
            known_keys(&format!("[[{table}]]")),
        ]
        .concat();
        // The keys of some are a refusal's codes, or a site's own names.
        let is_there = ["[", "#[", "#[["]
            .iter()
            .any(|mark| text.contains(&format!("\n{mark}{table}")));
        assert!(is_there || inside.is_empty() && shown(&table), "{table}");
        for key in inside {
            assert!(shown(&key), "[{table}] {key}");
            keys += 1;
        }
    }
    assert!(keys > 6, "only {keys} keys were looked at");
}

#[test]
fn the_examples_in_the_policy_are_a_policy() {
    let text = text_of("policy.toml");
    let lines: Vec<&str> = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(example) if !example.is_empty() && !example.starts_with(' ') => example,
            _ => line,
        })
        .collect();
    let policy = Policy::parse(&lines.join("\n")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(policy.standings().len(), 5);
    assert_eq!(policy.gates().len(), 1);
    assert_eq!(policy.reservables().len(), 2);
    assert_eq!(policy.routes().len(), 1);
    assert_eq!(policy.nodes().len(), 1);
    assert!(policy.mps().is_some());
}

#[test]
fn the_example_node_observes_and_shows_each_default() {
    let text = text_of("node.conf");
    let conf = NodeConf::parse(text.as_bytes()).unwrap();
    assert_eq!(conf.mode, NodeMode::Observe);
    assert_eq!(conf.identity, Identity::default());
    for (key, words) in [
        (NODE, &["enforce", "observe", "off"][..]),
        (IDENTITY, &["cgroup", "env"]),
    ] {
        assert!(text.contains(&format!("\n{key}=")), "{key}");
        for word in words {
            assert!(text.contains(&format!("\n# {word}: ")), "{word}");
        }
    }
}

#[cfg(feature = "cluster")]
mod on_a_cluster {
    use anyhow::{Context, Result};
    use softmig_tests::init::HOST;
    use softmig_tests::softmig::installed;
    use softmig_tests::{Cluster, Slurm};

    use super::text_of;

    softmig_tests::on_each_slurm!(
        slurm_reads_the_example_files_and_slices_work_with_them,
        the_lua_files_are_the_ones_in_use,
    );

    /// The settings of a slurm.conf, without those of nodes and partitions.
    fn settings(text: &str) -> impl Iterator<Item = (&str, &str)> {
        text.lines()
            .filter(|line| !line.starts_with(['#', ' ']))
            .filter_map(|line| line.split_once('='))
            .filter(|(key, _)| !["NodeName", "PartitionName"].contains(key))
    }

    /// The example, with names that fit the machine, and below it what this cluster needs and the example leaves out:
    /// ports, paths, authentication, speed.
    fn adapted(cluster: &Cluster, own: &str) -> Result<String> {
        let example = text_of("slurm.conf");
        let mut merged = String::new();
        for line in example.lines() {
            let key = line.split('=').next().unwrap_or_default();
            // Without control groups of version 1 on this machine, no plugin that needs them starts.
            let fenced = ["ProctrackType", "TaskPlugin", "PrologFlags"].contains(&key);
            match key {
                "ClusterName" => merged += "ClusterName=softmig",
                "SlurmctldHost" => merged += &format!("SlurmctldHost={HOST}(127.0.0.1)"),
                "NodeName" => {
                    let rest = line.strip_prefix("NodeName=gpu01 ").context("gpu01")?;
                    let name = cluster.node(0).name();
                    merged += &format!(
                        "NodeName={name} NodeHostname={HOST} NodeAddr=127.0.0.1 Port=17000 {rest}"
                    );
                }
                _ if fenced && !cluster.constrains_devices() => {
                    let own = settings(own).find(|(name, _)| *name == key);
                    merged += &format!("{key}={}", own.context("a setting")?.1);
                }
                _ => merged += line,
            }
            merged += "\n";
        }
        for (key, value) in settings(own) {
            if !settings(&example).any(|(there, _)| there == key) {
                merged += &format!("{key}={value}\n");
            }
        }
        Ok(merged)
    }

    fn restart_all(cluster: &Cluster) -> Result<()> {
        cluster.kill_slurmd(cluster.node(0))?;
        cluster.restart_slurmctld()?;
        cluster.start_slurmd(cluster.node(0))?;
        cluster.wait_until("the node is idle", || {
            Ok(cluster.sinfo_states()? == ["idle"])
        })
    }

    fn slurm_reads_the_example_files_and_slices_work_with_them(slurm: Slurm) -> Result<()> {
        let cluster = installed(slurm).start()?;
        let own = cluster
            .read("/etc/slurm/slurm.conf")?
            .context("slurm.conf")?;
        cluster.write("/etc/slurm/slurm.conf", &adapted(&cluster, &own)?)?;
        cluster.write("/etc/slurm/gres.conf", &text_of("gres.conf"))?;
        if cluster.constrains_devices() {
            // The test machine has both versions; Slurm would look at the mount of the second.
            let here = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n";
            cluster.write(
                "/etc/slurm/cgroup.conf",
                &format!("{}{here}", text_of("cgroup.conf")),
            )?;
        }
        restart_all(&cluster)?;
        every_setting_is_shown(&cluster)?;

        let alice = cluster.user("alice");
        let script = "cat /var/run/softmig/$SLURM_JOB_ID.conf; srun head -c0 /dev/nvidia1";
        let job = alice.sbatch(&["--gres=gpu:l40s.4:1", "--output=out"], script)?;
        cluster.wait_until("the job ended", || {
            Ok(cluster.job_state(job)?.is_some_and(|state| {
                ["COMPLETED", "FAILED", "CANCELLED"].contains(&state.as_str())
            }))
        })?;
        let said = cluster.read("/home/alice/out")?.unwrap_or_default();
        let node_log = cluster.slurmd_log(cluster.node(0))?;
        assert!(
            said.starts_with("CUDA_DEVICE_MEMORY_LIMIT=11366M\n"),
            "{said}\n{node_log}"
        );
        let opened = match cluster.constrains_devices() {
            true => "Operation not permitted",
            false => "No such device or address",
        };
        assert!(said.contains(opened), "{said}\n{node_log}");
        let both = cluster.slurmctld_log()? + &node_log;
        assert!(!both.contains("error: Parsing"), "{both}");
        Ok(())
    }

    /// `scontrol show config` shows each line of the example.
    fn every_setting_is_shown(cluster: &Cluster) -> Result<()> {
        let example = text_of("slurm.conf");
        let shown = cluster.run("root", &["scontrol", "show", "config"])?.ok()?;
        let fenced = ["ProctrackType", "TaskPlugin", "PrologFlags"];
        for (key, value) in settings(&example) {
            let name = ["ClusterName", "SlurmctldHost"].contains(&key);
            if name || (fenced.contains(&key) && !cluster.constrains_devices()) {
                continue;
            }
            // `Prolog[0]` in newer versions, and letters of either case.
            let found = shown.lines().any(|line| {
                let (name, said) = line.split_once('=').unwrap_or_default();
                let name = name.split('[').next().unwrap_or_default().trim();
                name == key && said.to_lowercase().contains(&value.to_lowercase())
            });
            assert!(found, "{key}={value} is not in\n{shown}");
        }
        Ok(())
    }

    fn the_lua_files_are_the_ones_in_use(slurm: Slurm) -> Result<()> {
        let cluster = installed(slurm).start()?;
        for name in ["job_submit.lua", "cli_filter.lua"] {
            let used = cluster.read(format!("/etc/slurm/{name}"))?;
            assert_eq!(used, Some(text_of(name)), "{name}");
        }
        let refused = cluster
            .user("alice")
            .try_sbatch(&["--gres=gpu:l40s.3:1"], "true")?
            .refused()?;
        assert!(refused.contains("lua: softmig: "), "{refused}");
        let log = cluster.slurmctld_log()?;
        assert!(!log.contains("error: job_submit/lua"), "{log}");
        Ok(())
    }
}
