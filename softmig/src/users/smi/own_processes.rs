//! Which processes are the caller's own. Where no limits hold for a process, it sees all.
//!
//! | the caller is | own are |
//! |---|---|
//! | in a job that has a slice | the processes of the job |
//! | under `softmig run` | the processes of the same run |
//! | in a job with whole GPUs, outside every job, on a node that does not enforce | all |

use softmig_policy::node::identity::{ProcessRules, find};
use softmig_policy::node::process_group::Group;
use softmig_policy::node::process_view::ProcessView;

/// The group of the caller's own processes; `None` where the caller may see all.
pub(super) fn group(process: &impl ProcessView) -> Option<Group> {
    let finding = find(process);
    match finding.standing {
        _ if finding.observe => Group::of_run(process),
        ProcessRules::Passive if finding.in_job => None,
        ProcessRules::Job(_) if finding.in_job => Some(Group::of_job(finding.job)),
        // Such a process gets no GPU.
        ProcessRules::Denied(_) => Some(Group::of_job(finding.job)),
        _ => Group::of_run(process),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_node::this_process::ThisProcess;
    use std::os::unix::fs::PermissionsExt;

    const SLICE: &str = "CUDA_DEVICE_MEMORY_LIMIT=11366M\nCUDA_DEVICE_SM_LIMIT=25\nSOFTMIG_JOB=12\nSOFTMIG_UID=2001\nSOFTMIG_TYPE=l40s\n\
                         SOFTMIG_SHARDS=1/4\nSOFTMIG_MODE=hard\nSOFTMIG_GPUS=\n";
    const WHOLE: &str = "SOFTMIG_UID=2001\nSOFTMIG_MODE=whole\nSOFTMIG_GPUS=\n";
    const IN_12: &str = "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n";
    const IN_13: &str = "0::/system.slice/slurmstepd.scope/job_13/step_0/user/task_0\n";
    const OUTSIDE: &str = "0::/user.slice/user-2001.slice/session-3.scope\n";

    /// A node on which limits hold, with this process as the caller in job 12.
    fn node(root: &tempfile::TempDir, files: &[(&str, &str)]) -> ThisProcess {
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
                std::fs::write(&path, text).unwrap();
                std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
            }
        }
        ThisProcess::in_folder(root.path(), 2001)
    }

    fn with(mut process: ThisProcess, name: &str, value: &str) -> ThisProcess {
        process.variables.insert(name.into(), value.into());
        process
    }

    /// Those of the processes 6 to 12 that are the caller's own; `None` for all.
    fn own(process: &ThisProcess) -> Option<Vec<u32>> {
        let group = group(process)?;
        Some((6..=12).filter(|pid| group.has(process, *pid)).collect())
    }

    const OTHERS: [(&str, &str); 5] = [
        ("proc/7/cgroup", IN_12),
        ("proc/8/cgroup", IN_12),
        ("proc/9/cgroup", IN_13),
        ("proc/10/cgroup", OUTSIDE),
        ("proc/11/cgroup", ""),
    ];

    #[test]
    fn a_caller_in_a_job_with_a_slice_sees_the_job() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(own(&node(&root, &OTHERS)).unwrap(), [7, 8]);
        let by_sluid = "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0\n";
        let files = [
            ("proc/self/cgroup", by_sluid),
            ("proc/9/cgroup", by_sluid),
            ("var/run/softmig/sEKNKTV3WPV500.conf", SLICE),
        ];
        assert_eq!(own(&node(&root, &files)).unwrap(), [7, 8, 9]);
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
            assert_eq!(own(&node(&root, files)), None, "{files:?}");
        }
        let root = tempfile::tempdir().unwrap();
        let mut process = node(&root, &[]);
        process.cgroup_namespace = Ok(7);
        assert_eq!(own(&process), None);
    }

    #[test]
    fn a_caller_whose_limits_are_unknown_sees_no_others_process() {
        let root = tempfile::tempdir().unwrap();
        let files = [&OTHERS[..], &[("var/run/softmig/12.conf", "rubbish")]].concat();
        assert_eq!(own(&node(&root, &files)).unwrap(), [7, 8]);
        let files = [("etc/softmig/node.conf", "rubbish")];
        assert!(own(&node(&root, &files)).unwrap().is_empty());
    }

    #[test]
    fn a_job_without_a_conf_sees_all_only_if_it_is_roots() {
        let root = tempfile::tempdir().unwrap();
        let files = [&OTHERS[..], &[("var/run/softmig/12.conf", "none")]].concat();
        let mut process = node(&root, &files);
        assert_eq!(own(&process).unwrap(), [7, 8]);
        process.uid = 0;
        assert_eq!(own(&process), None);
    }

    #[test]
    fn where_jobs_have_no_control_groups_their_environment_counts() {
        let root = tempfile::tempdir().unwrap();
        let by_environment = "SOFTMIG_NODE=enforce\nSOFTMIG_IDENTITY=env\n";
        let files = [
            ("etc/softmig/node.conf", by_environment),
            ("proc/self/cgroup", OUTSIDE),
            ("proc/7/cgroup", OUTSIDE),
            ("proc/7/environ", "A=1\0SLURM_JOB_ID=12\0B=2\0"),
            ("proc/8/cgroup", OUTSIDE),
            ("proc/8/environ", "SLURM_JOB_ID=123\0"),
            ("proc/9/cgroup", OUTSIDE),
            ("proc/9/environ", "XSLURM_JOB_ID=12"),
        ];
        let process = node(&root, &files);
        assert_eq!(own(&process), None);
        let named = |id: &str| own(&with(process.clone(), "SLURM_JOB_ID", id));
        assert_eq!(named("../12"), None);
        assert_eq!(named("12").unwrap(), [7]);
    }

    #[test]
    fn softmig_run_counts_outside_jobs_only() {
        let root = tempfile::tempdir().unwrap();
        let inside = node(&root, &[("proc/7/environ", "SOFTMIG_RUN=/tmp/a\0")]);
        let run = |process| own(&with(process, "SOFTMIG_RUN", "/tmp/a"));
        assert!(run(inside).unwrap().is_empty());
        let outside = node(&root, &[("proc/self/cgroup", OUTSIDE)]);
        assert_eq!(run(outside.clone()).unwrap(), [7]);
        assert_eq!(own(&with(outside, "SOFTMIG_RUN", "")), None);
    }
}
