//! The files of prolog and epilog on a node, as a test sees it.

use anyhow::{Context, Result};
use softmig_policy::node::job_conf::JobConf;
use softmig_tests::{Cluster, Node};

/// Where a job's conf is.
pub(crate) fn path(job: u32) -> String {
    format!("/var/run/softmig/{job}.conf")
}

/// The conf of a job on a node, which must be whole.
pub(crate) fn conf(node: &Node, job: u32) -> Result<JobConf> {
    let text = node
        .read(path(job))?
        .with_context(|| format!("no conf of job {job}"))?;
    JobConf::parse(text.as_bytes()).map_err(|error| anyhow::anyhow!("{error}: {text}"))
}

/// Waits for a job and its prolog: Slurm calls a job running as soon as it has its nodes.
pub(crate) fn wait_for_start(cluster: &Cluster, node: &Node, job: u32) -> Result<JobConf> {
    cluster.wait_job(job, "RUNNING")?;
    cluster.wait_for("the job's conf", || {
        Ok(node.exists(path(job))?.then_some(()))
    })?;
    conf(node, job)
}

/// The memory that a job may take; `None` for whole GPUs.
pub(crate) fn memory(node: &Node, job: u32) -> Result<Option<u32>> {
    Ok(conf(node, job)?.limits.map(|limits| limits.memory_mib()))
}

/// Run files that are not always there, and mounts.
pub(crate) fn left_over(node: &Node) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in ["", "/jobs", "/uid", "/gpu"] {
        for name in node
            .list(format!("/var/run/softmig{folder}"))
            .unwrap_or_default()
        {
            if !matches!(name.as_str(), "jobs" | "uid" | "gpu" | ".lock") {
                found.push(format!("{folder}/{name}"));
            }
        }
    }
    found.extend(mounts(node)?);
    Ok(found)
}

/// The file systems that are mounted for jobs.
pub(crate) fn mounts(node: &Node) -> Result<Vec<String>> {
    let mounts = node.run_as_root(&["cat", "/proc/self/mounts"])?.ok()?;
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let ours = places.filter(|place| place.contains("/softmig/jobs"));
    Ok(ours.map(str::to_owned).collect())
}

/// Waits until nothing on a node names a job any more.
pub(crate) fn wait_until_clean(cluster: &Cluster, node: &Node) -> Result<()> {
    cluster.wait_for("an empty run folder", || {
        // Folders of users and GPUs may stay; what names a job may not.
        let jobs: Vec<String> = left_over(node)?
            .into_iter()
            .filter(|name| !name.starts_with("/uid/") && !name.starts_with("/gpu/"))
            .collect();
        Ok(jobs.is_empty().then_some(()))
    })
}

/// Ends a job.
pub(crate) fn cancel(cluster: &Cluster, job: u32) -> Result<()> {
    cluster
        .run("root", &["scancel", &job.to_string()])?
        .ok()
        .map(drop)
}

/// Runs the installed prolog or epilog on a node as slurmd would.
pub(crate) fn as_slurmd(node: &Node, program: &str, variables: &str) -> Result<()> {
    let line = format!("env -i PATH=/usr/bin:/bin {variables} /usr/libexec/softmig-{program}");
    node.run_as_root(&["bash", "-c", &line])?.ok().map(drop)
}

/// The environment of job 500's prolog and epilog on a node, a quarter of each of these GPUs.
pub(crate) fn environment(gpus: &str) -> String {
    format!(
        "SLURM_JOB_ID=500 SLURM_JOB_UID=2001 SLURM_JOB_GID=2001 SLURM_JOB_GPUS={gpus} \
         SLURM_JOB_COMMENT=softmig=1:l40s:1/4:11366:hard"
    )
}
