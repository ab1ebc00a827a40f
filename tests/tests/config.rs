//! What `softmig config` prints, on a real Slurm as it stands: only ports, paths and the like are the cluster's own.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use softmig_tests::builder::unique_tag;
use softmig_tests::config::{FIRST_NODE_PORT, cgroups_usable};
use softmig_tests::softmig::{installed, stage};
use softmig_tests::{Builder, Cluster, Gpus, Slurm, on_each_slurm};

on_each_slurm!(
    a_cluster_comes_up_from_what_config_prints,
    slices_are_spread_where_slurm_can,
    units_of_mps_reach_slurm,
);

/// The files that `softmig config --write` makes, by name.
fn made(slurm: Slurm, policy: &str) -> Result<BTreeMap<String, String>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("policy.toml");
    std::fs::write(&path, policy)?;
    let output = Command::new(stage().join("usr/bin/softmig"))
        .args(["config", "--slurm-version", &slurm.to_string()])
        .arg("--policy")
        .arg(&path)
        .arg("--write")
        .arg(folder.path())
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    std::fs::remove_file(path)?;
    std::fs::read_dir(folder.path())?
        .map(|entry| {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            Ok((name, std::fs::read_to_string(entry.path())?))
        })
        .collect()
}

/// A policy for one node with four L40S.
fn policy(tag: &str, gpus: &str, more: &str) -> String {
    // As many CPUs as there are: control groups cannot give out others.
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    format!(
        "{more}\n[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n\
         [[nodes]]\nnames = \"{tag}n1\"\ngpus = {gpus}\n\
         slurm = \"NodeHostname=softmig NodeAddr=127.0.0.1 Port={FIRST_NODE_PORT} CPUs={cpus} RealMemory=2000\"\n"
    )
}

/// A cluster of softmig with nothing but these files, besides what is the cluster's own.
fn site(slurm: Slurm, tag: &str, policy: &str) -> Result<Builder> {
    let files = made(slurm, policy)?;
    let text = |name: &str| files.get(name).with_context(|| format!("no {name}"));
    let mut builder = installed(slurm)
        .tag(tag)
        .file("/etc/softmig/policy.toml", policy)
        .include("softmig.conf", text("softmig.conf")?)
        .file("/etc/slurm/gres.conf", text("gres.conf")?);
    for script in ["softmig-qos.sh", "softmig-reservations.sh"] {
        builder = builder.file(format!("/root/{script}"), text(script)?);
    }
    if cgroups_usable() {
        let own = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n";
        let cgroup = text("cgroup.conf")?;
        builder = builder.file("/etc/slurm/cgroup.conf", format!("{cgroup}{own}"));
    }
    Ok(builder)
}

/// Fails when Slurm complains of a line.
fn takes_every_line(cluster: &Cluster) -> Result<()> {
    let mut logs = cluster.slurmctld_log()?;
    logs += &cluster.slurmd_log(cluster.node(0))?;
    let complaints = [
        "specified more than once",
        "Parsing error",
        "unrecognized",
        "Ignoring",
        "INVAL",
        "low gres",
    ];
    for line in logs.lines() {
        ensure!(
            !complaints.iter().any(|words| line.contains(words)),
            "{line}"
        );
    }
    Ok(())
}

const KEPT: &str = "[[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\nuser = \"alice\"\nend = 2099-01-01T00:00:00Z\n\
                    reason = \"a deadline\"\n\
                    [[route]]\npartition = \"quick\"\ntypes = [\"l40s\"]\nmax_time = \"1:00:00\"\nslurm = \"PriorityTier=10\"\n";

fn a_cluster_comes_up_from_what_config_prints(slurm: Slurm) -> Result<()> {
    let tag = unique_tag();
    let policy = policy(&tag, "[\"l40s:1\", \"l40s_r:1\", \"l40s:2\"]", KEPT);
    let gpus = [
        Gpus::l40s(1),
        Gpus::new("l40s_r", "NVIDIA L40S", 1),
        Gpus::l40s(2),
    ];
    let cluster = site(slurm, &tag, &policy)?.gpus(gpus).start()?;
    takes_every_line(&cluster)?;
    let (alice, bob) = (cluster.user("alice"), cluster.user("bob"));

    // A slice, with its own conf, where the route leads.
    let show = "cat /var/run/softmig/$SLURM_JOB_ID.conf; echo $SLURM_JOB_PARTITION; srun true && echo step";
    let slice = bob.sbatch(&["--gres=gpu:l40s.4:1", "--time=10"], show)?;
    cluster.wait_job(slice, "COMPLETED")?;
    let said = bob.job_output(slice)?;
    assert!(said.contains("CUDA_DEVICE_MEMORY_LIMIT=11366M\n"), "{said}");
    assert!(said.ends_with("\nquick\nstep\n"), "{said}");

    // Whole GPUs.
    let whole = bob.sbatch(&["--gres=gpu:l40s:2"], show)?;
    cluster.wait_job(whole, "COMPLETED")?;
    let said = bob.job_output(whole)?;
    assert!(said.contains("SOFTMIG_MODE=whole\n"), "{said}");
    assert!(said.ends_with("\nmain\nstep\n"), "{said}");

    // The one that is kept for somebody: the third device, and nobody else's.
    let devices = "echo $SLURM_JOB_GPUS; sleep 60";
    let kept = alice.sbatch(&["--gres=gpu:l40s_r:1"], devices)?;
    cluster.wait_job(kept, "RUNNING")?;
    cluster.wait_until("the job has said its device", || {
        Ok(alice.job_output(kept)? == "1\n")
    })?;
    let refused = bob
        .try_sbatch(&["--gres=gpu:l40s_r:1"], "true")?
        .refused()?;
    assert!(refused.contains("[RESERVED]"), "{refused}");
    for count in ["shard:l40s_r:1", "shard:1"] {
        let refused = bob
            .try_sbatch(&[&format!("--gres={count}")], "true")?
            .refused();
        assert!(refused.is_ok(), "{count}: {refused:?}");
    }
    let node = cluster
        .run("root", &["scontrol", "show", "partition", "quick"])?
        .ok()?;
    assert!(
        node.contains("MaxTime=01:00:00") && node.contains("PriorityTier=10"),
        "{node}"
    );
    takes_every_line(&cluster)
}

fn slices_are_spread_where_slurm_can(slurm: Slurm) -> Result<()> {
    let tag = unique_tag();
    let policy = policy(&tag, "[\"l40s:4\"]", "[placement]\nshards = \"spread\"\n");
    let cluster = site(slurm, &tag, &policy)?.start()?;
    takes_every_line(&cluster)?;
    let alice = cluster.user("alice");
    let mut devices = Vec::new();
    for _ in 0..2 {
        let job = alice.sbatch(&["--gres=gpu:l40s.4:1"], "echo $SLURM_JOB_GPUS; sleep 60")?;
        cluster.wait_job(job, "RUNNING")?;
        cluster.wait_until("the job has said its device", || {
            Ok(!alice.job_output(job)?.is_empty())
        })?;
        devices.push(alice.job_output(job)?.trim().to_string());
    }
    match slurm {
        Slurm::V22_05 => assert_eq!(devices, ["0", "0"]),
        Slurm::V24_11 => assert_eq!(devices, ["0", "1"]),
    }
    Ok(())
}

fn units_of_mps_reach_slurm(slurm: Slurm) -> Result<()> {
    let tag = unique_tag();
    let mps = "[legacy.mps]\ntype = \"l40s\"\nunits_per_gpu = 320\n";
    let policy = policy(&tag, "[\"l40s:4\"]", mps);
    // Only what every submission passes.
    let functions = ["setup_defaults", "pre_submit", "post_submit"];
    let filter: String = functions
        .iter()
        .map(|name| format!("function slurm_cli_{name}() return slurm.SUCCESS end\n"))
        .collect();
    let cluster = site(slurm, &tag, &policy)?
        .file("/etc/slurm/cli_filter.lua", filter)
        .start()?;
    takes_every_line(&cluster)?;
    let alice = cluster.user("alice");
    let job = alice.sbatch(
        &["--gres=mps:80"],
        "cat /var/run/softmig/$SLURM_JOB_ID.conf",
    )?;
    cluster.wait_job(job, "COMPLETED")?;
    let said = alice.job_output(job)?;
    assert!(said.contains("SOFTMIG_SHARDS=1/4\n"), "{said}");
    Ok(())
}
