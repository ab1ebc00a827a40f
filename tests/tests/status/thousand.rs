//! `softmig status` and `free` beside a real slurmctld with a thousand nodes, of which one has a slurmd. The figures go to
//! bench/results/status-slurm.md.

use super::POLICY;
use anyhow::{Context, Result, ensure};
use softmig_tests::softmig::installed;
use softmig_tests::{Cluster, Gpus, Slurm};
use std::path::Path;
use std::time::{Duration, Instant};

const NODES: u32 = 1000;
const JOBS: u32 = 2000;
const ROUNDS: usize = 9;

/// The GPUs of the policy alone: without accounting nothing else is asked.
fn without_classes() -> String {
    let gpus = POLICY.split("[classes").next().unwrap_or_default();
    gpus.replace("default_class = \"student\"\n", "")
}

/// The median time of a command that succeeds, and its last answer.
fn timed(cluster: &Cluster, words: &[&str]) -> Result<(Duration, String)> {
    let mut times = Vec::new();
    let mut said = String::new();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        said = cluster.run("alice", words)?.ok()?;
        times.push(begin.elapsed());
    }
    times.sort();
    Ok((times[ROUNDS / 2], said))
}

/// `cargo test -p softmig-tests --features cluster --test status -- --ignored --nocapture thousand` measures.
#[test]
#[ignore = "a measurement, which takes some minutes"]
fn a_thousand_nodes_of_a_real_slurm_are_shown() -> Result<()> {
    let mut page = "# softmig status beside a real slurmctld

Written by the test `a_thousand_nodes_of_a_real_slurm_are_shown`; do not edit.

1000 nodes with four GPUs each and 2000 waiting jobs with slices; the medians of nine commands, each with the start of its
processes in the test's machine.

| Slurm | command | median | lines |
| --- | --- | --- | --- |
"
    .to_owned();
    for slurm in [Slurm::V22_05, Slurm::V24_11] {
        let names = format!("gpu[0001-{NODES:04}]");
        let cluster = installed(slurm)
            .file("/etc/softmig/policy.toml", without_classes())
            .gpus([Gpus::l40s(1)])
            .slurm_conf(format!(
                "NodeName={names} NodeAddr=127.0.0.1 CPUs=64 RealMemory=512000 Gres=gpu:l40s:4,shard:l40s:16 State=UNKNOWN"
            ))
            .slurm_conf(format!("PartitionName=large Nodes={names} State=UP"))
            .start()?;
        let submit = format!(
            "for _ in $(seq {JOBS}); do sbatch -Q --hold -p large --gres=gpu:l40s.4:1 --wrap true || exit; done"
        );
        cluster.run("alice", &["sh", "-c", &submit])?.ok()?;
        for words in [
            ["softmig", "status"],
            ["softmig", "free"],
            ["scontrol", "show"],
        ] {
            let words: &[&str] = match words[0] {
                "scontrol" => &["scontrol", "-d", "-o", "show", "node"],
                _ => &words,
            };
            let (time, said) = timed(&cluster, words)?;
            page += &format!(
                "| {slurm} | `{}` | {} ms | {} |\n",
                words.join(" "),
                time.as_millis(),
                said.lines().count()
            );
        }
        let (_, said) = timed(&cluster, &["softmig", "status", "--json"])?;
        let status: serde_json::Value = serde_json::from_str(&said)?;
        let count = |key: &str| status[key].as_array().map(Vec::len).context("no list");
        ensure!(
            count("nodes")? == NODES as usize + 1,
            "{} nodes",
            count("nodes")?
        );
        ensure!(count("jobs")? == JOBS as usize, "{} jobs", count("jobs")?);
    }
    print!("{page}");
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/results");
    Ok(std::fs::write(results.join("status-slurm.md"), page)?)
}
