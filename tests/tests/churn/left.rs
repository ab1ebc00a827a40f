//! Remains of jobs on a node: files, mounts, processes, control groups, seats, memory of the GPUs.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use softmig_fake_node::Node as Driver;
use softmig_tests::supervisor::node_cgroups;
use softmig_tests::{Cluster, Node};

use crate::churn::site::USERS;

/// Which prologs and epilogs slurmd ran on a node.
const CALLS: &str = "/var/lib/softmig/calls";
const RUN: &str = "/var/run/softmig";

/// All of it, each as a line that begins with the node's name.
pub fn left(cluster: &Cluster, node: &Node, driver: &Driver) -> Result<Vec<String>> {
    let mut found = files(node)?;
    found.extend(mounts(node)?);
    found.extend(processes(cluster, node)?);
    found.extend(control_groups(node.name(), true));
    found.extend(seats(node)?);
    for device in driver.usage()? {
        if device.used > 0 || !device.processes.is_empty() {
            found.push(format!("memory of {}: {device:?}", device.uuid));
        }
    }
    let name = node.name();
    Ok(found
        .into_iter()
        .map(|it| format!("{name}: {it}"))
        .collect())
}

/// Confs, ledgers and marks. The sockets and usage.json are the monitor's, and the folders of marks stay.
fn files(node: &Node) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in ["", "/jobs", "/uid", "/gpu"] {
        let names = node.list(format!("{RUN}{folder}"))?.into_iter();
        let names = names.filter(|name| {
            let stays = ["jobs", "uid", "gpu", ".lock", "usage.json"];
            !(stays.contains(&name.as_str()) || name.contains(".sock"))
        });
        found.extend(names.map(|name| format!("{RUN}{folder}/{name}")));
    }
    Ok(found)
}

fn mounts(node: &Node) -> Result<Vec<String>> {
    let mounts = node.run_as_root(&["cat", "/proc/self/mounts"])?.ok()?;
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let ours = places.filter(|place| place.contains("/softmig/jobs"));
    Ok(ours.map(|place| format!("mount {place}")).collect())
}

/// The jobs whose last prolog was followed by no epilog, although they are over.
///
/// A slurmd that is killed between a job's end and its epilog never runs it: the next one finds that the job's credential was
/// revoked, and takes its epilog for done.
pub fn without_epilog(node: &Node) -> Result<BTreeSet<String>> {
    let mut jobs = BTreeSet::new();
    for line in node.read(CALLS)?.unwrap_or_default().lines() {
        match line.split_once(' ') {
            Some(("prolog", job)) => drop(jobs.insert(job.to_owned())),
            Some(("epilog", job)) => drop(jobs.remove(job)),
            _ => {}
        }
    }
    Ok(jobs)
}

/// A script that slurmd runs in the place of softmig's prolog or epilog: it notes that, and goes on with it.
pub fn noted(program: &str) -> String {
    format!(
        "#!/bin/sh\necho {program} $SLURM_JOB_ID >>{CALLS}\nexec /usr/libexec/softmig-{program}\n"
    )
}

/// Processes of users, slurmstepd, prologs and epilogs. All nodes have the same process numbers, so each is told once.
fn processes(cluster: &Cluster, node: &Node) -> Result<Vec<String>> {
    if node.name() != cluster.node(0).name() {
        return Ok(Vec::new());
    }
    let said = cluster
        .run("root", &["ps", "-eo", "user=,pid=,args="])?
        .ok()?;
    let twice = launched_twice(cluster)?;
    let is_left = |line: &&str| {
        let user = line.split_whitespace().next().unwrap_or_default();
        let programs = ["slurmstepd:", "softmig-prolog", "softmig-epilog"];
        let is_known = USERS.contains(&user) || programs.iter().any(|name| line.contains(name));
        // 24.11 has one that starts the others.
        is_known
            && !line.contains("slurmstepd infinity")
            && !twice.iter().any(|it| line.contains(it))
    };
    let lines = said.lines().filter(is_left);
    Ok(lines.map(|line| format!("process {line}")).collect())
}

/// The slurmstepd of batch scripts that slurmctld launched a second time, since it repeats a message to a node that was away:
/// the second finds the script of the first, gives up, and does not end.
pub fn launched_twice(cluster: &Cluster) -> Result<Vec<String>> {
    const GIVES_UP: &str = "error: batch script setup failed for job ";
    let mut found = Vec::new();
    for node in cluster.nodes() {
        let log = cluster.slurmd_log(node)?;
        let jobs = log.lines().filter_map(|line| line.split_once(GIVES_UP));
        let jobs = jobs.filter_map(|(_, job)| job.split(' ').next());
        found.extend(jobs.map(|job| format!("slurmstepd: [{job}.batch]")));
    }
    Ok(found)
}

/// Control groups of jobs: with processes in them, or without. Slurm itself leaves some that are empty, when slurmstepd gives
/// up root's rights while another of its threads removes them.
pub fn control_groups(node: &str, with_processes: bool) -> Vec<String> {
    let mut folders = node_cgroups(Path::new("/sys/fs/cgroup"), &[node]);
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let is_job = entry.file_name().to_string_lossy().starts_with("job_");
            if is_job && has_processes(&entry.path()) == with_processes {
                found.push(format!("control group {}", entry.path().display()));
            }
            folders.push(entry.path());
        }
    }
    found
}

/// Whether there is a process in a control group, or in one below.
fn has_processes(group: &Path) -> bool {
    let own = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let below = std::fs::read_dir(group).into_iter().flatten().flatten();
    let mut below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    !own.is_empty() || below.any(|entry| has_processes(&entry.path()))
}

/// The processes that the monitor shares a GPU among.
fn seats(node: &Node) -> Result<Vec<String>> {
    let words = ["/usr/libexec/softmig-monitor", "--once", "--json"];
    let said = node.run_as_root(&words)?;
    let report: Value = serde_json::from_str(&said.stdout).with_context(|| said.to_string())?;
    let mut found = Vec::new();
    if !report["usage_error"].is_null() {
        found.push(format!(
            "the monitor does not answer: {}",
            report["usage_error"]
        ));
    }
    for job in report["usage"]["jobs"].as_array().into_iter().flatten() {
        found.push(format!("the monitor knows of {job}"));
    }
    Ok(found)
}
