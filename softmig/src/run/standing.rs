//! Whether the user's own limits count here. Goes by what the library goes by (`hook/src/identity/resolve.rs`), so that nobody is
//! told of limits that are not in force:
//!
//! | the caller is | what holds |
//! |---|---|
//! | on a node that is switched off, or that is none of softmig's | his own limits |
//! | in a job | the job's, or none in a job with whole GPUs |
//! | outside every job, and has jobs with limits here | the smallest of them |
//! | in a user namespace, where jobs with limits run | theirs |
//! | elsewhere | his own limits |

use anyhow::{Context, bail};
use softmig_policy::node::cgroup::{self, JobName, Place};
use softmig_policy::node::job_conf::JobConf;
use softmig_policy::node::limits::Limits;
use softmig_policy::node::node_conf::{Identity, NodeConf, NodeMode};
use std::ffi::OsString;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The kernel's inode numbers of the first namespaces (`include/linux/proc_ns.h`).
const FIRST_CGROUP_NAMESPACE: u64 = 0xEFFF_FFFB;
const FIRST_USER_NAMESPACE: u64 = 0xEFFF_FFFD;
/// Who owns a file whose owner this user namespace does not know (`/proc/sys/kernel/overflowuid`).
const UNKNOWN_OWNER: u32 = 65534;

const NODE_CONF: &str = "etc/softmig/node.conf";
const RUN: &str = "var/run/softmig";

/// The node and the caller; tests have others.
pub(crate) struct Node {
    root: PathBuf,
    /// Who keeps its files.
    keeper: u32,
    uid: u32,
    variable: fn(&str) -> Option<OsString>,
    /// Whether lists of control groups show whole paths.
    shows_whole_paths: bool,
    /// Whether user ids are those of the node.
    knows_users: bool,
}

impl Node {
    /// This node, and the user who asks.
    pub(crate) fn here() -> Self {
        let namespace = |name: &str| match std::fs::metadata(format!("/proc/self/ns/{name}")) {
            Ok(metadata) => Some(metadata.ino()),
            Err(_) => None,
        };
        Self {
            root: "/".into(),
            keeper: 0,
            uid: rustix::process::getuid().as_raw(),
            variable: |name| std::env::var_os(name),
            // A kernel without such namespaces has no file for them.
            shows_whole_paths: matches!(namespace("cgroup"), None | Some(FIRST_CGROUP_NAMESPACE)),
            knows_users: namespace("user") == Some(FIRST_USER_NAMESPACE),
        }
    }

    /// Whether the node only observes, where the user's own limits count; else an error that says what holds instead.
    pub(crate) fn check(&self) -> anyhow::Result<bool> {
        let conf = match self.node_conf() {
            // As for the library, a damaged file stops everybody but root.
            Err(_) if self.is_root() => None,
            conf => conf?,
        };
        let Some(conf) = conf.filter(|conf| conf.mode != NodeMode::Off) else {
            return Ok(false);
        };
        let job = match conf.identity {
            Identity::Cgroup => self.job_by_cgroup(),
            Identity::Env => self.job_by_variable(),
        };
        match job {
            Some(job) => bail!("{}", self.in_job(&job)),
            None => self.outside()?,
        }
        Ok(conf.mode == NodeMode::Observe)
    }

    fn node_conf(&self) -> anyhow::Result<Option<NodeConf>> {
        let doing =
            || format!("/{NODE_CONF} is damaged, so no process gets a GPU; tell the administrator");
        let Some(text) = self.kept(NODE_CONF).with_context(doing)? else {
            return Ok(None);
        };
        NodeConf::parse(&text).map(Some).with_context(doing)
    }

    /// The name of the conf of the job that the kernel names.
    fn job_by_cgroup(&self) -> Option<String> {
        let text = std::fs::read(self.root.join("proc/self/cgroup")).ok()?;
        match cgroup::place(&text) {
            Place::Job(_) if !self.shows_whole_paths => None,
            Place::Job(JobName::Id(id)) => Some(id.to_string()),
            Place::Job(JobName::Sluid(sluid)) => Some(sluid.to_owned()),
            Place::Outside | Place::Unclear => None,
        }
    }

    /// That of the job that the caller names, where jobs have no control groups.
    fn job_by_variable(&self) -> Option<String> {
        let id: u32 = (self.variable)("SLURM_JOB_ID")?.to_str()?.parse().ok()?;
        let id = id.to_string();
        let is_anothers = matches!(self.conf(&id), Ok(Some(conf)) if conf.uid != self.uid);
        (self.knows_users && !is_anothers).then_some(id)
    }

    /// What holds in a job.
    fn in_job(&self, job: &str) -> String {
        let path = format!("/{RUN}/{job}.conf");
        match self.conf(job) {
            Ok(Some(conf)) => {
                let job = conf.job.map_or(job.to_owned(), |job| job.to_string());
                match &conf.limits {
                    Some(limits) => format!(
                        "this is job {job}, and its own limits hold for all that runs in it: {} ({path}); run the \
                         command by itself, or ask Slurm for another slice",
                        in_words(limits)
                    ),
                    None => format!(
                        "this is job {job}, which has whole GPUs ({path}): in a job no limits of one's own count; \
                         ask Slurm for a slice, such as --gres=gpu:TYPE.4:1"
                    ),
                }
            }
            Ok(None) if self.is_root() => format!(
                "this is job {job}, which has no limits ({path} is missing): in a job no limits of one's own count, \
                 and root's processes are let through"
            ),
            Ok(None) => format!(
                "this is job {job}, which has no conf here ({path} is missing), so its processes get no GPU: did its \
                 prolog run?"
            ),
            Err(error) => format!(
                "this is job {job}, whose conf cannot be used, so its processes get no GPU: {error:#}"
            ),
        }
    }

    /// Fails where a job's limits hold for processes that are in none.
    fn outside(&self) -> anyhow::Result<()> {
        if !self.knows_users {
            let shared = self.names("gpu")?;
            if !shared.is_empty() {
                bail!(
                    "in a user namespace nobody can tell whose process this is, so the limits of the jobs on its GPUs \
                     hold for it; start it outside the namespace"
                );
            }
            return Ok(());
        }
        if self.is_root() {
            return Ok(());
        }
        let mut smallest: Option<(String, Limits)> = None;
        for job in self.names(&format!("uid/{}", self.uid))? {
            // Without one the job has just ended; without limits there is nothing to hold to.
            let Some(limits) = self.conf(&job)?.and_then(|conf| conf.limits) else {
                continue;
            };
            if smallest
                .as_ref()
                .is_none_or(|(_, other)| size(&limits) < size(other))
            {
                smallest = Some((job, limits));
            }
        }
        match smallest {
            None => Ok(()),
            Some((job, limits)) => bail!(
                "your job {job} runs on this node, and the smallest limits of your jobs here hold for what you start \
                 outside them: {} (/{RUN}/{job}.conf); try again after its end, or on another node",
                in_words(&limits)
            ),
        }
    }

    fn is_root(&self) -> bool {
        self.uid == 0 && self.knows_users
    }

    fn conf(&self, job: &str) -> anyhow::Result<Option<JobConf>> {
        let path = format!("{RUN}/{job}.conf");
        let Some(text) = self.kept(&path)? else {
            return Ok(None);
        };
        let conf = JobConf::parse(&text).map_err(|error| anyhow::anyhow!("/{path}: {error}"));
        conf.map(Some)
    }

    /// The jobs that have a mark in a folder.
    fn names(&self, folder: &str) -> anyhow::Result<Vec<String>> {
        let path = Path::new(RUN).join(folder);
        match std::fs::read_dir(self.root.join(&path)) {
            Ok(entries) => Ok(entries
                .flatten()
                .filter_map(|entry| entry.file_name().into_string().ok())
                .collect()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error).with_context(|| format!("listing /{}", path.display())),
        }
    }

    /// Reads a file that root keeps; `None` when there is none.
    fn kept(&self, path: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let file = self.root.join(path);
        match std::fs::symlink_metadata(&file) {
            Ok(stat) if self.is_kept(&stat) => {
                let text = std::fs::read(&file).with_context(|| format!("reading /{path}"))?;
                Ok(Some(text))
            }
            Ok(_) => bail!("/{path} is no plain file that root alone can write to"),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("looking at /{path}")),
        }
    }

    fn is_kept(&self, stat: &Metadata) -> bool {
        let by_root = stat.uid() == self.keeper || stat.uid() == UNKNOWN_OWNER && !self.knows_users;
        stat.is_file() && by_root && stat.mode() & 0o022 == 0
    }
}

/// Less memory is smaller, or as much of it and less time.
fn size(limits: &Limits) -> (u32, u32) {
    (limits.memory_mib(), limits.share().percent_tenths())
}

fn in_words(limits: &Limits) -> String {
    format!(
        "{} MiB and {} % of the time of each GPU",
        limits.memory_mib(),
        limits.percent()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const SLICE: &str = "CUDA_DEVICE_MEMORY_LIMIT=11366M\nCUDA_DEVICE_SM_LIMIT=12.5\nSOFTMIG_JOB=12\n\
        SOFTMIG_UID=2001\nSOFTMIG_TYPE=l40s\nSOFTMIG_SHARDS=1/8\nSOFTMIG_MODE=hard\nSOFTMIG_GPUS=\n";
    const WHOLE: &str = "SOFTMIG_UID=2001\nSOFTMIG_MODE=whole\nSOFTMIG_GPUS=\n";
    const IN_JOB: &str = "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n";
    const OUTSIDE: &str = "0::/user.slice/user-2001.slice/session-1.scope\n";

    struct Place {
        folder: tempfile::TempDir,
        node: Node,
    }

    impl Place {
        /// A node with these settings, and a user on it.
        fn new(node_conf: Option<&str>, cgroup: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let node = Node {
                root: folder.path().into(),
                keeper: rustix::process::getuid().as_raw(),
                uid: 2001,
                variable: |_| None,
                shows_whole_paths: true,
                knows_users: true,
            };
            let place = Self { folder, node };
            place.write("proc/self/cgroup", cgroup);
            if let Some(text) = node_conf {
                place.write(NODE_CONF, text);
            }
            place
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        }

        fn refusal(&self) -> String {
            format!("{:#}", self.node.check().unwrap_err())
        }
    }

    const ENFORCE: Option<&str> = Some("SOFTMIG_NODE=enforce\n");

    #[test]
    fn outside_jobs_and_on_other_nodes_ones_own_limits_count() {
        assert!(!Place::new(None, IN_JOB).node.check().unwrap());
        let off = Place::new(Some("SOFTMIG_NODE=off\n"), IN_JOB);
        assert!(!off.node.check().unwrap());
        assert!(!Place::new(ENFORCE, OUTSIDE).node.check().unwrap());
        let observe = Place::new(Some("SOFTMIG_NODE=observe\n"), OUTSIDE);
        assert!(observe.node.check().unwrap());
    }

    #[test]
    fn in_a_job_its_own_limits_are_named() {
        let place = Place::new(ENFORCE, IN_JOB);
        place.write("var/run/softmig/12.conf", SLICE);
        let refusal = place.refusal();
        insta::assert_snapshot!(refusal, @"this is job 12, and its own limits hold for all that runs in it: 11366 MiB and 12.5 % of the time of each GPU (/var/run/softmig/12.conf); run the command by itself, or ask Slurm for another slice");
        place.write(NODE_CONF, "SOFTMIG_NODE=observe\n");
        assert_eq!(place.refusal(), refusal);
        let place = Place::new(ENFORCE, IN_JOB);
        place.write("var/run/softmig/12.conf", WHOLE);
        assert!(place.refusal().contains("job 12, which has whole GPUs"));
        let place = Place::new(ENFORCE, IN_JOB);
        assert!(place.refusal().contains("did its prolog run?"));
        place.write("var/run/softmig/12.conf", "rubbish");
        assert!(
            place
                .refusal()
                .contains("get no GPU: /var/run/softmig/12.conf: ")
        );
    }

    #[test]
    fn a_job_of_a_sluid_is_called_by_its_number() {
        let place = Place::new(
            ENFORCE,
            "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0\n",
        );
        place.write("var/run/softmig/sEKNKTV3WPV500.conf", SLICE);
        assert!(place.refusal().starts_with("this is job 12, "));
    }

    #[test]
    fn root_is_refused_in_jobs_only() {
        let mut place = Place::new(ENFORCE, IN_JOB);
        place.node.uid = 0;
        assert!(place.refusal().contains("root's processes are let through"));
        let mut place = Place::new(Some("rubbish"), OUTSIDE);
        assert!(
            place
                .refusal()
                .contains("/etc/softmig/node.conf is damaged")
        );
        place.node.uid = 0;
        assert!(!place.node.check().unwrap());
    }

    #[test]
    fn outside_jobs_the_smallest_of_the_users_jobs_is_named() {
        let mut place = Place::new(ENFORCE, OUTSIDE);
        place.write("var/run/softmig/uid/2001/11", "");
        place.write("var/run/softmig/uid/2001/12", "");
        place.write("var/run/softmig/uid/2001/13", "");
        assert!(place.node.check().is_ok());
        place.write(
            "var/run/softmig/11.conf",
            &SLICE.replace("=12.5", "=25").replace("1/8", "1/4"),
        );
        place.write("var/run/softmig/12.conf", SLICE);
        assert!(place.refusal().starts_with("your job 12 runs on this node"));
        place.write("var/run/softmig/13.conf", "rubbish");
        assert!(place.refusal().starts_with("/var/run/softmig/13.conf: "));
        place.node.uid = 2002;
        assert!(place.node.check().is_ok());
    }

    #[test]
    fn where_nobody_can_tell_the_jobs_on_the_gpus_count() {
        let mut place = Place::new(ENFORCE, IN_JOB);
        place.node.shows_whole_paths = false;
        assert!(place.node.check().is_ok());
        place.node.knows_users = false;
        assert!(place.node.check().is_ok());
        place.write("var/run/softmig/gpu/GPU-1/12", "");
        assert!(place.refusal().starts_with("in a user namespace"));
    }

    #[test]
    fn where_jobs_have_no_control_groups_a_variable_names_ones_own() {
        let env = Some("SOFTMIG_NODE=enforce\nSOFTMIG_IDENTITY=env\n");
        let mut place = Place::new(env, OUTSIDE);
        place.node.variable = |name| (name == "SLURM_JOB_ID").then(|| "12".into());
        assert!(place.refusal().contains("did its prolog run?"));
        place.write("var/run/softmig/12.conf", SLICE);
        assert!(place.refusal().starts_with("this is job 12, and"));
        place.node.uid = 2002;
        assert!(place.node.check().is_ok());
    }

    #[test]
    fn what_others_than_root_can_write_is_no_conf() {
        let place = Place::new(ENFORCE, IN_JOB);
        place.write("var/run/softmig/12.conf", SLICE);
        let conf = place.folder.path().join("var/run/softmig/12.conf");
        std::fs::set_permissions(&conf, PermissionsExt::from_mode(0o664)).unwrap();
        assert!(place.refusal().contains("root alone can write to"));
        std::fs::rename(&conf, place.folder.path().join("conf")).unwrap();
        symlink("../../../conf", &conf).unwrap();
        assert!(place.refusal().contains("root alone can write to"));
    }
}
