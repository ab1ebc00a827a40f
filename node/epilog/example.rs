//! A node in a folder for tests, and jobs as the prolog leaves them there.

use softmig_node::allowance::{Allowance, Source};
use softmig_node::job::Job;
use softmig_node::job_files::{JobFiles, conf_of};
use softmig_node::node::Node;
use softmig_policy::node::tag::Tag;

pub(crate) fn node() -> (tempfile::TempDir, Node) {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
    (folder, node)
}

/// A job of this user's, with more of its environment.
pub(crate) fn job(id: &str, more: &[(&str, &str)]) -> Job {
    let uid = rustix::process::getuid().as_raw().to_string();
    let gid = rustix::process::getgid().as_raw().to_string();
    let own = [
        ("SLURM_JOB_ID", id),
        ("SLURM_JOB_UID", &uid),
        ("SLURM_JOB_GID", &gid),
    ];
    Job::read(|name| {
        let (_, value) = more.iter().chain(&own).find(|(key, _)| *key == name)?;
        Some(value.into())
    })
    .unwrap()
}

/// Runs the prolog for a job with a slice.
pub(crate) fn slice(node: &Node, job: &Job) {
    let Some(Ok(Tag::Slice(limits))) = Tag::find("softmig=1:l40s:1/4:11366:hard") else {
        panic!()
    };
    prolog(node, job, &Allowance::Slice(limits, Source::Tag));
}

/// The same for one with whole GPUs.
pub(crate) fn whole(node: &Node, job: &Job) {
    prolog(node, job, &Allowance::Whole(Source::Tag));
}

fn prolog(node: &Node, job: &Job, allowance: &Allowance) {
    let conf = conf_of(job, allowance, Default::default(), None);
    JobFiles::new(node, job, conf.as_ref()).apply(node).unwrap();
}
