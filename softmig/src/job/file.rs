//! The file in which the monitor says what a job used. It lies in a folder that only root can write to; it is read as if
//! anything could be in it.

use anyhow::{Context as _, bail};
use softmig_node::dir::Dir;
use softmig_node::job::JobId;
use softmig_node::node::Node;
use softmig_node::usage_file::NAME;
use softmig_policy::node::job_conf::JobConf;
use softmig_usage as usage;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

/// One job's figures on 16 GPUs are far shorter.
const LONGEST: u64 = 1 << 20;
/// A conf is shorter.
const LONGEST_CONF: u64 = 64 << 10;

/// The node's figures of a job.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// The monitor's figures.
    Used(Box<usage::Node>),
    /// Its limits alone, in words.
    Limits(String),
    /// Nothing.
    Nothing,
}

/// Looks for a job.
pub(super) fn read(node: &Node, id: JobId) -> anyhow::Result<Found> {
    let folder = Dir::open(&node.run.join("jobs").join(id.to_string()), node.owner)?;
    if let Some(folder) = folder
        && let Some(used) = figures(&folder)?
    {
        return Ok(Found::Used(Box::new(used)));
    }
    let Some(run) = Dir::open(&node.run, node.owner)? else {
        return Ok(Found::Nothing);
    };
    let conf = run.read(&format!("{id}.conf"), LONGEST_CONF)?;
    let conf = conf.and_then(|text| JobConf::parse(&text).ok());
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

fn figures(folder: &Dir) -> anyhow::Result<Option<usage::Node>> {
    let Some(file) = folder.open_file(NAME)? else {
        return Ok(None);
    };
    let path = folder.path().join(NAME);
    let path = path.display();
    let stat = file
        .metadata()
        .with_context(|| format!("looking at {path}"))?;
    if stat.uid() != folder.owner() || stat.mode() & 0o022 != 0 {
        bail!("{path} is not used: others than root can write to it");
    }
    let mut text = Vec::new();
    file.take(LONGEST)
        .read_to_end(&mut text)
        .with_context(|| format!("reading {path}"))?;
    let used: usage::Node = serde_json::from_slice(&text)
        .with_context(|| format!("{path} is not what the monitor writes"))?;
    if used.schema_version != usage::VERSION {
        bail!(
            "{path} has form {}, and this softmig reads form {}: one of the two programs is older",
            used.schema_version,
            usage::VERSION
        );
    }
    Ok(Some(used))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

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

    #[test]
    fn what_a_user_could_have_put_there_is_not_believed() {
        let (folder, node) = node();
        let path = node.run.join("jobs/7/usage");
        let told = |node: &Node| read(node).unwrap_err().to_string();
        let elsewhere = folder.path().join("mine");
        fs::write(&elsewhere, r#"{"schema_version":1}"#).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert!(told(&node).contains("opening "), "{}", told(&node));
        fs::remove_file(&path).unwrap();
        fs::write(&path, r#"{"schema_version":1}"#).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert!(told(&node).ends_with("others than root can write to it"));
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        for (text, words) in [
            ("", "is not what the monitor writes"),
            ("[[[[[[", "is not what the monitor writes"),
            (
                r#"{"schema_version":9}"#,
                "has form 9, and this softmig reads form 1",
            ),
        ] {
            fs::write(&path, text).unwrap();
            assert!(told(&node).contains(words), "{}", told(&node));
        }
        // Of a very long one only the beginning is read.
        fs::write(&path, vec![b' '; 2 << 20]).unwrap();
        assert!(told(&node).contains("is not what the monitor writes"));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(
            told(&node).ends_with("is not a plain file"),
            "{}",
            told(&node)
        );
    }
}
