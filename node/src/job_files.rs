//! All that the node is to have of a job: the conf that hook and monitor read, and the files around it. [`JobFiles`] is
//! computed first, and applied once.

use crate::allowance::Allowance;
use crate::clear::clear_limits;
use crate::dir::{Dir, DirError};
use crate::gpu::installed;
use crate::job::{Job, Sluid};
use crate::node::{Node, Run, alias_name, conf_name, is_of_this_run, new_conf_name};
use crate::{folder, gate};
use softmig_policy::NodePolicy;
use softmig_policy::node::job_conf::{Gpus, JobConf, Uuid};
use softmig_policy::node::names::Names;
use softmig_policy::node::paths::LONGEST_CONF;
use softmig_policy::node::softmig_conf;
use std::num::NonZeroU32;
use tracing::warn;

/// Why a job's files are not as they should be.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// An earlier job's are in the way.
    #[error("an older job's files cannot be removed")]
    Stale(#[source] DirError),
    /// They cannot be written.
    #[error("its files cannot be written")]
    Write(#[from] DirError),
}

impl FilesError {
    /// True if only room was missing. Users can cause that, also with the files of other programs, so it must not drain
    /// the node. Removing an older job's files needs no room.
    pub fn is_no_room(&self) -> bool {
        matches!(self, Self::Write(error) if error.is_no_room())
    }
}

/// The conf of a GPU job; `None` when nothing is known of it.
pub fn conf_of(
    job: &Job,
    allowance: &Allowance,
    gpus: Gpus,
    policy: Option<&NodePolicy>,
) -> Option<JobConf> {
    let limits = match allowance {
        Allowance::Whole(_) | Allowance::Mixed(_) => None,
        Allowance::Slice(limits, _) => Some(*limits),
        Allowance::Unknown | Allowance::Unseen | Allowance::Drain => return None,
    };
    let gpus = match allowance {
        // No list reads as unknown. One that lacks some of the job's GPUs would make them another's.
        Allowance::Mixed(_) => Gpus::default(),
        _ => gpus,
    };
    let gpu = limits.and_then(|limits| policy?.gpu(limits.gpu_type().as_str()));
    // The request by which the user gets more. Where the policy has changed since the job was granted, nothing is offered.
    let larger = gpu.zip(limits).and_then(|(gpu, limits)| {
        let is_divided_so = gpu.shards_per_gpu() == limits.share().per_gpu();
        is_divided_so.then(|| gpu.larger_than(limits.share().shards()))?
    });
    Some(JobConf {
        job: NonZeroU32::new(job.id.get()),
        uid: job.uid,
        run: job.run.unwrap_or(0),
        start: job.start,
        limits,
        gpus,
        gate: false,
        larger,
        pack: gpu.and_then(|gpu| job.pack_of(gpu)),
    })
}

/// The conf with the device gate, which is closed first if one is wanted. Where an earlier call has written a conf for this
/// very run of the job, that says what follows from the policy: a policy that has changed since then is for later runs.
pub fn with_gate(node: &Node, job: &Job, conf: JobConf, is_wanted: bool) -> JobConf {
    // Without the lock: the run folder may not be mounted yet.
    let text = || {
        let run = Dir::open(&node.run, node.owner).ok()??;
        run.read(&conf_name(job.id), LONGEST_CONF).ok()?
    };
    let before = text().and_then(|text| JobConf::parse(&text).ok());
    match before.filter(|before| is_of_this_run(before, job)) {
        Some(JobConf {
            gate, larger, pack, ..
        }) => JobConf {
            gate,
            larger,
            pack,
            ..conf
        },
        None => JobConf {
            gate: is_wanted && conf.limits.is_some() && gate::close(node, job),
            ..conf
        },
    }
}

/// All files of a job.
#[derive(Debug)]
pub struct JobFiles<'a> {
    job: &'a Job,
    /// The text of the conf. Without one there is no other file either.
    conf: Option<String>,
    /// The size of the ledger; 0 for none.
    ledger: usize,
    /// The folders, such as `uid` and `2001`, that mark by an empty file: this user, this GPU has a limited job here.
    marks: Vec<(&'static str, String)>,
    /// The line of the job's log that says why the job gets no GPU, if it gets none.
    refusal: Option<String>,
}

impl<'a> JobFiles<'a> {
    /// Those of a job with this conf.
    pub fn new(node: &Node, job: &'a Job, conf: Option<&JobConf>) -> Self {
        let limited = conf.filter(|conf| conf.limits.is_some());
        Self {
            job,
            conf: conf.map(|conf| format!("{conf}{}", job.names())),
            ledger: limited.map_or(0, |_| softmig_region::size(gpus_of(node, job))),
            marks: limited.map_or(Vec::new(), |conf| marks(job, &conf.gpus)),
            refusal: None,
        }
    }

    /// Those by which a job gets no GPU, with the reason in its log.
    ///
    /// A missing conf gives none either, except to processes that hide their control group: those have the limits of the
    /// jobs that are marked. On a full file system nothing is written, and the conf is missing.
    pub fn refused(job: &'a Job, gpus: &Gpus, why: &str) -> Self {
        Self {
            job,
            conf: Some(no_limits(job, gpus)),
            ledger: 0,
            marks: marks(job, gpus),
            refusal: Some(format!("softmig-prolog: job {}: no GPU: {why}\n", job.id)),
        }
    }

    /// Makes the node say exactly this of the job. Called twice it changes nothing the second time; called after a kill
    /// it completes what was begun.
    pub fn apply(&self, node: &Node) -> Result<(), FilesError> {
        let run = match self.conf {
            Some(_) => node.make().map(Some),
            None => node.open(),
        };
        match run {
            Ok(Some(run)) => self.apply_in(&run),
            Ok(None) => Ok(()),
            Err(error) if self.refusal.is_some() && error.is_no_room() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The same, unless the node says something of the job already, other than by a conf of the older SoftMig; tells
    /// whether it did not. A job that the prolog took care of may have a process by now, with the ledger mapped.
    pub fn apply_if_missing(&self, node: &Node) -> Result<bool, FilesError> {
        let run = node.make()?;
        let missing = run
            .conf_text(self.job.id)?
            .is_none_or(|text| softmig_conf::limits(&text).is_some());
        if missing {
            self.apply_in(&run)?;
        }
        Ok(missing)
    }

    fn apply_in(&self, run: &Run) -> Result<(), FilesError> {
        let id = self.job.id;
        let is_grant = self.conf.is_some() && self.refusal.is_none();
        // The conf goes first and comes last: where it is, all else is.
        if !(is_grant && self.is_in(run)) {
            let this_run = is_grant && run.is_of_this_run(self.job);
            clear_limits(run, self.job).map_err(FilesError::Stale)?;
            // What an older job of the same number wrote limits no process. But what that job's processes held must not count
            // as held by this one's.
            let cleared = if this_run {
                Ok(false)
            } else {
                folder::remove(run, id)
            };
            match cleared {
                Err(error) if self.ledger > 0 => return Err(FilesError::Stale(error)),
                Err(error) => warn!(
                    job = id.get(),
                    "job={id}: an older job's folder stays: {error}"
                ),
                Ok(_) => {}
            }
        }
        // A ledger that cannot be made counts like limits that cannot be written. The job would not run unlimited, since
        // the hook gives it no GPU then; but one job after the other would come here only to fail, so the node is better
        // drained, unless only room was missing.
        for step in [Self::make_folder, Self::put_marks, Self::write] {
            match step(self, run) {
                Err(error) if is_grant => return Err(error.into()),
                Err(error) => warn!(job = id.get(), "job={id}: {error}"),
                Ok(()) => {}
            }
        }
        if self.refusal.is_some() {
            // There may have been no room for the text. Where it is, this makes nothing.
            let _ = run.dir.create(&conf_name(id), 0o644, b"");
        }
        Ok(())
    }

    /// Whether the conf that is here is this one. Anything that is not a plain file is another. Other names, or none as an
    /// older prolog wrote it, are the same job.
    fn is_in(&self, run: &Run) -> bool {
        let names = self.job.names().to_string();
        let limits = self
            .conf
            .as_deref()
            .and_then(|conf| conf.strip_suffix(&names));
        let is_same = |old: &[u8]| {
            limits.is_some_and(|limits| old == format!("{limits}{}", Names::read(old)).as_bytes())
        };
        matches!(run.conf_text(self.job.id), Ok(Some(old)) if is_same(&old))
    }

    fn make_folder(&self, run: &Run) -> Result<(), DirError> {
        if self.ledger == 0 && self.refusal.is_none() {
            return Ok(());
        }
        folder::make(run, self.job, self.ledger, self.refusal.as_deref())
    }

    fn put_marks(&self, run: &Run) -> Result<(), DirError> {
        let id = self.job.id.to_string();
        let mark = |kind: &str, name: &str| {
            let folder = run.dir.make_child(kind)?.make_child(name)?;
            match folder.stat_of(&id)? {
                Some(_) => Ok(()),
                None => folder.create(&id, 0o644, b"").map(drop),
            }
        };
        // An epilog that could not wait for the lock may take the empty folder away before the file is in it.
        self.marks.iter().try_for_each(|(kind, name)| {
            mark(kind, name)
                .or_else(|_| mark(kind, name))
                .or_else(|_| mark(kind, name))
        })
    }

    /// Writes the conf beside its place, gives it its second name, then its own: it is always complete.
    fn write(&self, run: &Run) -> Result<(), DirError> {
        let Some(text) = &self.conf else {
            return Ok(());
        };
        let sluid = self.job.sluid.as_ref();
        if self.is_in(run) && sluid.is_none_or(|sluid| is_alias(run, sluid, self.job)) {
            return Ok(());
        }
        let new = new_conf_name(self.job.id);
        run.dir.remove(&new)?;
        run.dir.create(&new, 0o644, text.as_bytes())?;
        if let Some(sluid) = sluid {
            name_too(run, &new, sluid)?;
        }
        run.dir.rename(&new, &conf_name(self.job.id))
    }
}

fn marks(job: &Job, gpus: &Gpus) -> Vec<(&'static str, String)> {
    let gpus = gpus.iter().map(|uuid| ("gpu", uuid.as_str().to_owned()));
    [("uid", job.uid.to_string())]
        .into_iter()
        .chain(gpus)
        .collect()
}

/// How many GPUs the ledger is for. Where Slurm does not say, as for a job that ran before its node enforced: for all
/// that there are.
fn gpus_of(node: &Node, job: &Job) -> usize {
    match job.gpus.as_ref().map_or(0, |list| list.indices.len()) {
        0 => installed(&node.gpus).len().max(1),
        named => named,
    }
}

/// A conf that every release of the library refuses, because it names neither limits nor the mode `whole`.
fn no_limits(job: &Job, gpus: &Gpus) -> String {
    let uuids: Vec<&str> = gpus.iter().map(Uuid::as_str).collect();
    format!(
        "SOFTMIG_JOB={}\nSOFTMIG_UID={}\nSOFTMIG_MODE=none\nSOFTMIG_GPUS={}\n",
        job.id,
        job.uid,
        uuids.join(",")
    )
}

/// Gives a job's conf its second name if that is missing: a prolog from before an upgrade of Slurm knew no SLUID,
/// and the job's next steps may be in control groups that are named by it. The device gate is closed for that name too. Tells
/// whether it did.
pub fn name_by_sluid(node: &Node, job: &Job) -> Result<bool, FilesError> {
    let (Some(run), Some(sluid)) = (node.open()?, &job.sluid) else {
        return Ok(false);
    };
    if run.conf(job.id).is_some_and(|conf| conf.gate) {
        // If it stays open, the log says why.
        gate::close(node, job);
    }
    if is_alias(&run, sluid, job) {
        return Ok(false);
    }
    match name_too(&run, &conf_name(job.id), sluid) {
        Ok(()) => Ok(true),
        // Its epilog was faster.
        Err(_) if run.conf_text(job.id)?.is_none() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Gives a conf its second name: a hard link, because the hook follows no other. The name holds a letter, so it is not another
/// job's conf.
fn name_too(run: &Run, conf: &str, sluid: &Sluid) -> Result<(), DirError> {
    let alias = alias_name(sluid);
    run.dir.remove(&alias)?;
    run.dir.link(conf, &alias)
}

fn is_alias(run: &Run, sluid: &Sluid, job: &Job) -> bool {
    let inode = |name: &str| {
        let stat = run.dir.stat_of(name).ok().flatten()?;
        Some((stat.st_dev, stat.st_ino))
    };
    let alias = inode(&alias_name(sluid));
    alias.is_some() && alias == inode(&conf_name(job.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_policy::node::tag::Tag;

    #[test]
    fn a_conf_from_before_an_upgrade_gets_its_second_name_once() {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        let job = |sluid: Option<&'static str>| {
            Job::read(|name| match name {
                "SLURM_JOB_SLUID" => sluid.map(Into::into),
                _ => Some("7".into()),
            })
            .unwrap()
        };
        let (before, after) = (job(None), job(Some("sEKNKTV3WPVA00")));
        // Without a folder of jobs, and without a conf in it.
        assert!(!name_by_sluid(&node, &after).unwrap());
        node.make().unwrap();
        assert!(!name_by_sluid(&node, &after).unwrap());
        let whole = Allowance::Whole(crate::allowance::Source::Tag);
        let conf = conf_of(&before, &whole, Gpus::default(), None);
        JobFiles::new(&node, &before, conf.as_ref())
            .apply(&node)
            .unwrap();
        assert!(!name_by_sluid(&node, &before).unwrap());
        assert!(name_by_sluid(&node, &after).unwrap());
        assert!(!name_by_sluid(&node, &after).unwrap());
        let text = |name: &str| std::fs::read(node.run.join(name)).unwrap();
        assert_eq!(text("sEKNKTV3WPVA00.conf"), text("7.conf"));
    }

    #[test]
    fn the_second_name_of_a_job_with_the_gate_is_in_its_table() {
        use rustix::io::Errno;
        use rustix::mount::{
            FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen,
        };
        use softmig_gate::{Gate, Jobs, Settings};
        use std::os::fd::{AsFd, AsRawFd};
        // A file system that ends with the test, and the gate with it.
        let bpf = fsopen("bpf", FsOpenFlags::FSOPEN_CLOEXEC).and_then(|system| {
            fsconfig_create(system.as_fd())?;
            let flags = FsMountFlags::FSMOUNT_CLOEXEC;
            fsmount(system.as_fd(), flags, MountAttrFlags::empty())
        });
        let bpf = match bpf {
            Err(Errno::PERM) => return eprintln!("skipped: not permitted here"),
            bpf => bpf.unwrap(),
        };
        let folder = tempfile::tempdir().unwrap();
        let mut node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        node.gate = format!("/proc/{}/fd/{}/gate", std::process::id(), bpf.as_raw_fd()).into();
        match Gate::set_up(&Settings::of_node(&node.gate)) {
            Err(error) if error.is_permission() => return eprintln!("skipped: {error}"),
            gate => drop(gate.unwrap()),
        }
        let Some(Ok(Tag::Slice(limits))) = Tag::find("softmig=1:l40s:1/4:11366:hard") else {
            panic!()
        };
        let slice = Allowance::Slice(limits, crate::allowance::Source::Tag);
        for (number, gate) in [("7", true), ("8", false)] {
            let sluid = format!("sEKNKTV3WPVA0{number}");
            let job = |with_sluid: bool| {
                Job::read(|name| match name {
                    "SLURM_JOB_SLUID" => with_sluid.then(|| sluid.clone().into()),
                    "SLURM_JOB_UID" => Some(node.owner.to_string().into()),
                    "SLURM_JOB_GID" => Some(rustix::process::getgid().as_raw().to_string().into()),
                    "SLURM_JOB_ID" => Some(number.into()),
                    _ => None,
                })
                .unwrap()
            };
            let conf = conf_of(&job(false), &slice, Gpus::default(), None).unwrap();
            let conf = JobConf { gate, ..conf };
            JobFiles::new(&node, &job(false), Some(&conf))
                .apply(&node)
                .unwrap();
            assert!(name_by_sluid(&node, &job(true)).unwrap());
            let jobs = Jobs::open(&node.gate).unwrap().unwrap();
            assert_eq!(jobs.remove(&sluid).unwrap(), gate, "{number}");
        }
    }

    #[test]
    fn a_conf_without_limits_is_none() {
        let job = Job::read(|_| Some("7".into())).unwrap();
        let text = no_limits(&job, &Gpus::default());
        assert!(text.contains("SOFTMIG_JOB=7\n"), "{text}");
        assert!(JobConf::parse(text.as_bytes()).is_err());
        assert!(JobConf::parse(b"").is_err());
    }
}
