//! The limits of the jobs on this node, as the prolog wrote them.

use softmig_node::dir::{Dir, DirError};
use softmig_node::job::JobId;
use softmig_node::node::Node;
use softmig_policy::node::cgroup::is_sluid;
use softmig_policy::node::job_conf::JobConf;
use softmig_policy::node::names::Names;
use softmig_policy::node::paths::LONGEST_CONF;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// The confs of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confs {
    /// By the job's number; an error is what is wrong with its conf.
    pub jobs: BTreeMap<u32, Result<JobConf, String>>,
    /// Other facts about a job with a conf.
    pub about: BTreeMap<u32, About>,
    /// The numbers of jobs that are known by another name.
    pub sluids: BTreeMap<String, u32>,
}

/// Facts about a job beside its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// When its conf was written.
    pub since: SystemTime,
    /// The user's name, as Slurm said it.
    pub user: Option<String>,
    /// The account, as Slurm said it.
    pub account: Option<String>,
    /// The user's primary group, as Slurm said it.
    pub group: Option<u32>,
}

impl Confs {
    /// Reads all of them, or none: an error says that one of them could not be read at all. The lock of prolog and epilog is left to them: a conf comes and goes whole.
    pub fn read(node: &Node) -> Result<Self, DirError> {
        let mut confs = Self::default();
        let Some(dir) = Dir::open(&node.run, node.owner)? else {
            return Ok(confs);
        };
        for name in dir.names()? {
            let Some(stem) = name.strip_suffix(".conf") else {
                continue;
            };
            let id = JobId::parse(stem).map(JobId::get);
            if id.is_none() && !is_sluid(stem) {
                continue;
            }
            // Its job may have ended by now.
            let Some((conf, about)) = conf(&dir, &name)? else {
                continue;
            };
            match (id, conf) {
                (Some(id), conf) => {
                    confs.jobs.insert(id, conf);
                    confs.about.insert(id, about);
                }
                (None, Ok(conf)) => {
                    let id = conf.job.map(|id| (stem.to_owned(), id.get()));
                    confs.sluids.extend(id);
                }
                (None, Err(_)) => {}
            }
        }
        Ok(confs)
    }

    /// Whether any of the jobs has limits, or a conf that does not say.
    pub fn has_limits(&self) -> bool {
        let limited = |conf: &Result<JobConf, String>| match conf {
            Ok(conf) => conf.limits.is_some(),
            Err(_) => true,
        };
        self.jobs.values().any(limited)
    }
}

/// A conf, or what is wrong with it. That the system cannot read it now says nothing about the conf.
fn conf(dir: &Dir, name: &str) -> Result<Option<(Conf, About)>, DirError> {
    let Some(stat) = dir.stat_of(name)? else {
        return Ok(None);
    };
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    let since = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos);
    let about = |names: Names<'_>| About {
        since,
        user: names.user.map(str::to_owned),
        account: names.account.map(str::to_owned),
        group: names.group,
    };
    match dir.read(name, LONGEST_CONF) {
        Ok(text) => Ok(text.map(|text| {
            let conf = JobConf::parse(&text).map_err(|error| error.to_string());
            (conf, about(Names::read(&text)))
        })),
        Err(error @ DirError::Untrusted { .. }) => {
            Ok(Some((Err(error.to_string()), about(Names::default()))))
        }
        Err(error) => Err(error),
    }
}

/// A conf, or what is wrong with it.
type Conf = Result<JobConf, String>;

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: &str = "CUDA_DEVICE_MEMORY_LIMIT=11366M\nCUDA_DEVICE_SM_LIMIT=25\nSOFTMIG_JOB=7\nSOFTMIG_UID=2001\n\
        SOFTMIG_TYPE=l40s\nSOFTMIG_SHARDS=1/4\nSOFTMIG_MODE=hard\nSOFTMIG_GPUS=\n";
    const WHOLE: &str = "SOFTMIG_JOB=8\nSOFTMIG_UID=2001\nSOFTMIG_MODE=whole\nSOFTMIG_GPUS=\n";

    fn node(files: &[(&str, &str)]) -> (tempfile::TempDir, Node) {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        std::fs::create_dir(&node.run).unwrap();
        for (name, text) in files {
            std::fs::write(node.run.join(name), text).unwrap();
        }
        (folder, node)
    }

    #[test]
    fn every_conf_is_read_and_nothing_else() {
        let (_folder, node) = node(&[
            ("7.conf", SLICE),
            ("sEKNKTV3WPV500.conf", SLICE),
            ("8.conf", WHOLE),
            ("9.conf", "garbage\n"),
            (".10.conf.new", SLICE),
            ("011.conf", SLICE),
            ("12.conf.bak", SLICE),
            (".lock", ""),
        ]);
        let confs = Confs::read(&node).unwrap();
        assert_eq!(confs.jobs.keys().copied().collect::<Vec<_>>(), [7, 8, 9]);
        assert_eq!(confs.jobs[&9], Err("a line is not KEY=VALUE".into()));
        assert_eq!(confs.sluids, [("sEKNKTV3WPV500".to_string(), 7)].into());
    }

    #[test]
    fn a_node_without_jobs_has_no_limits() {
        let folder = tempfile::tempdir().unwrap();
        let none = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        assert_eq!(Confs::read(&none).unwrap(), Confs::default());
        let limited = |files: &[(&str, &str)]| Confs::read(&node(files).1).unwrap().has_limits();
        assert!(!limited(&[]));
        assert!(!limited(&[("8.conf", WHOLE)]));
        assert!(limited(&[("8.conf", WHOLE), ("7.conf", SLICE)]));
        assert!(limited(&[("9.conf", "garbage\n")]));
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_not_believed() {
        use std::os::unix::fs::PermissionsExt;
        let (_folder, node) = node(&[("7.conf", SLICE)]);
        std::fs::set_permissions(&node.run, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Confs::read(&node).is_err());
    }

    #[test]
    fn a_conf_that_cannot_be_read_is_not_taken_for_damaged() {
        let (_folder, node) = node(&[("7.conf", SLICE)]);
        // The kernel says ELOOP: links are not followed.
        std::os::unix::fs::symlink("7.conf", node.run.join("8.conf")).unwrap();
        assert!(Confs::read(&node).is_err());
        std::fs::remove_file(node.run.join("8.conf")).unwrap();
        std::fs::create_dir(node.run.join("8.conf")).unwrap();
        assert!(Confs::read(&node).unwrap().jobs[&8].is_err());
    }
}
