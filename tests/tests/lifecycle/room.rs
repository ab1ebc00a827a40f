//! A full `/run`, on which a job's limits do not fit: the job gets no GPU, and the node is not drained.

use anyhow::{Context, Result};
use softmig_tests::requests::memory_mib;
use softmig_tests::softmig::installed;
use softmig_tests::{Builder, Cluster, Node, Slurm, on_each_slurm};

use crate::lifecycle::files::{cancel, memory, path, wait_for_start, wait_until_clean};

on_each_slurm!(
    a_full_run_drains_no_node,
    a_run_without_inodes_drains_no_node,
    no_word_of_a_users_drains_a_node_that_drains_on_unknown,
);

/// Bytes until no more fit on `/run`.
const BYTES: &str =
    "cat /dev/zero > /run/screen/S-alice/full 2>/dev/null; ! echo x > /run/screen/S-alice/x";
/// Files until no more fit.
const INODES: &str =
    "cd /run/screen/S-alice; i=0; while touch $i 2>/dev/null; do i=$((i + 1)); done; ! touch x";

fn a_full_run_drains_no_node(slurm: Slurm) -> Result<()> {
    drains_no_node(slurm, BYTES)
}

fn a_run_without_inodes_drains_no_node(slurm: Slurm) -> Result<()> {
    drains_no_node(slurm, INODES)
}

fn as_root(node: &Node, script: &str) -> Result<String> {
    node.run_as_root(&["sh", "-c", script])?.ok()
}

/// A user fills `/run` by a folder that a program gave them there.
fn fill(node: &Node, full: &str) -> Result<()> {
    as_root(
        node,
        "mkdir -p -m 755 /run/screen; mkdir -p /run/screen/S-alice; chown alice /run/screen/S-alice
        mount -o remount,size=4m,nr_inodes=400 /run",
    )?;
    node.command("alice", &["sh", "-c", full])
        .output()?
        .ok()
        .map(drop)
}

fn drains_no_node(slurm: Slurm, full: &str) -> Result<()> {
    let cluster = enforcing(installed(slurm))?;
    let node = cluster.node(0);
    let bob = cluster.user("bob");
    // The limits have room of their own.
    let first = bob.sbatch(&["--gres=gpu:l40s.4:1"], "sleep 100")?;
    wait_for_start(&cluster, node, first)?;
    fill(node, full)?;
    let second = bob.sbatch(&["--gres=gpu:l40s.4:1"], "sleep 100")?;
    wait_for_start(&cluster, node, second)?;
    assert_eq!(memory(node, second)?, Some(memory_mib(1)));
    cancel(&cluster, first)?;
    cancel(&cluster, second)?;
    wait_until_clean(&cluster, node)?;

    // As after an update of a node that has run since: they share the room of /run.
    as_root(
        node,
        "umount /run/softmig; rm -r /run/screen/S-alice; touch /run/softmig/.lock",
    )?;
    fill(node, full)?;
    for gres in ["--gres=gpu:l40s.4:1", "--gres=gpu:l40s:1"] {
        let job = bob.sbatch(&[gres], "/opt/programs/linked; exit 0")?;
        cluster.wait_job(job, "COMPLETED")?;
        let said = bob.job_output(job)?;
        assert!(said.contains("cuInit: 100\n"), "{gres}: {said}");
        assert!(!node.exists(path(job))?, "the epilog left a conf");
        let restarts = cluster.job_field(job, "Restarts")?;
        assert_eq!(restarts.as_deref(), Some("0"), "{gres}");
    }
    let states = cluster.sinfo_states()?;
    assert!(
        !states.iter().any(|state| state.contains("drain")),
        "{states:?}"
    );

    // When there is room again, all is as before.
    as_root(node, "rm -r /run/screen/S-alice")?;
    let job = bob.sbatch(&["--gres=gpu:l40s.4:1"], "/opt/programs/linked; exit 0")?;
    cluster.wait_job(job, "COMPLETED")?;
    assert!(bob.job_output(job)?.contains("cuInit: 0\n"));
    Ok(())
}

/// A cluster whose nodes have a driver and the library, and enforce.
fn enforcing(builder: Builder) -> Result<Cluster> {
    let cluster = builder.programs().start()?;
    let node = cluster.node(0);
    node.start_driver()?;
    as_root(node, "softmig install --hook && softmig node enforce")?;
    Ok(cluster)
}

/// `AllowSpecResourcesUsage`: such a job has all GPUs of its node, and job_submit sees no request for any.
#[test]
fn a_core_specification_opens_no_gpu() -> Result<()> {
    const GATE: &str = "[[gate]]\nwhat = \"whole\"\nreservation = [\"course\"]\n";
    let policy = include_str!("../../../conf/policy.toml");
    assert!(policy.contains("\non_untagged = \"ask\"\n"));
    let said = |answer: &str| -> Result<String> {
        let policy = policy.replace("\"ask\"\n", &format!("\"{answer}\"\n"));
        let cluster = enforcing(
            installed(Slurm::V24_11)
                .slurm_conf("AllowSpecResourcesUsage=YES")
                .file("/etc/softmig/policy.toml", format!("{policy}\n{GATE}")),
        )?;
        let alice = cluster.user("alice");
        alice
            .try_sbatch(&["--gres=gpu:l40s:1"], "true")?
            .refused()
            .context("the gate is open")?;
        let job = alice.sbatch(&["--core-spec=0"], "/opt/programs/linked; exit 0")?;
        cluster.wait_job(job, "COMPLETED")?;
        let states = cluster.sinfo_states()?;
        assert!(
            !states.iter().any(|state| state.contains("drain")),
            "{states:?}"
        );
        alice.job_output(job)
    };
    let denied = said("deny")?;
    assert!(denied.contains("cuInit: 100\n"), "{denied}");
    // The control: the job has the GPUs.
    let asked = said("ask")?;
    assert!(asked.contains("cuInit: 0\n"), "{asked}");
    Ok(())
}

fn no_word_of_a_users_drains_a_node_that_drains_on_unknown(slurm: Slurm) -> Result<()> {
    let policy = include_str!("../../../conf/policy.toml");
    let policy = policy.replace("on_unknown = \"smallest\"", "on_unknown = \"drain\"");
    assert!(policy.contains("\non_unknown = \"drain\"\n"));
    // Without job_submit no job has a tag.
    let cluster = installed(slurm)
        .job_submit(false)
        .cli_filter(false)
        .file("/etc/softmig/policy.toml", policy)
        .start()?;
    let node = cluster.node(0);
    let alice = cluster.user("alice");
    for words in ["GRES=shard:nosuch:1", "GRES=shard:l40s:99", "GRES="] {
        let comment = format!("--comment=x Nodes={} {words}", node.name());
        let job = alice.sbatch(&["--gres=gpu:l40s:1", &comment], "sleep 100")?;
        wait_for_start(&cluster, node, job)?;
        if words.contains("nosuch") {
            assert_eq!(memory(node, job)?, Some(memory_mib(1)));
        }
        let states = cluster.sinfo_states()?;
        assert!(
            !states.iter().any(|state| state.contains("drain")),
            "{states:?}"
        );
        cancel(&cluster, job)?;
    }
    wait_until_clean(&cluster, node)
}
