//! `softmig status`, `free` and `job` on real Slurm: slices that run and wait, whole GPUs, MIG instances, a reserved
//! GPU and a drained node.

mod seen;
mod thousand;

use anyhow::{Context, Result};
use softmig_tests::builder::unique_tag;
use softmig_tests::site::made;
use softmig_tests::softmig::installed;
use softmig_tests::{Accounting, Cluster, Gpus, Slurm};

/// The class of alice, bob and dave has two quarters and no whole GPU; carol's is large, and one GPU is kept for her.
const POLICY: &str = "\
default_class = \"student\"
[gpu.l40s]
memory_mib = 46068
reserved_mib = 604
shards = 4
[gpu.h200]
memory_mib = 143771
reserved_mib = 616
shards = 8
[gpu.\"h100_1g.10gb\"]
memory_mib = 9856
reserved_mib = 4
shards = 1
mig = true
[classes.student]
shards = 2
whole_gpus = 0
mig = { \"h100_1g.10gb\" = 1 }
[classes.researcher]
members = { accounts = [\"research\"] }
shards = \"unlimited\"
whole_gpus = \"unlimited\"
mig = { \"h100_1g.10gb\" = \"unlimited\" }
[[reservable]]
type = \"l40s_r\"
of = \"l40s\"
user = \"carol\"
start = 2020-01-01T00:00:00Z
end = 2999-01-01T00:00:00Z
reason = \"paper deadline\"
";

/// Four nodes: three L40S of which one is reserved, one that is drained, H200s, and MIG instances.
fn cluster(slurm: Slurm, more: &str) -> Result<Cluster> {
    let files = made(slurm, POLICY)?;
    let conf = files.get("softmig.conf").context("softmig.conf")?;
    let weights = conf
        .lines()
        .find_map(|line| Some(&line[line.find("TRESBillingWeights=")?..]))
        .context("no weights")?;
    let accounts = Accounting::new()
        .account("teaching", &["alice", "bob", "dave"])
        .account("research", &["carol"]);
    let reserved = Gpus::new("l40s_r", "NVIDIA L40S", 1).shards(1);
    let cluster = installed(slurm)
        .tag(unique_tag())
        .file("/etc/softmig/policy.toml", POLICY)
        .file("/root/qos.sh", &files["softmig-qos.sh"])
        .nodes(4)
        .gpus_of(0, [Gpus::l40s(2), reserved])
        .gpus_of(1, [Gpus::l40s(1)])
        .gpus_of(2, [Gpus::new("h200", "NVIDIA H200", 2).shards(8)])
        .gpus_of(3, [Gpus::new("h100_1g.10gb", "NVIDIA H100", 2).shards(1)])
        .slurm_conf(format!("PartitionName=DEFAULT {weights}"))
        .slurm_conf(more)
        .accounting(accounts)
        .start()?;
    cluster.run("root", &["sh", "/root/qos.sh"])?.ok()?;
    cluster.settle_accounts()?;
    Ok(cluster)
}

/// Submits a job that stays until it is cancelled.
fn stay(cluster: &Cluster, user: &str, options: &[&str]) -> Result<u32> {
    let options = [options, &["--time=30"]].concat();
    cluster
        .user(user)
        .sbatch(&options, "sleep 600")
        .with_context(|| format!("{user}: {options:?}"))
}

/// Submits one and waits until it runs.
fn run(cluster: &Cluster, user: &str, options: &[&str]) -> Result<u32> {
    let job = stay(cluster, user, options)?;
    cluster.wait_job(job, "RUNNING")?;
    Ok(job)
}
