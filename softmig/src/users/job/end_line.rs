//! The line at a job's end, which TaskEpilog says: as the job's user, whose output takes what it writes to standard error.
//! slurmstepd throws its standard output away (seen on 22.05 and 24.11, for srun and for batch jobs).

use super::file::{self, Found};
use crate::output::say;
use softmig_node::job::JobId;
use softmig_node::node::Node;
use softmig_policy::node::cgroup::place;
use softmig_usage::summary::Summary;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Says it, if the policy wants it, the figures are there, and nothing else of the job runs. Slurm calls this for each task of
/// each step, the batch script's last.
pub(super) fn say() {
    let node = Node::this_machine();
    let id = std::env::var("SLURM_JOB_ID")
        .ok()
        .and_then(|id| JobId::parse(&id));
    if let Some(id) = id
        && let Some(line) = line(&node, id)
        && !is_running(Path::new("/proc"))
    {
        say::error_line(&format!("softmig: this job {line}"));
    }
}

fn line(node: &Node, id: JobId) -> Option<String> {
    let policy = node.policy().ok()?;
    if !policy.report.end_line {
        return None;
    }
    let Found::Used(used) = file::read(node, id).ok()? else {
        return None;
    };
    let job = used.jobs.iter().find(|job| job.job == id.get())?;
    let gpu = policy.gpu(&job.slice.as_ref()?.r#type);
    Some(Summary::from_job(job)?.sentence(gpu))
}

/// Whether a task of this job runs, other than this program. The processes of Slurm itself are root's.
fn is_running(proc: &Path) -> bool {
    let own = fs::read(proc.join("self/cgroup")).unwrap_or_default();
    let own = place(&own);
    let uid = rustix::process::getuid().as_raw();
    let me = std::process::id().to_string();
    let parent = std::os::unix::process::parent_id().to_string();
    let Ok(all) = fs::read_dir(proc) else {
        return false;
    };
    all.flatten().any(|process| {
        let name = process.file_name();
        let is_process = name.to_str().is_some_and(|name| {
            name.bytes().all(|byte| byte.is_ascii_digit()) && name != me && name != parent
        });
        let is_mine = || process.metadata().is_ok_and(|stat| stat.uid() == uid);
        is_process && is_mine() && {
            let text = fs::read(process.path().join("cgroup")).unwrap_or_default();
            place(&text) == own && is_task(&text)
        }
    })
}

/// Whether this is the control group of a step with tasks: `extern` has none.
fn is_task(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.split("/step_")
        .skip(1)
        .any(|step| !step.starts_with("extern"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_line_needs_figures_and_a_policy_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let owner = folder.path().metadata().unwrap().uid();
        let node = Node::in_folder(folder.path(), owner);
        let id = JobId::parse("7").unwrap();
        let gpu = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 8\n";
        let policy = |report: &str| fs::write(&node.policy, format!("{gpu}{report}")).unwrap();
        policy("[report]\nend_line = true\n");
        assert_eq!(line(&node, id), None);
        let figures = r#"{"schema_version":1,"jobs":[{"job":7,
            "slice":{"type":"l40s","shards":2,"shards_per_gpu":8,"memory_bytes":11918114816},
            "gpus":[{"memory_peak_bytes":8493465600,"known_seconds":1000.0,"charged_seconds":152.5,"waited_seconds":40.0}]}]}"#;
        fs::create_dir_all(node.run.join("jobs/7")).unwrap();
        let path = node.run.join("jobs/7/usage");
        fs::write(&path, figures).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let said = "used 7.9 of 11.1 GiB, 61 % of its quarter, waited 4 %; an eighth would not have held it";
        assert_eq!(line(&node, id).as_deref(), Some(said));
        policy("");
        assert_eq!(line(&node, id), None);
    }

    #[test]
    fn the_last_task_is_told_by_control_groups() {
        let folder = tempfile::tempdir().unwrap();
        let proc = folder.path();
        let process = |pid: &str, cgroup: &str| {
            fs::create_dir_all(proc.join(pid)).unwrap();
            fs::write(proc.join(pid).join("cgroup"), cgroup).unwrap();
        };
        let job = "0::/system.slice/slurmstepd.scope/job_7";
        process("self", &format!("{job}/step_batch/user/task_0\n"));
        process("4000001", &format!("{job}/step_extern/user/task_special\n"));
        process(
            "4000002",
            "0::/system.slice/slurmstepd.scope/job_8/step_0/user/task_0\n",
        );
        process("4000003", "6:freezer:/slurm/uid_1/job_7\n");
        assert!(!is_running(proc));
        process("4000004", &format!("{job}/step_0/user/task_1\n"));
        assert!(is_running(proc));
    }
}
