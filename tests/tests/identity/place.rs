//! Honest places: every kind of process that Slurm starts has the limits of its own job.

use anyhow::{Context, Result};
use softmig_tests::{Slurm, on_each_slurm};

use crate::identity::answer::Answer;
use crate::identity::site::{HALF, QUARTER, Site, outside, site, step};

on_each_slurm!(
    seams:
    a_step_is_held_to_its_jobs_slice,
    a_batch_script_is_held_to_its_slice,
    two_jobs_of_one_user_are_each_held_to_their_own_slice,
    each_task_of_an_array_is_held_to_its_own_slice,
    a_job_with_a_whole_gpu_is_left_alone,
    a_job_without_gpus_gets_none,
    roots_job_without_gpus_is_left_alone,
    without_the_library_a_job_has_no_limits,
);

fn a_step_is_held_to_its_jobs_slice(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    site.assert_known("whose; sh -c whose; (whose)")?;
    assert_eq!(
        step(&site.cluster, "bob", site.bobs, "whose")?,
        [site.bobs()]
    );
    Ok(())
}

/// Answers of a job array's batch scripts on the second node, by job.
fn batch(site: &Site, options: &[&str], tasks: usize) -> Result<Vec<(u32, Vec<Answer>)>> {
    let script = "echo $SLURM_JOB_ID\nexport SOFTMIG_LOG_LEVEL=3\nexec 2>&1\n/opt/programs/whose";
    let output = format!("--output=/home/alice/batch-{tasks}-%j");
    let fixed = ["--nodelist", site.empty().name(), &output];
    let alice = site.cluster.user("alice");
    alice.sbatch(&[&fixed, options].concat(), script)?;
    let said = |text: &str| -> Result<(u32, Vec<Answer>)> {
        let (job, said) = text.split_once('\n').context("no job")?;
        Ok((job.parse()?, Answer::all(said)?))
    };
    let prefix = format!("batch-{tasks}-");
    site.cluster.wait_for("what the scripts say", || {
        let files = alice.run(&["ls"])?.ok()?;
        let mut texts = Vec::new();
        for file in files.lines().filter(|file| file.starts_with(&prefix)) {
            let text = site.cluster.read(format!("/home/alice/{file}"))?;
            texts.extend(text.filter(|text| text.contains("whose: ")));
        }
        if texts.len() < tasks {
            return Ok(None);
        }
        texts
            .iter()
            .map(|text| said(text))
            .collect::<Result<Vec<_>>>()
            .map(Some)
    })
}

fn a_batch_script_is_held_to_its_slice(slurm: Slurm) -> Result<()> {
    for (job, answers) in batch(site(slurm)?, &["--gres=gpu:l40s.4:1"], 1)? {
        assert_eq!(answers, [Answer::limited(job, QUARTER.0, QUARTER.1)]);
    }
    Ok(())
}

fn each_task_of_an_array_is_held_to_its_own_slice(slurm: Slurm) -> Result<()> {
    let tasks = batch(site(slurm)?, &["--gres=gpu:l40s.2:1", "--array=0-2"], 3)?;
    for (job, answers) in &tasks {
        assert_eq!(*answers, [Answer::limited(*job, HALF.0, HALF.1)]);
    }
    let mut jobs: Vec<u32> = tasks.into_iter().map(|(job, _)| job).collect();
    jobs.dedup();
    assert_eq!(jobs.len(), 3, "each task has an id of its own");
    Ok(())
}

fn two_jobs_of_one_user_are_each_held_to_their_own_slice(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    assert_eq!(site.step(site.quarter, "whose")?, [site.quarter_answer()]);
    assert_eq!(site.step(site.half, "whose")?, [site.half_answer()]);
    Ok(())
}

fn a_job_with_a_whole_gpu_is_left_alone(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    assert_eq!(site.step(site.whole, "whose")?, [Answer::passive()]);
    site.assert_known("whose")
}

fn a_job_without_gpus_gets_none(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let refused = Answer::refused(site.none, NO_CONF);
    assert_eq!(
        site.step(
            site.none,
            "whose; env -i SOFTMIG_LOG_LEVEL=3 /opt/programs/whose"
        )?,
        [refused.clone(), refused]
    );
    Ok(())
}

/// The message in a job that the node knows nothing of.
pub const NO_CONF: &str = "no conf for this job on this node: did its prolog run?";

fn roots_job_without_gpus_is_left_alone(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let srun = [
        "srun",
        "--nodelist",
        site.empty().name(),
        "/opt/programs/whose",
    ];
    let said = site.cluster.run("root", &srun)?.ok()?;
    assert_eq!(Answer::all(&said)?, [Answer::passive()]);
    let users = Answer::refused(site.none, NO_CONF);
    assert_eq!(site.step(site.none, "whose")?, [users]);
    Ok(())
}

fn without_the_library_a_job_has_no_limits(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let bare = "unshare --mount sh -c 'mount --bind /dev/null /etc/ld.so.preload; exec runuser -u alice whose'";
    assert_eq!(
        outside(site.crowded(), "root", bare)?,
        [Answer::without_library()]
    );
    assert_eq!(
        outside(site.crowded(), "alice", "whose")?,
        [site.quarter_answer()]
    );
    Ok(())
}
