//! Removes the files of jobs whose own epilog failed or was cut off: until then their user's processes outside jobs are
//! held to them.
//!
//! A job that runs never loses its files: none of the job's processes may be left here, and slurmctld must say that it
//! does not know the number. A job that has ended is known for some time (`MinJobAge`), and its files stay as long.

use crate::end::{Ended, end};
use rustix::io::Errno;
use softmig_node::dir::{Dir, DirError};
use softmig_node::job::{Job, JobId, Sluid, Tags};
use softmig_node::node::{Node, alias_name, conf_name};
use softmig_node::slurmctld::AskError;
use softmig_policy::node::cgroup::{JobName, Membership, place};
use softmig_policy::node::job_conf::JobConf;
use softmig_policy::node::node_conf::{Identity, NodeConf};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A job may have its conf for as long before its first process: a whole-node prolog of the site's own takes its time.
const YOUNG: Duration = Duration::from_secs(600);

/// The most jobs that one epilog asks about.
const MOST: usize = 8;

/// Removes what jobs left that slurmctld does not know. `knows` asks it; the first question without an answer is the last.
/// Tells which jobs these were.
pub(crate) fn sweep(
    node: &Node,
    own: JobId,
    proc: &Path,
    mut knows: impl FnMut(JobId) -> Result<bool, AskError>,
) -> Vec<JobId> {
    let mut left = left_behind(node, own, proc).unwrap_or_default();
    // Another epilog begins with another one.
    if let Some(first) = (own.get() as usize).checked_rem(left.len()) {
        left.rotate_left(first);
    }
    let mut swept = Vec::new();
    for job in left.into_iter().take(MOST) {
        match knows(job.id) {
            Ok(true) => {}
            // Files of a later run, with the same number, stay.
            Ok(false) => {
                if matches!(end(node, &job), Ok(Ended::Cleared { .. })) {
                    swept.push(job.id);
                }
            }
            Err(_) => break,
        }
    }
    swept
}

/// The jobs with an old conf and without a process; `None` where that cannot be told.
fn left_behind(node: &Node, own: JobId, proc: &Path) -> Option<Vec<Job>> {
    // Without the lock: confs come by rename, and prologs are not to wait for this.
    let run = Dir::open(&node.run, node.owner).ok()??;
    let names = run.names().ok()?;
    let ids = names.iter().filter_map(|name| name.strip_suffix(".conf"));
    let mut ids: Vec<JobId> = ids.filter_map(JobId::parse).collect();
    ids.retain(|&id| id != own && is_old(&run, id));
    if ids.is_empty() || !has_control_groups(node) {
        return None;
    }
    let living = living(&run, proc)?;
    ids.retain(|id| !living.contains(id));
    ids.sort_unstable();
    Some(ids.into_iter().map(|id| job(&run, id)).collect())
}

fn is_old(run: &Dir, id: JobId) -> bool {
    run.stat_of(&conf_name(id))
        .ok()
        .flatten()
        .and_then(|conf| u64::try_from(conf.st_mtime).ok())
        .map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        .and_then(|changed| changed.elapsed().ok())
        .is_some_and(|age| age >= YOUNG)
}

/// Whether a process tells here by its control group whose it is.
fn has_control_groups(node: &Node) -> bool {
    match fs::read(&node.conf) {
        Ok(text) => NodeConf::parse(&text).is_ok_and(|conf| conf.identity == Identity::Cgroup),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// The jobs that have a process; `None` where one does not tell whose it is.
fn living(run: &Dir, proc: &Path) -> Option<BTreeSet<JobId>> {
    let mut living = BTreeSet::new();
    for entry in fs::read_dir(proc).ok()? {
        let folder = entry.ok()?.path();
        let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
        let name = folder.file_name().and_then(|name| name.to_str());
        if !name.is_some_and(is_process) {
            continue;
        }
        let text = match fs::read(folder.join("cgroup")) {
            Ok(text) => text,
            Err(error) if has_ended(&error) => continue,
            Err(_) => return None,
        };
        match place(&text) {
            Membership::Outside => {}
            Membership::Job(JobName::Id(id)) => living.extend(JobId::parse(&id.to_string())),
            Membership::Job(JobName::Sluid(sluid)) => {
                living.extend(owner(run, sluid)?);
            }
            // An ended process has no control group any more.
            Membership::Unclear if text.is_empty() => {}
            Membership::Unclear => return None,
        }
    }
    Some(living)
}

/// Whether a process has ended by now: its folder is gone, or empties.
fn has_ended(error: &io::Error) -> bool {
    let gone = Errno::SRCH.raw_os_error();
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(gone)
}

/// The job whose conf has this second name, if there is one.
fn owner(run: &Dir, sluid: &str) -> Option<Option<JobId>> {
    let sluid = Sluid::parse(sluid)?;
    let conf = read(run, &alias_name(&sluid)).ok()?;
    let id = conf.and_then(|conf| JobId::parse(&conf.job?.to_string()));
    Some(id)
}

/// The second name of a job's conf, which the job's control groups may have.
fn second_name(run: &Dir, id: JobId) -> Option<Sluid> {
    let names = run.names().ok()?;
    let mut sluids = names.iter().filter_map(|name| name.strip_suffix(".conf"));
    let sluid = sluids.find(|name| owner(run, name) == Some(Some(id)))?;
    Sluid::parse(sluid)
}

/// A conf that can be read.
fn read(run: &Dir, name: &str) -> Result<Option<JobConf>, DirError> {
    let text = run.read(name, LONGEST)?;
    Ok(text.and_then(|text| JobConf::parse(&text).ok()))
}

/// More than a conf has.
const LONGEST: u64 = 64 << 10;

/// The job as its conf describes it.
fn job(run: &Dir, id: JobId) -> Job {
    let conf = read(run, &conf_name(id)).ok().flatten();
    Job {
        id,
        uid: conf.as_ref().map_or(0, |conf| conf.uid),
        gid: 0,
        gpus: None,
        run: conf.as_ref().map(|conf| conf.run),
        start: conf.as_ref().and_then(|conf| conf.start),
        sluid: second_name(run, id),
        user: None,
        account: None,
        partition: None,
        reservation: None,
        node: String::new(),
        slurm_conf: None,
        tags: Tags::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use std::fs::File;

    struct World {
        folder: tempfile::TempDir,
        node: Node,
    }

    fn id(text: &str) -> JobId {
        JobId::parse(text).unwrap()
    }

    impl World {
        fn new() -> Self {
            let (folder, node) = example::node();
            fs::create_dir(folder.path().join("proc")).unwrap();
            let world = Self { folder, node };
            world.process("1", "0::/init.scope\n");
            world
        }

        fn process(&self, pid: &str, cgroup: &str) {
            let folder = self.folder.path().join("proc").join(pid);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cgroup"), cgroup).unwrap();
        }

        fn prolog(&self, number: &str, sluid: Option<&str>) {
            let sluid = sluid.map(|sluid| ("SLURM_JOB_SLUID", sluid));
            let job = example::job(number, sluid.as_slice());
            example::whole(&self.node, &job);
        }

        fn age(&self, number: &str, age: Duration) {
            let conf = File::options()
                .write(true)
                .open(self.node.run.join(format!("{number}.conf")))
                .unwrap();
            conf.set_modified(SystemTime::now() - age).unwrap();
        }

        /// Sweeps as job 9, where slurmctld knows only these. Tells which are gone, and about which it was asked.
        fn sweep(&self, known: &[&str]) -> (Vec<JobId>, Vec<JobId>) {
            let mut asked = Vec::new();
            let proc = self.folder.path().join("proc");
            let swept = sweep(&self.node, id("9"), &proc, |number| {
                asked.push(number);
                Ok(known.contains(&number.to_string().as_str()))
            });
            (swept, asked)
        }

        fn has(&self, number: &str) -> bool {
            self.node.run.join(format!("{number}.conf")).exists()
        }
    }

    #[test]
    fn only_a_job_that_slurm_does_not_know_loses_its_files() {
        let world = World::new();
        assert_eq!(world.sweep(&[]), (vec![], vec![]));
        for number in ["7", "8", "9"] {
            world.prolog(number, None);
            world.age(number, YOUNG);
        }
        world.prolog("10", None);
        let (swept, mut asked) = world.sweep(&["8"]);
        asked.sort_unstable();
        assert_eq!((swept, asked), (vec![id("7")], vec![id("7"), id("8")]));
        assert!(!world.has("7") && world.has("8") && world.has("9") && world.has("10"));
    }

    #[test]
    fn a_job_with_a_process_is_not_even_asked_about() {
        let world = World::new();
        for (number, sluid) in [("7", None), ("8", Some("sEKNKTV3WPV500"))] {
            world.prolog(number, sluid);
            world.age(number, YOUNG);
        }
        world.process("100", "4:devices:/slurm/uid_2001/job_7/step_0/task_0\n");
        world.process(
            "101",
            "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0\n",
        );
        assert_eq!(world.sweep(&[]), (vec![], vec![]));
        fs::remove_dir_all(world.folder.path().join("proc/101")).unwrap();
        assert_eq!(world.sweep(&[]), (vec![id("8")], vec![id("8")]));
        assert!(!world.node.run.join("sEKNKTV3WPV500.conf").exists());
    }

    #[test]
    fn a_jobs_second_name_is_known_to_its_sweep() {
        let world = World::new();
        world.prolog("7", None);
        world.prolog("8", Some("sEKNKTV3WPV500"));
        world.prolog("9", Some("sEKNKTV3WPV501"));
        let run = Dir::open(&world.node.run, world.node.owner);
        let run = run.unwrap().unwrap();
        let sluid = |number: &str| job(&run, id(number)).sluid;
        assert_eq!(sluid("7"), None);
        assert_eq!(sluid("8"), Sluid::parse("sEKNKTV3WPV500"));
    }

    #[test]
    fn where_processes_do_not_tell_whose_they_are_nothing_is_swept() {
        let world = World::new();
        world.prolog("7", None);
        world.age("7", YOUNG);
        world.process("100", "half a li");
        assert_eq!(world.sweep(&[]), (vec![], vec![]));
        world.process("100", "");
        fs::write(&world.node.conf, "SOFTMIG_IDENTITY=env\n").unwrap();
        assert_eq!(world.sweep(&[]), (vec![], vec![]));
        fs::write(&world.node.conf, "SOFTMIG_NODE=enforce\n").unwrap();
        assert_eq!(world.sweep(&[]).0, [id("7")]);
    }

    #[test]
    fn without_an_answer_no_more_is_asked() {
        let world = World::new();
        for number in ["7", "8"] {
            world.prolog(number, None);
            world.age(number, YOUNG);
        }
        let mut asked = 0;
        let proc = world.folder.path().join("proc");
        let swept = sweep(&world.node, id("9"), &proc, |_| {
            asked += 1;
            Err(AskError::Late)
        });
        assert_eq!((swept, asked), (vec![], 1));
    }

    #[test]
    fn one_epilog_asks_about_some_jobs_and_another_about_others() {
        let world = World::new();
        let numbers: Vec<String> = (101..=100 + 2 * MOST).map(|n| n.to_string()).collect();
        for number in &numbers {
            world.prolog(number, None);
            world.age(number, YOUNG);
        }
        let mut asked = BTreeSet::new();
        let proc = world.folder.path().join("proc");
        for own in ["16", "24"] {
            sweep(&world.node, id(own), &proc, |number| {
                asked.insert(number);
                Ok(true)
            });
        }
        assert_eq!(asked.len(), 2 * MOST);
    }
}
