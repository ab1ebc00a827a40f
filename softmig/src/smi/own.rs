//! Which processes are the caller's own: those of his job.
//!
//! It goes by what the hook goes by (`hook/src/identity/resolve.rs`): where no limits hold for a process, nothing is taken out of
//! what it sees.
//!
//! | the caller is | own are |
//! |---|---|
//! | in a job that has a slice | the processes in the job's control group |
//! | the same, where jobs have no control groups | his processes with the same `SLURM_JOB_ID` |
//! | under `softmig run` | his processes with the same `SOFTMIG_RUN` |
//! | in a job with whole GPUs, outside every job, on a node that does not enforce | all |

use softmig_policy::node::cgroup::{self, JobName, Place};
use softmig_policy::node::job_conf::JobConf;
use softmig_policy::node::node_conf::{Identity, NodeConf, NodeMode};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The kernel's inode number of the first namespace (`include/linux/proc_ns.h`).
const FIRST_CGROUP_NAMESPACE: u64 = 0xEFFF_FFFB;

/// The variable by which jobs are known where they have no control groups.
const JOB_ID: &str = "SLURM_JOB_ID";
/// The variable that `softmig run` gives to what it starts: a different value for each.
const RUN: &str = "SOFTMIG_RUN";

/// What makes a process the caller's own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// To be in the control group of this job, of an id or a SLUID.
    Job(String),
    /// To be the same user's, with a variable of this value.
    Variable(&'static str, Vec<u8>),
}

/// The node and the caller; tests have others.
pub(crate) struct Node {
    root: PathBuf,
    uid: u32,
    variable: fn(&str) -> Option<Vec<u8>>,
    /// Whether lists of control groups show whole paths.
    shows_whole_paths: bool,
}

impl Node {
    /// This node, and the user who asks.
    pub(crate) fn here() -> Self {
        let namespace = std::fs::metadata("/proc/self/ns/cgroup");
        Self {
            root: "/".into(),
            uid: rustix::process::getuid().as_raw(),
            variable: |name| std::env::var_os(name).map(|value| value.as_bytes().to_vec()),
            shows_whole_paths: match namespace {
                Ok(metadata) => metadata.ino() == FIRST_CGROUP_NAMESPACE,
                // A kernel without such namespaces.
                Err(error) => error.kind() == ErrorKind::NotFound,
            },
        }
    }

    /// What makes a process the caller's own; `None` where all that nvidia-smi shows is his to see.
    pub(crate) fn caller(&self) -> Option<Owner> {
        let named = match self.identity() {
            None => None,
            Some(Identity::Cgroup) => self.job_by_cgroup(),
            Some(Identity::Env) => self.job_by_variable(),
        };
        match named {
            Some((conf, owner)) => self.is_limited(&conf).then_some(owner),
            None => self.value_of(RUN).map(|run| Owner::Variable(RUN, run)),
        }
    }

    /// Whether a process is the caller's own. One that cannot be looked at is not, nor is one that has ended.
    pub(crate) fn owns(&self, owner: &Owner, pid: u32) -> bool {
        let folder = self.root.join("proc").join(pid.to_string());
        match owner {
            Owner::Job(job) => {
                let text = std::fs::read(folder.join("cgroup")).unwrap_or_default();
                job_in(&text).as_deref() == Some(job)
            }
            Owner::Variable(name, value) => {
                let is_users = std::fs::metadata(&folder).is_ok_and(|file| file.uid() == self.uid);
                let environment = std::fs::read(folder.join("environ")).unwrap_or_default();
                let wanted = [name.as_bytes(), b"=", value].concat();
                is_users && environment.split(|byte| *byte == 0).any(|it| it == wanted)
            }
        }
    }

    /// How jobs are known here; `None` where nothing is enforced.
    fn identity(&self) -> Option<Identity> {
        let text = match std::fs::read(self.root.join("etc/softmig/node.conf")) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(_) => return Some(Identity::Cgroup),
        };
        match NodeConf::parse(&text) {
            Ok(conf) => (conf.mode == NodeMode::Enforce).then_some(conf.identity),
            Err(_) => Some(Identity::Cgroup),
        }
    }

    /// In another namespace the list shows less than whole paths, so that nobody can tell.
    fn job_by_cgroup(&self) -> Option<(String, Owner)> {
        let text = std::fs::read(self.root.join("proc/self/cgroup")).ok()?;
        let job = job_in(&text).filter(|_| self.shows_whole_paths)?;
        Some((job.clone(), Owner::Job(job)))
    }

    fn job_by_variable(&self) -> Option<(String, Owner)> {
        let value = self.value_of(JOB_ID)?;
        // It names a file here, so it must be what it claims to be.
        let id: u32 = std::str::from_utf8(&value).ok()?.parse().ok()?;
        Some((id.to_string(), Owner::Variable(JOB_ID, value)))
    }

    /// Whether the job with this conf has a slice. One whose conf is missing or damaged gets no GPU at all, unless it
    /// is root's.
    fn is_limited(&self, conf: &str) -> bool {
        let path = self
            .root
            .join("var/run/softmig")
            .join(format!("{conf}.conf"));
        match std::fs::read(path) {
            Ok(text) => JobConf::parse(&text).map_or(true, |conf| conf.limits.is_some()),
            Err(error) => error.kind() != ErrorKind::NotFound || self.uid != 0,
        }
    }

    fn value_of(&self, name: &str) -> Option<Vec<u8>> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }
}

/// The job that a list of control groups names.
fn job_in(text: &[u8]) -> Option<String> {
    match cgroup::place(text) {
        Place::Job(JobName::Id(id)) => Some(id.to_string()),
        Place::Job(JobName::Sluid(sluid)) => Some(sluid.to_owned()),
        Place::Outside | Place::Unclear => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: &str = "CUDA_DEVICE_MEMORY_LIMIT=11366M\nCUDA_DEVICE_SM_LIMIT=25\nSOFTMIG_UID=2001\nSOFTMIG_TYPE=l40s\n\
                         SOFTMIG_SHARDS=1/4\nSOFTMIG_MODE=hard\nSOFTMIG_GPUS=\n";
    const WHOLE: &str = "SOFTMIG_UID=2001\nSOFTMIG_MODE=whole\nSOFTMIG_GPUS=\n";
    const IN_12: &str = "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n";
    const IN_13: &str = "0::/system.slice/slurmstepd.scope/job_13/step_0/user/task_0\n";
    const OUTSIDE: &str = "0::/user.slice/user-2001.slice/session-3.scope\n";

    /// A node on which limits hold, with this process as the caller in job 12.
    fn node(root: &tempfile::TempDir, files: &[(&str, &str)]) -> Node {
        let usual = [
            ("etc/softmig/node.conf", "SOFTMIG_NODE=enforce\n"),
            ("var/run/softmig/12.conf", SLICE),
            ("proc/self/cgroup", IN_12),
        ];
        for (path, text) in usual.iter().chain(files) {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let _ = std::fs::remove_file(&path);
            if *text != "none" {
                std::fs::write(path, text).unwrap();
            }
        }
        Node {
            root: root.path().into(),
            // Whoever runs the tests owns these files.
            uid: std::fs::metadata(root.path()).unwrap().uid(),
            variable: |_| None,
            shows_whole_paths: true,
        }
    }

    fn job(name: &str) -> Option<Owner> {
        Some(Owner::Job(name.into()))
    }

    #[test]
    fn a_caller_in_a_job_with_a_slice_sees_his_job() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(node(&root, &[]).caller(), job("12"));
        let by_sluid = "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0\n";
        let files = [
            ("proc/self/cgroup", by_sluid),
            ("var/run/softmig/sEKNKTV3WPV500.conf", SLICE),
        ];
        assert_eq!(node(&root, &files).caller(), job("sEKNKTV3WPV500"));
    }

    #[test]
    fn a_caller_without_limits_sees_all() {
        for files in [
            &[("etc/softmig/node.conf", "none")][..],
            &[("etc/softmig/node.conf", "SOFTMIG_NODE=off\n")],
            &[("etc/softmig/node.conf", "SOFTMIG_NODE=observe\n")],
            &[("var/run/softmig/12.conf", WHOLE)],
            &[("proc/self/cgroup", OUTSIDE)],
            &[("proc/self/cgroup", "none")],
        ] {
            let root = tempfile::tempdir().unwrap();
            assert_eq!(node(&root, files).caller(), None, "{files:?}");
        }
        let root = tempfile::tempdir().unwrap();
        let mut node = node(&root, &[]);
        node.shows_whole_paths = false;
        assert_eq!(node.caller(), None);
    }

    #[test]
    fn settings_that_cannot_be_read_take_no_row_back() {
        for files in [
            ("etc/softmig/node.conf", "rubbish"),
            ("var/run/softmig/12.conf", "rubbish"),
        ] {
            let root = tempfile::tempdir().unwrap();
            assert_eq!(node(&root, &[files]).caller(), job("12"), "{files:?}");
        }
    }

    #[test]
    fn a_job_without_a_conf_sees_all_only_if_it_is_roots() {
        for (uid, owner) in [(0, None), (2001, job("12"))] {
            let root = tempfile::tempdir().unwrap();
            let mut node = node(&root, &[("var/run/softmig/12.conf", "none")]);
            node.uid = uid;
            assert_eq!(node.caller(), owner, "{uid}");
        }
    }

    #[test]
    fn a_process_is_owned_by_the_job_that_its_control_group_names() {
        let root = tempfile::tempdir().unwrap();
        let step = IN_12.replace("step_0", "step_extern");
        let node = node(
            &root,
            &[
                ("proc/7/cgroup", IN_12),
                ("proc/8/cgroup", &step),
                ("proc/9/cgroup", IN_13),
                ("proc/10/cgroup", OUTSIDE),
                ("proc/11/cgroup", ""),
            ],
        );
        let owned = (6..=12).filter(|pid| node.owns(&Owner::Job("12".into()), *pid));
        assert_eq!(owned.collect::<Vec<u32>>(), [7, 8]);
    }

    #[test]
    fn where_jobs_have_no_control_groups_their_environment_counts() {
        let root = tempfile::tempdir().unwrap();
        let by_environment = "SOFTMIG_NODE=enforce\nSOFTMIG_IDENTITY=env\n";
        let mut node = node(
            &root,
            &[
                ("etc/softmig/node.conf", by_environment),
                ("proc/self/cgroup", OUTSIDE),
                ("proc/7/environ", "A=1\0SLURM_JOB_ID=12\0B=2\0"),
                ("proc/8/environ", "SLURM_JOB_ID=123\0"),
                ("proc/9/environ", "XSLURM_JOB_ID=12"),
                ("proc/10/cgroup", IN_12),
            ],
        );
        assert_eq!(node.caller(), None);
        node.variable = |name| (name == JOB_ID).then(|| b"../12".to_vec());
        assert_eq!(node.caller(), None);
        node.variable = |name| (name == JOB_ID).then(|| b"12".to_vec());
        let owner = node.caller().unwrap();
        assert_eq!(owner, Owner::Variable(JOB_ID, b"12".to_vec()));
        let owned = (6..=11).filter(|pid| node.owns(&owner, *pid));
        assert_eq!(owned.collect::<Vec<u32>>(), [7]);
        // The same words in another user's process.
        node.uid += 1;
        assert!(!node.owns(&owner, 7));
    }

    #[test]
    fn softmig_run_counts_outside_jobs_only() {
        let root = tempfile::tempdir().unwrap();
        let run = |name: &str| (name == RUN).then(|| b"/tmp/a".to_vec());
        let mut inside = node(&root, &[("proc/7/environ", "SOFTMIG_RUN=/tmp/a\0")]);
        inside.variable = run;
        assert_eq!(inside.caller(), job("12"));
        let mut outside = node(&root, &[("proc/self/cgroup", OUTSIDE)]);
        outside.variable = run;
        let owner = outside.caller().unwrap();
        assert_eq!(owner, Owner::Variable(RUN, b"/tmp/a".to_vec()));
        assert!(outside.owns(&owner, 7) && !outside.owns(&owner, 8));
        outside.variable = |_| Some(Vec::new());
        assert_eq!(outside.caller(), None);
    }
}
