//! Which job a process belongs to, as the kernel's list of its control groups tells.
//!
//! Slurm makes these folders as root, so that a job's process can neither leave them nor make one of its own that
//! looks like them: names count only where root alone makes folders.
//!
//! | Slurm | line of `/proc/PID/cgroup` |
//! |---|---|
//! | control groups v1 | `4:devices:/slurm/uid_2001/job_12/step_0/task_0` |
//! | v1, several slurmd on a machine | `4:devices:/slurm_n1/uid_2001/job_12/step_0/task_0` |
//! | v2 | `0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0` |
//! | v2, several slurmd on a machine | `0::/system.slice/n1_slurmstepd.scope/job_12/step_0/user/task_0` |
//! | v2, `CgroupSlice=` | `0::/hpc.slice/hpc-slurm.slice/slurmstepd.scope/job_12/...` |
//! | v2, Slurm 26.05 without `CgroupJobIdPaths=yes` | `0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/...` |

use core::num::NonZeroU32;

use crate::node::limits::decimal;

/// The name that Slurm gave to a job's control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobName<'a> {
    /// `job_12`.
    Id(NonZeroU32),
    /// The job's SLUID, as Slurm 26.05 has it.
    Sluid(&'a str),
}

/// Where a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership<'a> {
    /// In this job.
    Job(JobName<'a>),
    /// In no job.
    Outside,
    /// The job is not known: the text names two jobs at once, or a kernel does not write such a text.
    Unclear,
}

/// Reads `/proc/PID/cgroup`, which must be one of the initial control group namespace.
///
/// ```
/// use softmig_policy::node::cgroup::{JobName, Membership, place};
/// let text = b"0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n";
/// assert_eq!(place(text), Membership::Job(JobName::Id(12.try_into().unwrap())));
/// // Below a folder of the user's own there can be any name.
/// let text = b"0::/user.slice/user-2001.slice/user@2001.service/app.slice/job_12\n";
/// assert_eq!(place(text), Membership::Outside);
/// ```
pub fn place(text: &[u8]) -> Membership<'_> {
    // The last line is whole, or the text was cut off.
    let Some(text) = text.strip_suffix(b"\n") else {
        return Membership::Unclear;
    };
    let mut found = Membership::Outside;
    for line in text.split(|&byte| byte == b'\n') {
        let Some(name) = job_of_line(line) else {
            return Membership::Unclear;
        };
        let Some(name) = name else { continue };
        match found {
            Membership::Job(other) if other != name => return Membership::Unclear,
            _ => found = Membership::Job(name),
        }
    }
    found
}

/// The job that one line names; the outer `None` for a text that is not such a line.
fn job_of_line(line: &[u8]) -> Option<Option<JobName<'_>>> {
    let mut fields = line.splitn(3, |&byte| byte == b':');
    let (hierarchy, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let mut folders = path.strip_prefix(b"/")?.split(|&byte| byte == b'/');
    if hierarchy == b"0" && controllers.is_empty() {
        return Some(job_of_v2(&mut folders));
    }
    // A hierarchy without a controller, such as systemd's, may be in a user's hands.
    if controllers.is_empty() || controllers.starts_with(b"name=") {
        return Some(None);
    }
    Some(job_of_v1(&mut folders))
}

/// `slurm[_NODE]/uid_U/job_J`.
fn job_of_v1<'a>(folders: &mut impl Iterator<Item = &'a [u8]>) -> Option<JobName<'a>> {
    let top = folders.next()?;
    let is_slurms = top == b"slurm" || top.starts_with(b"slurm_");
    let user = folders.next()?.strip_prefix(b"uid_")?;
    number(user)?;
    let job = job_name(folders.next()?)?;
    is_slurms.then_some(job)
}

/// Any number of slices, then `[NODE_]slurmstepd.scope/job_J`.
fn job_of_v2<'a>(folders: &mut impl Iterator<Item = &'a [u8]>) -> Option<JobName<'a>> {
    let scope = folders.find(|folder| !folder.ends_with(b".slice"))?;
    let is_slurms = scope == b"slurmstepd.scope" || scope.ends_with(b"_slurmstepd.scope");
    if !is_slurms {
        return None;
    }
    job_name(folders.next()?)
}

fn job_name(folder: &[u8]) -> Option<JobName<'_>> {
    let id = folder.strip_prefix(b"job_").and_then(number);
    if let Some(id) = id.and_then(NonZeroU32::new) {
        return Some(JobName::Id(id));
    }
    let text = core::str::from_utf8(folder).ok()?;
    is_sluid(text).then_some(JobName::Sluid(text))
}

fn number(text: &[u8]) -> Option<u32> {
    decimal(core::str::from_utf8(text).ok()?)
}

/// Whether `text` can be a job's SLUID: an `s` and 13 digits and capital letters, so never another file's name.
pub fn is_sluid(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
    text.len() == 14
        && text
            .strip_prefix('s')
            .is_some_and(|rest| rest.bytes().all(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u32) -> Membership<'static> {
        Membership::Job(JobName::Id(id.try_into().unwrap()))
    }

    /// The lines of a machine with v1, as its kernel orders them; the job's where Slurm has controllers.
    const V1: &str = "12:pids:/user.slice/user-0.slice/session-1.scope\n\
        11:memory:/slurm_n1/uid_2001/job_12/step_0/task_0\n\
        10:devices:/slurm_n1/uid_2001/job_12/step_0/task_0\n\
        9:name=systemd:/user.slice/user-0.slice/session-1.scope\n\
        4:cpu,cpuacct:/\n\
        2:freezer:/slurm_n1/uid_2001/job_12/step_0\n\
        0::/user.slice/user-0.slice/session-1.scope\n";

    #[test]
    fn every_layout_of_slurm_names_the_job() {
        for (text, place_of) in [
            (V1, job(12)),
            ("4:devices:/slurm/uid_0/job_7/step_batch/task_0\n", job(7)),
            (
                "4:devices:/slurm/uid_2001/job_7/step_extern/task_0\n",
                job(7),
            ),
            (
                "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n",
                job(12),
            ),
            (
                "0::/system.slice/n1_slurmstepd.scope/job_12/step_batch/user/task_0\n",
                job(12),
            ),
            (
                "0::/system.slice/slurmstepd.scope/job_12/step_extern/user/task_special\n",
                job(12),
            ),
            (
                "0::/hpc.slice/hpc-slurm.slice/slurmstepd.scope/job_4294967293/step_0/slurm\n",
                job(4_294_967_293),
            ),
            ("0::/slurmstepd.scope/job_12/step_0/user/task_0\n", job(12)),
            (
                "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0\n",
                Membership::Job(JobName::Sluid("sEKNKTV3WPV500")),
            ),
        ] {
            assert_eq!(place(text.as_bytes()), place_of, "{text}");
        }
    }

    #[test]
    fn a_folder_below_the_job_changes_nothing() {
        let text = b"0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0/job_9\n";
        assert_eq!(place(text), job(12));
        let text = b"4:devices:/slurm/uid_2001/job_12/step_0/task_0/slurm/uid_2001/job_9\n";
        assert_eq!(place(text), job(12));
    }

    #[test]
    fn names_count_only_where_root_alone_makes_folders() {
        for text in [
            "0::/\n",
            "0::/user.slice/user-2001.slice/user@2001.service/slurmstepd.scope/job_9/step_0\n",
            "0::/user.slice/user-2001.slice/session-3.scope/job_9\n",
            "0::/user.slice/user-2001.slice/user@2001.service/app.slice/run-9.scope/job_9\n",
            "0::/job_9\n",
            "0::/../../system.slice/slurmstepd.scope/job_9/step_0\n",
            "0::/docker/4f/system.slice/slurmstepd.scope/job_9/step_0\n",
            "0::/system.slice/slurmstepd.scope\n",
            "0::/system.slice/xslurmstepd.scope/job_9\n",
            "1:name=systemd:/slurm/uid_2001/job_9/step_0\n",
            "4:devices:/user/slurm/uid_2001/job_9/step_0\n",
            "4:devices:/slurm/job_9\n",
            "4:devices:/slurm/uid_2001/step_0/job_9\n",
            "4:devices:/slurm/uid_x/job_9/step_0\n",
            "4:devices:/slurmx/uid_2001/job_9/step_0\n",
            "4:devices:/system.slice/slurmstepd.scope/job_9\n",
            "0::/slurm/uid_2001/job_9/step_0\n",
        ] {
            assert_eq!(place(text.as_bytes()), Membership::Outside, "{text}");
        }
    }

    #[test]
    fn what_is_no_job_id_names_no_job() {
        for id in [
            "",
            "0",
            "01",
            "-1",
            "+1",
            "1x",
            " 1",
            "4294967296",
            "1 (deleted)",
        ] {
            let text = format!("0::/system.slice/slurmstepd.scope/job_{id}/step_0\n");
            assert_eq!(place(text.as_bytes()), Membership::Outside, "{text}");
        }
    }

    #[test]
    fn two_jobs_at_once_are_none() {
        let text = b"4:devices:/slurm/uid_1/job_1/step_0\n3:memory:/slurm/uid_1/job_2/step_0\n";
        assert_eq!(place(text), Membership::Unclear);
    }

    #[test]
    fn text_that_was_cut_off_or_is_none_of_a_kernels_is_unclear() {
        for text in [
            &b""[..],
            b"0::/system.slice/slurmstepd.scope/job_1",
            b"4:devices\n",
            b"\n",
            b"0::relative/slurmstepd.scope/job_1/\n",
        ] {
            assert_eq!(place(text), Membership::Unclear, "{text:?}");
        }
        let text = "0::/system.slice/slurmstepd.scope/job_\u{ff}/step_0\n";
        assert_eq!(place(text.as_bytes()), Membership::Outside);
    }

    #[test]
    fn a_sluid_is_never_another_files_name() {
        assert!(is_sluid("sEKNKTV3WPV500"));
        for text in [
            "",
            "s",
            "sEKNKTV3WPV50",
            "sEKNKTV3WPV5000",
            "sEKNKTV3WPV50/",
            "sEKNKTV3WPV50.",
            "xEKNKTV3WPV500",
            "seknktv3wpv500",
            "12345678901234",
        ] {
            assert!(!is_sluid(text), "{text}");
        }
    }
}
