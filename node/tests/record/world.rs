//! A folder in which a job is recorded as on a node.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside their functions"
)]

use softmig_node::allowance::{Allowance, decide};
use softmig_node::job::Job;
use softmig_node::job_files::{FilesError, JobFiles, conf_of};
use softmig_node::node::Node;
use softmig_policy::node::job_conf::{Gpus, JobConf, Uuid};
use softmig_policy::slurm::gpu_list::GpuList;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(crate) const SLICE: &str = "softmig=1:l40s:1/4:11366:hard";
pub(crate) const GPU_0: &str = "GPU-00000000-1111-2222-3333-444444444444";
pub(crate) const GPU_1: &str = "GPU-11111111-1111-2222-3333-444444444444";

/// The folder, and the node that is in it.
pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) node: Node,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        Self { folder, node }
    }

    /// Runs the prolog for a job whose comment is `comment`, with these GPUs.
    pub(crate) fn prolog(&self, job: &Job, gpus: &[&str]) -> Result<(), FilesError> {
        let allowance = decide(job.id, job.tags.comment, None, None, || {
            panic!("asked slurmctld")
        });
        self.prolog_with(job, &allowance, gpus)
    }

    pub(crate) fn prolog_with(
        &self,
        job: &Job,
        allowance: &Allowance,
        gpus: &[&str],
    ) -> Result<(), FilesError> {
        let mut list = Gpus::default();
        for uuid in gpus {
            list.push(Uuid::parse(uuid).unwrap()).unwrap();
        }
        let conf = conf_of(job, allowance, list, None);
        JobFiles::new(&self.node, job, conf.as_ref()).apply(&self.node)
    }

    /// Runs the prolog for the job without GPUs.
    pub(crate) fn clear(&self, job: &Job) {
        JobFiles::new(&self.node, job, None)
            .apply(&self.node)
            .unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.node.run.join(name)
    }

    pub(crate) fn conf(&self, name: &str) -> JobConf {
        JobConf::parse(&fs::read(self.path(name)).unwrap()).unwrap()
    }

    /// All files and folders with mode and content.
    pub(crate) fn all(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let mut all = BTreeMap::new();
        collect(&self.node.run, &mut all);
        all
    }

    /// All files, without the folders that the node keeps.
    pub(crate) fn files(&self) -> Vec<String> {
        let relative = |path: &Path| path.strip_prefix(&self.node.run).unwrap().to_path_buf();
        let all = self.all().into_keys().filter(|path| !path.is_dir());
        let names = all.map(|path| relative(&path).to_string_lossy().into_owned());
        names.filter(|name| name != ".lock").collect()
    }
}

fn collect(folder: &Path, all: &mut BTreeMap<PathBuf, (u32, Vec<u8>)>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for path in entries.map(|entry| entry.unwrap().path()) {
        let mode = fs::symlink_metadata(&path).unwrap().mode();
        let content = fs::read(&path).unwrap_or_default();
        collect(&path, all);
        all.insert(path, (mode, content));
    }
}

/// A job of this user's, with more of its environment.
pub(crate) fn job(id: &str, tag: &str, more: &[(&str, &str)]) -> Job {
    let uid = rustix::process::getuid().as_raw().to_string();
    Job::read(|name| match name {
        "SLURM_JOB_ID" => Some(id.into()),
        "SLURM_JOB_UID" => Some(uid.clone().into()),
        "SLURM_JOB_GID" => Some(rustix::process::getgid().as_raw().to_string().into()),
        "SLURM_JOB_GPUS" => Some("0".into()),
        "SLURM_JOB_COMMENT" => Some(tag.into()),
        _ => more
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.into()),
    })
    .unwrap()
}

/// The GPUs that `SLURM_JOB_GPUS` gives with this text.
pub(crate) fn with_gpus(list: &str) -> Option<GpuList> {
    let job = Job::read(|name| match name {
        "SLURM_JOB_GPUS" => Some(list.into()),
        _ => Some("7".into()),
    });
    job.unwrap().gpus
}
