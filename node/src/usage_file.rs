//! The figures of a job that the monitor leaves in the job's folder, `jobs/JOBID/usage`. Root writes them, and the job's user can read them.

use crate::dir::Dir;
use crate::job::JobId;
use crate::node::Node;
use softmig_usage as usage;

/// The file's name.
pub const NAME: &str = "usage";

/// A job of very many GPUs has less to say.
const LONGEST: u64 = 1 << 20;

/// The job's last figures; `None` where there are none.
pub fn of_job(node: &Node, id: JobId) -> Option<usage::Job> {
    let run = Dir::open(&node.run, node.owner).ok()??;
    let folder = run.child("jobs").ok()??.child(&id.to_string()).ok()??;
    let text = folder.read(NAME, LONGEST).ok()??;
    let told: usage::Node = serde_json::from_slice(&text).ok()?;
    told.jobs.into_iter().find(|job| job.job == id.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_jobs_figures_are_read_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        let id = JobId::parse("7").unwrap();
        assert_eq!(of_job(&node, id), None);
        let own = node.run.join("jobs/7");
        std::fs::create_dir_all(&own).unwrap();
        let text = r#"{"schema_version":1,"jobs":[{"job":7,"uid":2001}]}"#;
        std::fs::write(folder.path().join("other"), text).unwrap();
        std::os::unix::fs::symlink(folder.path().join("other"), own.join(NAME)).unwrap();
        assert_eq!(of_job(&node, id), None);
        std::fs::remove_file(own.join(NAME)).unwrap();
        std::fs::write(own.join(NAME), text).unwrap();
        assert_eq!(of_job(&node, id).map(|job| job.uid), Some(2001));
        std::fs::write(own.join(NAME), text.replace(":7,", ":8,")).unwrap();
        assert_eq!(of_job(&node, id), None);
    }
}
