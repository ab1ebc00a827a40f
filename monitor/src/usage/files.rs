//! The last figures on disk: those of each job for its user, and all for the monitor that comes after this one.
//!
//! The folders are root's, so no user can have anything written elsewhere.

use crate::jobs::acl::{Who, let_in};
use softmig_node::dir::{Dir, DirError};
use softmig_node::node::Node;
use softmig_node::usage_file;
use softmig_usage as usage;
use tracing::warn;

/// The file with all of them, in the run folder, for root alone.
const ALL: &str = "usage.json";

/// Far more than there is to say of a node.
const LONGEST: u64 = 4 << 20;

/// Writes and reads them.
#[derive(Debug)]
pub struct Files {
    node: Node,
    /// The last trouble, so that it is said once.
    trouble: Option<String>,
}

impl Files {
    /// Of this node.
    pub fn new(node: Node) -> Self {
        Self {
            node,
            trouble: None,
        }
    }

    /// The figures of an earlier monitor; none if the node has started since.
    pub fn load(&self) -> usage::Node {
        let read = || {
            let run = Dir::open(&self.node.run, self.node.owner).ok()??;
            let text = run.read(ALL, LONGEST).ok()??;
            usage::Node::read(&text).ok()
        };
        read().unwrap_or_default()
    }

    /// Writes what the next monitor goes on from. Where its jobs are not known, those on disk stay.
    pub fn keep(&mut self, node: &usage::Node, are_jobs_known: bool) {
        let trouble = self
            .try_to_keep(node, are_jobs_known)
            .err()
            .map(|it| it.to_string());
        if let Some(trouble) = &trouble
            && self.trouble.is_none()
        {
            warn!("the usage of GPUs is not on disk: {trouble}");
        }
        self.trouble = trouble;
    }

    fn try_to_keep(&self, node: &usage::Node, are_jobs_known: bool) -> Result<(), DirError> {
        let Some(run) = Dir::open(&self.node.run, self.node.owner)? else {
            return Ok(());
        };
        if are_jobs_known {
            return put(&run, ALL, node, None);
        }
        let jobs = self.load().jobs;
        let node = usage::Node {
            jobs,
            ..node.clone()
        };
        put(&run, ALL, &node, None)
    }

    /// Writes to each job's user what there is to say of the job.
    pub fn write(&self, node: &usage::Node) {
        let jobs = || {
            let run = Dir::open(&self.node.run, self.node.owner).ok()??;
            run.child("jobs").ok()?
        };
        let Some(jobs) = jobs() else { return };
        for job in &node.jobs {
            let Some(folder) = jobs.child(&job.job.to_string()).ok().flatten() else {
                continue;
            };
            let alone = usage::Node {
                schema_version: node.schema_version,
                time: node.time,
                node: node.node.clone(),
                error: node.error.clone(),
                jobs: vec![job.clone()],
                ..usage::Node::default()
            };
            // Nothing is owed to a job that filled its folder, or whose epilog removes it just now.
            let _ = put(&folder, usage_file::NAME, &alone, Some(Who::User(job.uid)));
        }
    }
}

fn put(folder: &Dir, name: &str, node: &usage::Node, reader: Option<Who>) -> Result<(), DirError> {
    let new = format!(".{name}.new");
    folder.remove(&new)?;
    let text = serde_json::to_vec(node).unwrap_or_default();
    let file = folder.create(&new, 0o600, &text)?;
    if let Some(who) = reader {
        // Where there are no such lists, root alone reads it.
        let _ = let_in(&file, who);
    }
    folder.rename(&new, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn node(jobs: &[u32]) -> usage::Node {
        let job = |&job| usage::Job {
            job,
            uid: 2001,
            ..usage::Job::default()
        };
        usage::Node {
            schema_version: usage::VERSION,
            jobs: jobs.iter().map(job).collect(),
            gpus: vec![usage::GpuUsage::default()],
            ..usage::Node::default()
        }
    }

    #[test]
    fn each_job_reads_its_own_and_the_next_monitor_all() {
        let folder = tempfile::tempdir().unwrap();
        let here = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        let mut files = Files::new(here.clone());
        assert_eq!(files.load(), usage::Node::default());
        let other = folder.path().join("other");
        std::fs::write(&other, "").unwrap();
        std::fs::create_dir_all(here.run.join("jobs/7")).unwrap();
        // Anything in the way is replaced, and never followed.
        symlink(&other, here.run.join("jobs/7/usage")).unwrap();
        symlink(&other, here.run.join("jobs/7/.usage.new")).unwrap();
        files.keep(&node(&[7, 8]), true);
        files.write(&node(&[7, 8]));
        assert_eq!(files.trouble, None);
        assert_eq!(files.load(), node(&[7, 8]));
        let text = std::fs::read(here.run.join("jobs/7/usage")).unwrap();
        let alone: usage::Node = serde_json::from_slice(&text).unwrap();
        assert_eq!((alone.jobs.len(), alone.jobs[0].job), (1, 7));
        assert!(alone.gpus.is_empty());
        assert_eq!(std::fs::read(&other).unwrap(), b"");
        let mode = |name: &str| {
            let stat = std::fs::symlink_metadata(here.run.join(name)).unwrap();
            stat.mode() & 0o7777
        };
        assert_eq!(mode("usage.json"), 0o600);
        assert_eq!(mode("jobs/7/usage") & 0o7137, 0);
        assert!(!here.run.join("jobs/8").exists());
    }

    #[test]
    fn what_another_version_wrote_is_not_taken_for_ours() {
        let folder = tempfile::tempdir().unwrap();
        let here = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        std::fs::create_dir(&here.run).unwrap();
        let files = Files::new(here.clone());
        for text in ["", "[]", r#"{"schema_version":99,"node":"n1"}"#] {
            std::fs::write(here.run.join(ALL), text).unwrap();
            assert_eq!(files.load(), usage::Node::default(), "{text}");
        }
    }
}
