//! A typed request on its way through cli_filter and job_submit: refusals and the log name it, and no machine makes
//! something else of it.

use anyhow::{Context, Result, ensure};
use softmig_tests::builder::unique_tag;
use softmig_tests::softmig::installed;
use softmig_tests::{Cluster, Slurm, on_each_slurm};

on_each_slurm!(
    refusals_and_the_log_name_what_was_typed,
    a_machine_with_another_policy_gives_no_other_slice,
    a_policy_that_is_broken_before_the_first_job_stays_in_force,
    a_step_that_asks_for_something_else_is_told_what_its_job_has,
    exclusive_jobs_without_gpus_are_left_alone,
);

const POLICY: &str = "/etc/softmig/policy.toml";
const GPUS: &str = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n";

fn shell(cluster: &Cluster, script: &str) -> Result<String> {
    cluster.run("root", &["sh", "-c", script])?.ok()
}

fn refusals_and_the_log_name_what_was_typed(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).file(POLICY, GPUS).start()?;
    let alice = cluster.user("alice");
    let job = alice.sbatch(&["--gpus=l40s.4:1", "--comment=my first run"], "sleep 60")?;
    let log = cluster.slurmctld_log()?;
    ensure!(log.contains(": gpu:l40s.4:1: granted as gres"), "{log}");
    let shown = shell(&cluster, &format!("scontrol show job {job}"))?;
    ensure!(shown.contains("Comment=my first run"), "{shown}");
    ensure!(!shown.contains("typed"), "{shown}");
    // Only slurmctld knows the time limit.
    cluster.write(
        POLICY,
        &format!("{GPUS}[defaults]\nwall_time = \"1-00:00:00\"\n"),
    )?;
    let long = ["--gres=gpu:l40s.4:1", "--time=3-00:00:00"];
    let said = alice.try_sbatch(&long, "true")?.refused()?;
    ensure!(said.contains("[LIMIT_JOB]"), "{said}");
    ensure!(said.contains("softmig: gpu:l40s.4:1: "), "{said}");
    ensure!(!said.contains("shard:"), "{said}");
    let log = cluster.slurmctld_log()?;
    ensure!(log.contains(": refused: gpu:l40s.4:1: "), "{log}");
    Ok(())
}

fn a_machine_with_another_policy_gives_no_other_slice(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).file(POLICY, GPUS).start()?;
    cluster.write(
        "/root/other.toml",
        &GPUS.replace("shards = 4", "shards = 8"),
    )?;
    // A login node is a mount namespace here.
    let on_login = |gres: &str| {
        let script = format!(
            "mount --bind /root/other.toml {POLICY}; cd /tmp; exec setpriv --reuid alice --regid alice --clear-groups \
             sbatch --wrap true --output /dev/null --gres={gres}"
        );
        cluster.run("root", &["unshare", "-m", "sh", "-c", &script])
    };
    let said = on_login("gpu:l40s.4:1")?.refused()?;
    ensure!(said.contains("[CLIENT_POLICY]"), "{said}");
    ensure!(said.contains("softmig: gpu:l40s.4:1: "), "{said}");
    ensure!(said.contains("--gres=shard:l40s:1"), "{said}");
    let said = on_login("gpu:l40s.8:1")?.refused()?;
    ensure!(
        said.contains("gpu:l40s.8:1: ") && said.contains("[SLICE_SIZE]"),
        "{said}"
    );
    // The hinted request.
    on_login("shard:l40s:1")?.ok()?;
    Ok(())
}

fn a_policy_that_is_broken_before_the_first_job_stays_in_force(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).file(POLICY, GPUS).start()?;
    let log = cluster.slurmctld_log()?;
    ensure!(
        log.contains("softmig: /etc/softmig/policy.toml is in force"),
        "{log}"
    );
    cluster.write(POLICY, "shards = \n")?;
    let job = cluster
        .user("alice")
        .sbatch(&["--gres=gpu:l40s.4:1"], "true")?;
    cluster.wait_job(job, "COMPLETED")?;
    Ok(())
}

fn a_step_that_asks_for_something_else_is_told_what_its_job_has(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).file(POLICY, GPUS).start()?;
    let alice = cluster.user("alice");
    let steps = "for gres in --gres=gpu:2 --gpus=2 --gres=gpu:other:1 --gres=gpu:l40s.2:1; do srun $gres true 2>&1 && echo ran; done; \
                 srun true && srun --gres=gpu:l40s.4:1 true && echo fine";
    let job = alice.sbatch(&["--gres=gpu:l40s.4:1"], steps)?;
    cluster.wait_job(job, "COMPLETED")?;
    let said = alice.job_output(job)?;
    let told =
        "this job has a slice gpu:l40s.4:1, and its steps can have nothing else [SLICE_OPTION]";
    ensure!(said.matches(told).count() == 4, "{said}");
    ensure!(
        said.contains("use srun without --gres and --gpus"),
        "{said}"
    );
    ensure!(
        !said.contains("ran\n") && said.ends_with("fine\n"),
        "{said}"
    );
    // In a job with whole GPUs nothing of this is said.
    let whole = alice.sbatch(
        &["--gres=gpu:l40s:1"],
        "srun --gres=gpu:1 true && echo fine",
    )?;
    cluster.wait_job(whole, "COMPLETED")?;
    let said = alice.job_output(whole)?;
    ensure!(said == "fine\n", "{said}");
    Ok(())
}

fn exclusive_jobs_without_gpus_are_left_alone(slurm: Slurm) -> Result<()> {
    let tag = unique_tag();
    let policy = format!(
        "{GPUS}[[nodes]]\nnames = \"{tag}n1\"\ngpus = [\"l40s:4\"]\n\
         [[gate]]\nwhat = \"whole\"\nreservation = [\"course\"]\n"
    );
    let cluster = installed(slurm)
        .tag(&tag)
        .nodes(2)
        .gpus_of(1, [])
        .file(POLICY, policy)
        .slurm_conf(format!("PartitionName=cpu Nodes={tag}n2 State=UP"))
        .slurm_conf(format!("PartitionName=gpu Nodes={tag}n1 State=UP"))
        .start()?;
    let alice = cluster.user("alice");
    let own = alice.sbatch(&["--exclusive", "-p", "cpu"], "sleep 600")?;
    cluster.wait_job(own, "RUNNING")?;
    // Where there may be GPUs, the gate is shut, also by a change.
    for partition in ["gpu", "main", "cpu,gpu"] {
        let said = alice
            .try_sbatch(&["--exclusive", "-p", partition], "true")?
            .refused()?;
        ensure!(
            said.contains("[GATE_NO_RESERVATION]"),
            "{partition}: {said}"
        );
    }
    let waits = alice.sbatch(&["--exclusive", "-p", "cpu"], "true")?;
    let change = format!("JobId={waits}");
    let update = ["scontrol", "update", &change, "Partition=gpu"];
    cluster.run("alice", &update)?.refused()?;
    let shown = shell(&cluster, &format!("scontrol show job {waits}"))?;
    ensure!(shown.contains("Partition=cpu "), "{shown}");
    // A change that leaves it there passes.
    let update = ["scontrol", "update", &change, "TimeLimit=60"];
    cluster
        .run("alice", &update)?
        .ok()
        .context("a change of time")?;
    Ok(())
}
