//! Ends all processes of a job, but for root's, Slurm's own among them, and those that are older than the limits.
//!
//! With control groups of version 2 the kernel does it at once, for the folders of a job's tasks (`cgroup.kill`, Linux 5.14).
//! Otherwise, and for what is left, each process gets its own signal, until none is left.

use crate::enforce::observation::{Holder, ProcessId};
use crate::enforce::target::{Target, is_of, is_older};
use crate::jobs::confs::Confs;
use crate::jobs::owner::{Owner, owner};
use rustix::process::Signal;
use softmig_policy::node::cgroup::{Membership, place};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where control groups of version 2 are.
pub const CGROUPS: &str = "/sys/fs/cgroup";

/// All processes are looked through again and again until none is left, for at most this time: processes that end can start
/// others meanwhile, and measuring waits.
const MOST: Duration = Duration::from_secs(2);

/// A job that is to end as a whole.
#[derive(Clone, Copy, Debug)]
pub struct JobProcesses<'a> {
    /// Where processes are told.
    pub proc: &'a Path,
    /// Where control groups are.
    pub cgroups: &'a Path,
    /// Whose processes are to end.
    pub holder: &'a Holder,
    /// The confs of all jobs.
    pub confs: &'a Confs,
    /// Processes that began before this time are exempt.
    pub enforced_since: Option<u64>,
}

impl JobProcesses<'_> {
    /// Ends them, and says how many got a signal one by one.
    pub fn end(&self) -> usize {
        let mut signalled = BTreeSet::new();
        for folder in self.task_folders(&self.members()) {
            // Where the kernel has no such file, the signals do it.
            let _ = fs::write(folder.join("cgroup.kill"), "1");
        }
        until_none(MOST, || self.signal(&self.members(), &mut signalled));
        signalled.len()
    }

    /// Signals those that had no signal yet, and says how many that were.
    fn signal(&self, members: &[ProcessId], signalled: &mut BTreeSet<ProcessId>) -> usize {
        let new = members.iter().filter(|id| !signalled.contains(id));
        let take = |&id| Target::take(self.proc, id, self.holder, self.confs, self.enforced_since);
        let targets: Vec<_> = new.filter_map(|id| take(id).ok()).collect();
        for target in &targets {
            // One that has ended meanwhile needs none.
            let _ = target.signal(Signal::KILL);
            signalled.insert(target.id);
        }
        targets.len()
    }

    /// All processes of the job.
    fn members(&self) -> Vec<ProcessId> {
        let entries = fs::read_dir(self.proc).into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let member = |pid: u32| match owner(self.proc, pid) {
            Owner::Process {
                uid, place, began, ..
            } if is_of(self.holder, &place, uid, self.confs) => Some(ProcessId { pid, began }),
            _ => None,
        };
        pids.filter_map(member).collect()
    }

    /// The folders of the job's tasks, `step_*/user`, in which all processes may be ended.
    fn task_folders(&self, members: &[ProcessId]) -> Vec<PathBuf> {
        let job = members.iter().find_map(|id| {
            let list = fs::read(self.proc.join(id.pid.to_string()).join("cgroup")).ok()?;
            job_folder(&list)
        });
        let Some(job) = job else {
            return Vec::new();
        };
        let steps = fs::read_dir(self.cgroups.join(job))
            .into_iter()
            .flatten()
            .flatten();
        steps
            .map(|step| step.path().join("user"))
            .filter(|folder| folder.join("cgroup.kill").exists())
            .filter(|folder| !self.has_exempt(folder))
            .collect()
    }

    /// Whether a process in a control group or in one below is root's or older than the limits.
    fn has_exempt(&self, folder: &Path) -> bool {
        let list = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        let mut pids = list.lines().filter_map(|line| line.parse().ok());
        let is_exempt = |pid: u32| match owner(self.proc, pid) {
            Owner::Process { uid, began, .. } => uid == 0 || is_older(began, self.enforced_since),
            Owner::Gone | Owner::Unknown(_) => false,
        };
        let below = || {
            let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries.any(|entry| {
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                is_folder && self.has_exempt(&entry.path())
            })
        };
        pids.any(is_exempt) || below()
    }
}

/// Does it again until nothing was left to do or the time is over.
fn until_none(most: Duration, mut pass: impl FnMut() -> usize) {
    let start = Instant::now();
    while pass() > 0 && start.elapsed() < most {}
}

/// The folder of a job in the hierarchy of version 2, by the list of a process in it.
fn job_folder(list: &[u8]) -> Option<PathBuf> {
    let line = list
        .split(|&byte| byte == b'\n')
        .find(|line| line.starts_with(b"0::/"))?;
    // That this folder is a job's, and not one of a user's with such a name, is told by that line alone.
    let mut alone = line.to_vec();
    alone.push(b'\n');
    if !matches!(place(&alone), Membership::Job(_)) {
        return None;
    }
    let mut folder = PathBuf::new();
    let mut is_last = false;
    for part in str::from_utf8(line).ok()?.strip_prefix("0::/")?.split('/') {
        folder.push(part);
        if is_last {
            return Some(folder);
        }
        is_last = part.ends_with("slurmstepd.scope");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCOPE: &str = "system.slice/slurmstepd.scope/job_12";

    /// A process as the kernel tells of it: its number, its user, its control group.
    fn process(folder: &Path, pid: u32, uid: u32, group: &str) {
        began(folder, pid, uid, group, 4711);
    }

    /// One that began at this time.
    fn began(folder: &Path, pid: u32, uid: u32, group: &str, began: u64) {
        let process = folder.join("proc").join(pid.to_string());
        fs::create_dir_all(&process).unwrap();
        let status = format!("Name:\tx\nUid:\t{uid}\t{uid}\n");
        let stat = format!("{pid} (x) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {began} 0 0\n");
        fs::write(process.join("status"), status).unwrap();
        fs::write(process.join("stat"), stat).unwrap();
        fs::write(process.join("cgroup"), format!("0::/{group}\n")).unwrap();
        let group = folder.join("cgroups").join(group);
        fs::create_dir_all(&group).unwrap();
        let list = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        fs::write(group.join("cgroup.procs"), format!("{list}{pid}\n")).unwrap();
    }

    #[test]
    fn the_folders_of_a_jobs_tasks_are_ended_and_not_slurms_own() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut kill = Vec::new();
        for step in ["step_0", "step_1", "step_extern", "step_batch"] {
            process(folder, 10, 0, &format!("{SCOPE}/{step}/slurm"));
            process(folder, 11, 2001, &format!("{SCOPE}/{step}/user/task_0"));
            for part in ["slurm", "user"] {
                let file = folder.join("cgroups").join(SCOPE).join(step).join(part);
                fs::write(file.join("cgroup.kill"), "").unwrap();
                kill.push(file.join("cgroup.kill"));
            }
        }
        // Root is in this one, as by sudo.
        process(folder, 13, 0, &format!("{SCOPE}/step_batch/user/task_0"));
        // A user's set-uid program is not root.
        process(folder, 15, 2001, &format!("{SCOPE}/step_0/user/task_0"));
        let status = "Name:\tsu\nUid:\t2001\t0\t0\t0\n";
        fs::write(folder.join("proc/15/status"), status).unwrap();
        // This one is older than the limits.
        began(
            folder,
            14,
            2001,
            &format!("{SCOPE}/step_1/user/task_0"),
            4000,
        );
        // Neither process exists: a signal to these numbers finds none.
        let (proc, cgroups) = (folder.join("proc"), folder.join("cgroups"));
        let confs = Confs::default();
        let whole = JobProcesses {
            proc: &proc,
            cgroups: &cgroups,
            holder: &Holder::Job(12),
            confs: &confs,
            enforced_since: Some(4000),
        };
        let members = whole.members();
        assert_eq!(members.len(), 5);
        for folder in whole.task_folders(&members) {
            fs::write(folder.join("cgroup.kill"), "1").unwrap();
        }
        let written = kill.iter().filter(|file| fs::read(file).unwrap() == b"1");
        let written: Vec<_> = written
            .map(|file| file.strip_prefix(&cgroups).unwrap())
            .collect();
        let user = |step: &str| PathBuf::from(format!("{SCOPE}/{step}/user/cgroup.kill"));
        assert_eq!(written, [user("step_0"), user("step_extern")]);
    }

    #[test]
    fn a_folder_of_a_users_own_is_no_jobs() {
        let folder = |list: &str| job_folder(list.as_bytes());
        assert_eq!(
            folder("0::/hpc.slice/n1_slurmstepd.scope/job_12/step_0/user/job_13\n"),
            Some("hpc.slice/n1_slurmstepd.scope/job_12".into())
        );
        let own = "0::/user.slice/session-3.scope/slurmstepd.scope/job_12\n";
        assert_eq!(folder(own), None);
        assert_eq!(folder("4:devices:/slurm/uid_1/job_12/step_0\n0::/\n"), None);
    }

    #[test]
    fn signals_go_on_until_no_process_is_left_or_time_is_over() {
        let mut left = 100;
        until_none(Duration::from_secs(3600), || {
            left -= 1;
            left
        });
        assert_eq!(left, 0);
        let mut passes = 0;
        until_none(Duration::ZERO, || {
            passes += 1;
            1
        });
        assert_eq!(passes, 1);
    }
}
