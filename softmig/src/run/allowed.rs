//! Decides whether the user's own limits count here: not in a job, and not where a job's limits hold outside of it.

use anyhow::bail;
use softmig_policy::node::identity::{Finding, ProcessRules, Reason, find};
use softmig_policy::node::limits::Limits;
use softmig_policy::node::paths::{NODE_CONF, RUN};
use softmig_policy::node::process_view::{OsError, ProcessView};

/// Whether the node only observes, where the user's own limits count; else an error that says which limits hold.
pub(crate) fn check(process: &impl ProcessView) -> anyhow::Result<bool> {
    let finding = find(process);
    let job = job(&finding);
    match (finding.standing, finding.in_job) {
        // The limits that are asked for take the place of those in the environment.
        (
            ProcessRules::Own(_)
            | ProcessRules::Denied(Reason::BadVariable)
            | ProcessRules::Passive,
            false,
        ) => Ok(finding.observe),
        (ProcessRules::Own(_) | ProcessRules::Passive, true) => bail!(
            "this is {job}, which has no limits: inside a job you cannot set your own limits; ask Slurm for a slice, \
             such as --gres=gpu:TYPE.4:1"
        ),
        (ProcessRules::Job(conf), true) => bail!(
            "this is {job}, and its limits hold for all that runs in it: {}; run the command by itself, or ask Slurm \
             for another slice",
            described(conf.limits.as_ref())
        ),
        (ProcessRules::Job(conf), false) => bail!(
            "your {job} runs on this node, and the smallest limits of your jobs here hold for what you start \
             outside them: {}; try again after its end, or on another node",
            described(conf.limits.as_ref())
        ),
        (ProcessRules::Neighbours, _) => bail!(
            "in a user namespace the user of a process is unknown, so the limits of the jobs on its GPUs hold for it; \
             start it outside the namespace"
        ),
        (ProcessRules::Denied(reason), _) => {
            bail!("processes get no GPU here: {}", denied(reason, &job))
        }
    }
}

fn job(finding: &Finding) -> String {
    let job = finding.job;
    job.map_or("a job".into(), |job| format!("job {job}"))
}

fn described(limits: Option<&Limits>) -> String {
    limits.map_or("none".into(), |limits| {
        format!(
            "{} MiB and {} % of the time of each GPU",
            limits.memory_mib(),
            limits.percent()
        )
    })
}

fn denied(reason: Reason, job: &str) -> String {
    match reason {
        Reason::NoConf => format!("{job} has no conf in {RUN}; did its prolog run?"),
        Reason::BadConf => {
            format!("the conf of a job in {RUN} is damaged; tell the administrator")
        }
        Reason::BadNodeConf => format!("{NODE_CONF} is damaged; tell the administrator"),
        Reason::BadVariable => "a limit in the environment is not valid".into(),
        Reason::Unreadable(OsError::NOT_KEPT) => format!(
            "others than root can write to {NODE_CONF} or to a conf in {RUN}; tell the administrator"
        ),
        Reason::Unreadable(OsError(number)) => {
            let error = std::io::Error::from_raw_os_error(number);
            format!("{NODE_CONF} or a file in {RUN} cannot be read: {error}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_node::this_process::ThisProcess;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const SLICE: &str = "CUDA_DEVICE_MEMORY_LIMIT=11366M\nCUDA_DEVICE_SM_LIMIT=12.5\nSOFTMIG_JOB=12\n\
        SOFTMIG_UID=2001\nSOFTMIG_TYPE=l40s\nSOFTMIG_SHARDS=1/8\nSOFTMIG_MODE=hard\nSOFTMIG_GPUS=\n";
    const WHOLE: &str = "SOFTMIG_UID=2001\nSOFTMIG_MODE=whole\nSOFTMIG_GPUS=\n";
    const IN_JOB: &str = "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n";
    const OUTSIDE: &str = "0::/user.slice/user-2001.slice/session-1.scope\n";

    const NODE_CONF: &str = "etc/softmig/node.conf";

    struct Place {
        folder: tempfile::TempDir,
        process: ThisProcess,
    }

    impl Place {
        /// A node with these settings, and a user on it.
        fn new(node_conf: Option<&str>, cgroup: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let process = ThisProcess::in_folder(folder.path(), 2001);
            let place = Self { folder, process };
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

        fn check(&self) -> anyhow::Result<bool> {
            check(&self.process)
        }

        fn refusal(&self) -> String {
            format!("{:#}", self.check().unwrap_err())
        }
    }

    const ENFORCE: Option<&str> = Some("SOFTMIG_NODE=enforce\n");

    #[test]
    fn outside_jobs_and_on_other_nodes_the_users_own_limits_count() {
        assert!(!Place::new(None, IN_JOB).check().unwrap());
        let off = Place::new(Some("SOFTMIG_NODE=off\n"), IN_JOB);
        assert!(!off.check().unwrap());
        assert!(!Place::new(ENFORCE, OUTSIDE).check().unwrap());
        let observe = Place::new(Some("SOFTMIG_NODE=observe\n"), OUTSIDE);
        assert!(observe.check().unwrap());
    }

    #[test]
    fn in_a_job_its_own_limits_are_named() {
        let place = Place::new(ENFORCE, IN_JOB);
        place.write("var/run/softmig/12.conf", SLICE);
        let refusal = place.refusal();
        insta::assert_snapshot!(refusal, @"this is job 12, and its limits hold for all that runs in it: 11366 MiB and 12.5 % of the time of each GPU; run the command by itself, or ask Slurm for another slice");
        place.write(NODE_CONF, "SOFTMIG_NODE=observe\n");
        assert_eq!(place.refusal(), refusal);
        let place = Place::new(ENFORCE, IN_JOB);
        place.write("var/run/softmig/12.conf", WHOLE);
        assert!(place.refusal().contains("job 12, which has no limits"));
        let place = Place::new(ENFORCE, IN_JOB);
        assert!(place.refusal().contains("did its prolog run?"));
        place.write("var/run/softmig/12.conf", "rubbish");
        assert!(
            place
                .refusal()
                .ends_with("is damaged; tell the administrator")
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
        place.process.uid = 0;
        assert!(place.refusal().contains("job 12, which has no limits"));
        let mut place = Place::new(Some("rubbish"), OUTSIDE);
        assert!(
            place
                .refusal()
                .contains("/etc/softmig/node.conf is damaged")
        );
        place.process.uid = 0;
        assert!(!place.check().unwrap());
    }

    #[test]
    fn outside_jobs_the_smallest_of_the_users_jobs_is_named() {
        let mut place = Place::new(ENFORCE, OUTSIDE);
        place.write("var/run/softmig/uid/2001/11", "");
        place.write("var/run/softmig/uid/2001/12", "");
        place.write("var/run/softmig/uid/2001/13", "");
        assert!(place.check().is_ok());
        place.write(
            "var/run/softmig/11.conf",
            &SLICE.replace("=12.5", "=25").replace("1/8", "1/4"),
        );
        place.write("var/run/softmig/12.conf", SLICE);
        assert!(place.refusal().starts_with("your job 12 runs on this node"));
        place.write("var/run/softmig/13.conf", "rubbish");
        assert!(place.refusal().contains("is damaged"));
        place.process.uid = 2002;
        assert!(place.check().is_ok());
    }

    #[test]
    fn in_a_user_namespace_the_jobs_on_the_gpus_count() {
        let mut place = Place::new(ENFORCE, IN_JOB);
        place.process.cgroup_namespace = Ok(7);
        assert!(place.check().is_ok());
        place.process.user_namespace = Ok(7);
        assert!(place.check().is_ok());
        place.write("var/run/softmig/gpu/GPU-1/12", "");
        assert!(place.refusal().starts_with("in a user namespace"));
    }

    #[test]
    fn where_jobs_have_no_control_groups_a_variable_names_the_job() {
        let env = Some("SOFTMIG_NODE=enforce\nSOFTMIG_IDENTITY=env\n");
        let mut place = Place::new(env, OUTSIDE);
        let id = ("SLURM_JOB_ID".into(), "12".into());
        place.process.variables.extend([id]);
        assert!(place.refusal().contains("did its prolog run?"));
        place.write("var/run/softmig/12.conf", SLICE);
        assert!(place.refusal().starts_with("this is job 12, and"));
        place.process.uid = 2002;
        assert!(place.check().is_ok());
    }

    #[test]
    fn what_others_than_root_can_write_is_no_conf() {
        let place = Place::new(ENFORCE, IN_JOB);
        place.write("var/run/softmig/12.conf", SLICE);
        let conf = place.folder.path().join("var/run/softmig/12.conf");
        std::fs::set_permissions(&conf, PermissionsExt::from_mode(0o664)).unwrap();
        assert!(place.refusal().contains("others than root can write to"));
        std::fs::rename(&conf, place.folder.path().join("conf")).unwrap();
        symlink("../../../conf", &conf).unwrap();
        assert!(place.refusal().contains("cannot be read"));
    }
}
