//! Every request form of the table through sbatch, salloc, srun and explain: one verdict, one text, the same limits.

use anyhow::{Context, Result};
use softmig_tests::requests::{Expected, PER_GPU, Row, TABLE, memory_mib};
use softmig_tests::softmig::{Explained, enforced, explain, installed, tag};
use softmig_tests::{Cluster, Node, Slurm, on_each_slurm};

on_each_slurm!(
    seams:
    explain_and_slurmctld_give_every_request_the_same_answer,
    explain_and_the_clients_give_every_request_the_same_answer;
    others:
    figures_per_gpu_become_figures_of_the_job,
    srun_and_salloc_run_every_granted_form,
    srun_refuses_figures_per_gpu_and_says_what_to_type,
    steps_inside_a_job_ask_in_the_users_words_too,
    launchers_count_one_gpu_in_a_slice,
    a_step_that_cannot_be_asked_for_says_what_to_do,
    a_step_without_gpus_has_none,
    a_job_that_is_submitted_from_a_slice_is_its_own,
    a_half_gpu_job_is_always_on_one_gpu,
    each_of_several_nodes_has_a_slice,
);

fn rows(slurm: Slurm) -> impl Iterator<Item = &'static Row> {
    TABLE.iter().filter(move |row| slurm >= row.since)
}

/// Checks the table's expectation against explain, which is then the reference for the rest.
fn expected(cluster: &Cluster, row: &Row) -> Result<Explained> {
    let explained = explain(cluster, row.options)?;
    let (verdict, code) = match row.expected {
        Expected::Slice(shards) => {
            let limits = explained.limits.as_ref().context("no limits")?;
            assert_eq!(limits.shards, shards, "{row:?}");
            assert_eq!(limits.memory_mib, memory_mib(shards), "{row:?}");
            assert_eq!(limits.compute_percent, f64::from(shards) * 25.0, "{row:?}");
            ("granted", None)
        }
        Expected::Refused(code) => ("refused", Some(code)),
        Expected::Unchanged => ("unchanged", None),
    };
    assert_eq!(explained.verdict, verdict, "{row:?}: {explained:?}");
    assert_eq!(explained.code.as_deref(), code, "{row:?}");
    Ok(explained)
}

/// Submits a row with sbatch, held, and compares the record with explain's answer.
fn submit_and_compare(cluster: &Cluster, row: &Row) -> Result<()> {
    let explained = expected(cluster, row)?;
    let user = cluster.user("alice");
    let output = user.try_sbatch(&[&["--hold"], row.options].concat(), "true")?;
    if explained.verdict == "refused" {
        explained.assert_shown(&output);
        return Ok(());
    }
    let job: u32 = output.ok()?.trim().parse()?;
    if explained.verdict == "granted" {
        let tres = cluster.job_field(job, "TresPerNode")?;
        assert_eq!(tres, explained.tres_per_node, "{row:?}");
        assert_eq!(tag(cluster, job)?, explained.tag(), "{row:?}");
        assert_eq!(
            cluster.job_field(job, "NumNodes")?.as_deref(),
            Some("1-1"),
            "{row:?}"
        );
    } else {
        let is_none = |option: &&str| option.ends_with(":0");
        let wants_gpus =
            (row.options.iter()).any(|option| option.contains("gpu") && !is_none(option));
        let is_exclusive = row
            .options
            .iter()
            .any(|word| word.starts_with("--exclusive"));
        let whole = match is_exclusive {
            true => "softmig=1:mixed",
            false => "softmig=1:whole",
        };
        let tag = tag(cluster, job)?;
        assert_eq!(tag.as_deref(), wants_gpus.then_some(whole), "{row:?}");
    }
    cluster.run("root", &["scancel", &job.to_string()])?.ok()?;
    Ok(())
}

fn explain_and_slurmctld_give_every_request_the_same_answer(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).nodes(2).cli_filter(false).start()?;
    rows(slurm).try_for_each(|row| submit_and_compare(&cluster, row))
}

fn explain_and_the_clients_give_every_request_the_same_answer(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).nodes(2).start()?;
    rows(slurm).try_for_each(|row| submit_and_compare(&cluster, row))
}

fn figures_per_gpu_become_figures_of_the_job(slurm: Slurm) -> Result<()> {
    for with_filter in [true, false] {
        let cluster = installed(slurm).cli_filter(with_filter).start()?;
        let mut jobs = Vec::new();
        for row in PER_GPU {
            submit_and_compare(&cluster, row)?;
            let job = cluster.user("alice").sbatch(row.options, "sleep 100")?;
            cluster.wait_job(job, "RUNNING")?;
            jobs.push(job);
        }
        let field = |job: u32, name: &str| cluster.job_field(job, name);
        assert_eq!(field(jobs[0], "MinMemoryNode")?.as_deref(), Some("200M"));
        assert_eq!(field(jobs[1], "NumCPUs")?.as_deref(), Some("2"));
        assert_eq!(field(jobs[2], "NumTasks")?.as_deref(), Some("2"));
    }
    Ok(())
}

/// Shows the part of a job's step.
const SHOW: &str = "echo shards=$SLURM_SHARDS_ON_NODE devices=$CUDA_VISIBLE_DEVICES";

fn srun_and_salloc_run_every_granted_form(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    for row in rows(slurm) {
        let Expected::Slice(shards) = row.expected else {
            continue;
        };
        let says = |argv: &[&str]| -> Result<()> {
            let output = cluster.command("alice", argv).output()?;
            let line = format!("shards={shards} devices=0");
            assert!(
                output.stdout.lines().any(|said| said == line),
                "{argv:?}: {output:?}"
            );
            Ok(())
        };
        says(&[&["srun"], row.options, &["bash", "-c", SHOW]].concat())?;
        says(&[&["salloc"], row.options, &["srun", "bash", "-c", SHOW]].concat())?;
    }
    Ok(())
}

fn srun_refuses_figures_per_gpu_and_says_what_to_type(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let user = cluster.user("alice");
    for (row, instead) in PER_GPU
        .iter()
        .zip(["--mem=200M", "--cpus-per-task=2", "--ntasks=2"])
    {
        let refusal = user.srun(&[row.options, &["true"]].concat())?.refused()?;
        assert!(refusal.contains("[SLICE_OPTION]"), "{refusal}");
        let line = format!("softmig: use srun --gres=gpu:l40s.4:1 {instead}");
        assert!(refusal.contains(&line), "{refusal}");
        user.srun(&["--gres=gpu:l40s.4:1", instead, "true"])?.ok()?;
    }
    Ok(())
}

fn steps_inside_a_job_ask_in_the_users_words_too(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let user = cluster.user("alice");
    let steps = [
        "srun bash -c",
        "srun --gres=gpu:l40s.4:1 bash -c",
        "srun --gpus=l40s.4:1 bash -c",
        "srun --gpus-per-node=l40s.4:1 bash -c",
        "srun --gres=gpu:l40s.10g:1 bash -c",
        "srun --gres=shard:l40s:1 bash -c",
        // One GPU, which is what launchers ask for: the slice.
        "srun --gpus=1 bash -c",
        "srun --gres=gpu:1 bash -c",
        "srun --gres=gpu:l40s:1 bash -c",
        "srun --gpus-per-node=1 bash -c",
        "srun -n1 --gpus-per-task=1 bash -c",
        "srun --gpus=$SLURM_GPUS_ON_NODE bash -c",
    ];
    let script: String = steps
        .iter()
        .map(|step| format!("{step} '{SHOW}'\n"))
        .collect();
    // Also with the options that reach a step through the job's environment.
    for options in [
        &["--gres=gpu:l40s.4:1"][..],
        &["--gpus=l40s.4:1"],
        &["--gpus-per-task=l40s.4:1", "--ntasks=1"],
    ] {
        let job = user.sbatch(options, &format!("exec 2>&1\n{script}true"))?;
        cluster.wait_job(job, "COMPLETED")?;
        let said = user.job_output(job)?;
        let right = said
            .lines()
            .filter(|line| *line == "shards=1 devices=0")
            .count();
        assert_eq!(right, steps.len(), "{options:?}:\n{said}");
    }
    Ok(())
}

/// By the variables that they read. What srun takes for its own option has no number, so that a step asks for no GPU where the
/// filter does not run.
fn launchers_count_one_gpu_in_a_slice(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let user = cluster.user("alice");
    let show = "echo gpus=$SLURM_GPUS_ON_NODE devices=$CUDA_VISIBLE_DEVICES \
                asked=$SLURM_GPUS$SLURM_GPUS_PER_NODE$SLURM_GPUS_PER_TASK";
    let script = format!(
        "exec 2>&1\n{show}\nsrun bash -c '{show}'\nsed /^CliFilter/d $SLURM_CONF >bare.conf\n\
         SLURM_CONF=$PWD/bare.conf srun bash -c '{show}'"
    );
    for options in [
        &["--gres=gpu:l40s.4:1"][..],
        &["--gpus=l40s.4:1"],
        &["--gpus-per-node=l40s.4:1"],
        &["--gpus-per-task=l40s.4:1", "--ntasks=1"],
        &["--gpus=l40s.4:1", "--array=7"],
    ] {
        let job = user.sbatch(&[options, &["--output=said"]].concat(), &script)?;
        cluster.wait_job(job, "COMPLETED")?;
        let said = user.run(&["cat", "said"])?.ok()?;
        let one = "gpus=1 devices=0 asked=";
        assert_eq!(of_steps(&said), [one; 3], "{options:?}: {said}");
    }
    Ok(())
}

/// What a job's steps wrote. On a busy machine srun says between them that it waits for the step before.
fn of_steps(said: &str) -> Vec<&str> {
    let lines = said.lines();
    lines.filter(|line| !line.starts_with("srun: ")).collect()
}

fn a_step_that_cannot_be_asked_for_says_what_to_do(slurm: Slurm) -> Result<()> {
    let cluster = enforced(slurm).start()?;
    let user = cluster.user("alice");
    for (option, variable) in [
        ("--mem-per-gpu=200", "SLURM_MEM_PER_GPU"),
        ("--cpus-per-gpu=2", "SLURM_CPUS_PER_GPU"),
        ("--ntasks-per-gpu=2", "SLURM_NTASKS_PER_GPU"),
    ] {
        let script = format!("exec 2>&1\nsrun true\nunset {variable}\nsrun -n1 bash -c '{SHOW}'");
        let job = user.sbatch(&["--gres=gpu:l40s.4:1", option], &script)?;
        cluster.wait_job(job, "COMPLETED")?;
        let said = user.job_output(job)?;
        assert!(said.contains(&format!("unset {variable}")), "{said}");
        assert!(said.ends_with("shards=1 devices=0\n"), "{said}");

        // Typed for the step, also where no more is known than the job's number.
        let bare = "env -i PATH=$PATH SLURM_JOB_ID=$SLURM_JOB_ID SLURM_CONF=$SLURM_CONF";
        let script = format!("exec 2>&1\nsrun {option} true\n{bare} srun {option} true\ntrue");
        let job = user.sbatch(&["--gres=gpu:l40s.4:1"], &script)?;
        cluster.wait_job(job, "COMPLETED")?;
        let said = user.job_output(job)?;
        let (name, _) = option.split_once('=').context("no option")?;
        let told = format!("{name} makes srun request a whole GPU, but the job has a slice");
        assert_eq!(said.matches(&told).count(), 2, "{said}");
    }
    Ok(())
}

fn a_step_without_gpus_has_none(slurm: Slurm) -> Result<()> {
    let cluster = enforced(slurm).start()?;
    let user = cluster.user("alice");
    let options = [
        "--gres=none",
        "--gpus=0",
        "--gres=gpu:0",
        "--gpus-per-node=0",
        "--gpus=l40s:0",
        "--gres=shard:0",
    ];
    let steps = options.map(|option| format!("srun -n1 --overlap {option} bash -c '{SHOW}'\n"));
    for gres in ["--gres=gpu:l40s.4:1", "--gres=gpu:l40s:1"] {
        let script = format!("exec 2>&1\n{}true", steps.concat());
        let job = user.sbatch(&[gres], &script)?;
        cluster.wait_job(job, "COMPLETED")?;
        let said = user.job_output(job)?;
        let right = said.lines().filter(|line| line.ends_with("devices="));
        assert_eq!(right.count(), options.len(), "{gres}:\n{said}");
    }
    Ok(())
}

/// As from a notebook's terminal, or the head of a pipeline.
fn a_job_that_is_submitted_from_a_slice_is_its_own(slurm: Slurm) -> Result<()> {
    let cluster = enforced(slurm).start()?;
    let user = cluster.user("alice");
    let script = format!(
        "exec 2>&1\nunset ${{!SLURM_MEM_PER_*}}\n\
         sbatch --wait --output=one --gres=gpu:l40s:1 --wrap 'srun --gpus=1 bash -c \"{SHOW}\"' || exit 1\n\
         sbatch --wait --output=two --gres=gpu:l40s:1 --mem-per-gpu=100M --wrap 'srun bash -c \"{SHOW}\"' || exit 2\n\
         salloc --gres=gpu:l40s:1 srun --gpus=1 true || exit 3\n\
         salloc --gres=gpu:l40s.2:1 srun --gres=gpu:l40s.2:1 true || exit 4\n"
    );
    let job = user.sbatch(&["--gres=gpu:l40s.4:1", "--mem=100M"], &script)?;
    let ended = cluster.wait_job(job, "COMPLETED");
    ended.with_context(|| user.job_output(job).unwrap_or_default())?;
    Ok(())
}

fn each_of_several_nodes_has_a_slice(slurm: Slurm) -> Result<()> {
    let cluster = enforced(slurm).nodes(3).start()?;
    let user = cluster.user("alice");
    let forms = [
        &["--nodes=2", "--gres=gpu:l40s.4:1"][..],
        &["--nodes=2-3", "--gres=gpu:l40s.10g:1"],
        &["--nodes=2", "--gpus-per-node=l40s.4:1"],
        &[
            "--nodes=2",
            "--ntasks-per-node=1",
            "--gpus-per-task=l40s.4:1",
        ],
    ];
    // A task on each node, and one on each of them by itself.
    let here = format!(
        "{SHOW} limit=$(grep -cx CUDA_DEVICE_MEMORY_LIMIT=11366M /var/run/softmig/$SLURM_JOB_ID.conf)"
    );
    let all = format!("srun --ntasks-per-node=1 bash -c '{here}'");
    let script = format!("exec 2>&1\n{all}\nsrun -N1 -n1 bash -c '{here}'\ntrue");
    let right = "shards=1 devices=0 limit=1\n";
    for options in forms {
        let job = user.sbatch(options, &script)?;
        cluster.wait_job(job, "COMPLETED")?;
        let said = user.job_output(job)?;
        assert_eq!(
            of_steps(&said),
            [right.trim_end(); 3],
            "{options:?}: {said}"
        );
        let nodes = cluster.job_field(job, "NumNodes")?;
        assert_eq!(nodes.as_deref(), Some("2"), "{options:?}");
        let run = [&["srun"], options, &["bash", "-c", &here]].concat();
        assert_eq!(
            cluster.run("alice", &run)?.ok()?,
            right.repeat(2),
            "{options:?}"
        );
        let run = [&["salloc"], options, &["srun", "bash", "-c", &here]].concat();
        assert_eq!(
            cluster.run("alice", &run)?.ok()?,
            right.repeat(2),
            "{options:?}"
        );
    }
    // Figures for each GPU are those of each node.
    let options = [
        "--nodes=2",
        "--gres=gpu:l40s.4:1",
        "--mem-per-gpu=200",
        "--cpus-per-gpu=2",
        "--ntasks-per-gpu=2",
    ];
    let job = user.sbatch(&options, "sleep 100")?;
    cluster.wait_job(job, "RUNNING")?;
    let field = |name: &str| cluster.job_field(job, name);
    assert_eq!(field("MinMemoryNode")?.as_deref(), Some("200M"));
    assert_eq!(field("NumCPUs")?.as_deref(), Some("4"));
    assert_eq!(field("NumTasks")?.as_deref(), Some("4"));
    let said = user.try_sbatch(&["--nodes=2", "--gpus=l40s.4:1"], "true")?;
    let each = "use --gres=gpu:l40s.4:1 --nodes=2 for a slice on each node";
    assert!(said.refused()?.contains(each));
    let status = cluster.run("alice", &["softmig", "status"])?.ok()?;
    assert_eq!(status.matches("3 of 4 shards free").count(), 2, "{status}");
    cluster.run("root", &["scancel", &job.to_string()])?.ok()?;
    cluster.wait_until("the confs to go", || {
        let left = |node: &Node| node.exists(format!("/var/run/softmig/{job}.conf"));
        let left: Vec<bool> = cluster.nodes().iter().map(left).collect::<Result<_>>()?;
        Ok(!left.contains(&true))
    })
}

fn a_half_gpu_job_is_always_on_one_gpu(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let user = cluster.user("alice");
    // Quarters leave room for a half on some GPUs only.
    for _ in 0..5 {
        user.sbatch(&["--gres=gpu:l40s.4:1"], "sleep 100")?;
    }
    for _ in 0..4 {
        let job = user.sbatch(
            &["--gres=gpu:l40s.2:1"],
            "echo gpus=$SLURM_JOB_GPUS\nsleep 100",
        )?;
        cluster.wait_job(job, "RUNNING")?;
        let gpus = cluster.wait_for("the job's first line", || {
            Ok(user.job_output(job)?.lines().next().map(str::to_string))
        })?;
        let one = gpus
            .strip_prefix("gpus=")
            .is_some_and(|gpu| gpu.parse::<u32>().is_ok());
        assert!(one, "{gpus}");
    }
    Ok(())
}
