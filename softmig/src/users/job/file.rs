//! The facts on a job's node about what it used, or else about its limits.

use softmig_node::dir::Dir;
use softmig_node::job::JobId;
use softmig_node::node::Node;
use softmig_node::usage_file;
use softmig_policy::node::job_conf::JobConf;
use softmig_usage as usage;

/// A conf is shorter.
const LONGEST_CONF: u64 = 64 << 10;

/// The node's figures of a job.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// The monitor's figures.
    Used(Box<usage::Node>),
    /// Its limits alone, in words.
    Limits(String),
    /// Neither of them.
    Nothing,
}

/// Looks for a job.
pub(super) fn read(node: &Node, id: JobId) -> anyhow::Result<Found> {
    if let Some(used) = usage_file::read(node, id)? {
        return Ok(Found::Used(Box::new(used)));
    }
    let Some(run) = Dir::open(&node.run, node.owner)? else {
        return Ok(Found::Nothing);
    };
    let conf = run
        .read(&format!("{id}.conf"), LONGEST_CONF)?
        .and_then(|text| JobConf::parse(&text).ok());
    Ok(match conf.map(|conf| conf.limits) {
        Some(Some(limits)) => {
            let (share, kind) = (limits.share(), limits.gpu_type());
            let (memory, percent) = (limits.memory_mib(), limits.percent());
            Found::Limits(format!(
                "{share} of one {kind}: {memory} MiB and {percent} % of its time"
            ))
        }
        Some(None) => Found::Limits("whole GPUs".into()),
        None => Found::Nothing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn node() -> (tempfile::TempDir, Node) {
        let folder = tempfile::tempdir().unwrap();
        let owner = folder.path().metadata().unwrap().uid();
        let node = Node::in_folder(folder.path(), owner);
        fs::create_dir_all(node.run.join("jobs/7")).unwrap();
        (folder, node)
    }

    fn read(node: &Node) -> anyhow::Result<Found> {
        super::read(node, JobId::parse("7").unwrap())
    }

    #[test]
    fn figures_are_read_and_else_the_limits_are() {
        let (_folder, node) = node();
        assert_eq!(read(&node).unwrap(), Found::Nothing);
        let conf = "CUDA_DEVICE_MEMORY_LIMIT=11366M\nCUDA_DEVICE_SM_LIMIT=25\nSOFTMIG_JOB=7\nSOFTMIG_UID=1000\n\
                    SOFTMIG_TYPE=l40s\nSOFTMIG_SHARDS=1/4\nSOFTMIG_MODE=hard\nSOFTMIG_GPUS=\nSOFTMIG_RUN=0\n";
        fs::write(node.run.join("7.conf"), conf).unwrap();
        let limits = "1/4 of one l40s: 11366 MiB and 25 % of its time";
        assert_eq!(read(&node).unwrap(), Found::Limits(limits.into()));
        let path = node.run.join("jobs/7/usage");
        fs::write(&path, r#"{"schema_version":1,"jobs":[{"job":7}]}"#).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let Found::Used(used) = read(&node).unwrap() else {
            panic!()
        };
        assert_eq!(used.jobs[0].job, 7);
    }
}
