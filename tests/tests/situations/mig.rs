//! Nodes with MIG, without it, and both: classes hold instances where there are, else whole GPUs.

use super::{end, refused, run, stay};
use anyhow::{Context, Result};
use softmig_tests::site::made;
use softmig_tests::softmig::installed;
use softmig_tests::{Accounting, Cluster, Gpus, Slurm, on_each_slurm};

on_each_slurm!(
    a_class_holds_instances_where_there_are_and_else_whole_gpus,
    an_instance_carries_slices_only_if_the_policy_says_so,
);

const POLICY: &str = "\
default_class = \"student\"
[gpu.l40s]
memory_mib = 46068
reserved_mib = 604
shards = 4
[gpu.\"h100_1g.10gb\"]
memory_mib = 9856
reserved_mib = 4
shards = 1
mig = true
[gpu.\"h100_3g.40gb\"]
memory_mib = 40192
reserved_mib = 4
shards = 4
mig = true
[classes.student]
shards = 2
whole_gpus = 1
mig = { \"h100_1g.10gb\" = 2 }
max_shards_per_job = 4
[classes.researcher]
members = { accounts = [\"research\"] }
shards = 4
whole_gpus = 1
mig = { \"h100_1g.10gb\" = \"unlimited\", \"h100_3g.40gb\" = 1 }
";

/// A node with MIG, one without and one with both. Slurm's lines are the harness's: `softmig config` leaves MIG to
/// AutoDetect=nvml, which Debian's Slurm does not have.
fn cluster(slurm: Slurm) -> Result<Cluster> {
    let files = made(slurm, POLICY)?;
    let conf = files.get("softmig.conf").context("softmig.conf")?;
    let weights = conf
        .split_ascii_whitespace()
        .find(|word| word.starts_with("TRESBillingWeights="))
        .context("no weights")?;
    let small = |count| Gpus::new("h100_1g.10gb", "NVIDIA H100", count).shards(1);
    let large = Gpus::new("h100_3g.40gb", "NVIDIA H100", 2);
    let accounts = Accounting::new()
        .account("teaching", &["alice", "bob"])
        .account("research", &["carol"]);
    let cluster = installed(slurm)
        .file("/etc/softmig/policy.toml", POLICY)
        .file("/root/qos.sh", &files["softmig-qos.sh"])
        .nodes(3)
        .gpus_of(0, [small(4)])
        .gpus_of(1, [Gpus::l40s(2)])
        .gpus_of(2, [Gpus::l40s(1), small(1), large])
        .slurm_conf(format!("PartitionName=DEFAULT {weights}"))
        .accounting(accounts)
        .start()?;
    cluster.run("root", &["sh", "/root/qos.sh"])?.ok()?;
    cluster.settle_accounts()?;
    Ok(cluster)
}

fn a_class_holds_instances_where_there_are_and_else_whole_gpus(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm)?;
    let instance = "--gres=gpu:h100_1g.10gb:1";
    let waits = |job: u32| {
        cluster.wait_until("it waits for the limit", || {
            let reason = cluster.job_field(job, "Reason")?.unwrap_or_default();
            Ok(reason.starts_with("QOSMax"))
        })
    };
    let held = [
        run(&cluster, "alice", instance)?,
        run(&cluster, "alice", instance)?,
    ];
    let third = stay(&cluster, "alice", &[instance])?;
    waits(third)?;
    // Instances are not counted as shards or whole GPUs, and the reverse.
    run(&cluster, "alice", "--gres=gpu:l40s.2:1")?;
    end(&cluster, held[0])?;
    cluster.wait_job(third, "RUNNING")?;
    for (options, words) in [
        (
            "--gres=gpu:h100_1g.10gb:3",
            "h100_1g.10gb requested, but class student may hold at most 2 at once [LIMIT_JOB]",
        ),
        (
            "--gres=gpu:h100_3g.40gb:1",
            "h100_3g.40gb requested, but class student may not hold any [LIMIT_JOB]",
        ),
        (
            "--gres=gpu:l40s:1",
            "counts as 4 shards, but class student may hold at most 2 at once [LIMIT_JOB]",
        ),
        ("--gres=gpu:1", "a GPU type is required"),
    ] {
        let refusal = refused(&cluster, "alice", &[options])?;
        assert!(refusal.contains(words), "{options}: {refusal}");
    }
    run(&cluster, "carol", "--gres=gpu:h100_3g.40gb:1")?;
    run(&cluster, "carol", instance)?;
    run(&cluster, "carol", "--gres=gpu:l40s:1")?;
    let more = stay(&cluster, "carol", &["--gres=gpu:h100_3g.40gb:1"])?;
    waits(more)?;
    let more = stay(&cluster, "carol", &["--gres=gpu:l40s:1"])?;
    waits(more)
}

fn an_instance_carries_slices_only_if_the_policy_says_so(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm)?;
    for gres in ["--gres=gpu:h100_1g.10gb.2:1", "--gres=shard:h100_1g.10gb:1"] {
        let refusal = refused(&cluster, "alice", &[gres])?;
        assert!(refusal.contains("softmig: "), "{gres}: {refusal}");
    }
    let half = run(&cluster, "alice", "--gres=gpu:h100_3g.40gb.2:1")?;
    let conf = cluster.wait_for("its conf", || {
        let path = format!("/var/run/softmig/{half}.conf");
        cluster.node(2).read(path)
    })?;
    assert!(
        conf.starts_with("CUDA_DEVICE_MEMORY_LIMIT=20094M\n"),
        "{conf}"
    );
    assert!(conf.contains("SOFTMIG_SHARDS=2/4\n"), "{conf}");
    Ok(())
}
