//! Takes a job's files away: the epilog's work, and the prolog's when an earlier job with the same number left some.
//!
//! Nothing is taken for granted: a prolog may have been killed at any point, may have been another version's, or may
//! never have run. So everything is looked for that could bear the job's name, and trouble with one thing does not
//! keep the others.

use crate::dir::{Dir, DirError};
use crate::folder;
use crate::job::{Job, JobId};
use crate::node::{Run, alias_name, conf_name, new_conf_name};

/// Removes all files of a job. Tells whether there were any, or the first of the things that went wrong.
pub fn clear(run: &Run, job: &Job) -> Result<bool, DirError> {
    let mut cleared = Cleared::default();
    cleared.note(clear_limits(run, job));
    cleared.note(folder::remove(run, job.id));
    cleared.finish()
}

/// Removes the files that say what a job may take.
pub(crate) fn clear_limits(run: &Run, job: &Job) -> Result<bool, DirError> {
    let mut cleared = Cleared::default();
    // The second names first: without the conf their owner would be unknown.
    cleared.note(remove_aliases(&run.dir, job.id));
    if let Some(sluid) = &job.sluid {
        cleared.note(run.dir.remove(&alias_name(sluid)));
    }
    cleared.note(run.dir.remove(&conf_name(job.id)));
    cleared.note(run.dir.remove(&new_conf_name(job.id)));
    cleared.note(remove_confs_of_tasks(&run.dir, job.id));
    for kind in ["uid", "gpu"] {
        cleared.note(remove_markers(&run.dir, kind, &job.id.to_string()));
    }
    cleared.finish()
}

/// Removes `JOBID_TASKID.conf`, which the older SoftMig's prolog writes.
fn remove_confs_of_tasks(run: &Dir, id: JobId) -> Result<bool, DirError> {
    let start = format!("{id}_");
    let mut any = false;
    for name in run.names()? {
        let task = name
            .strip_prefix(&start)
            .and_then(|rest| rest.strip_suffix(".conf"));
        let is_number =
            |task: &str| !task.is_empty() && task.bytes().all(|byte| byte.is_ascii_digit());
        if task.is_some_and(is_number) {
            any |= run.remove(&name)?;
        }
    }
    Ok(any)
}

/// The result of several removals.
#[derive(Default)]
struct Cleared {
    any: bool,
    error: Option<DirError>,
}

impl Cleared {
    fn note(&mut self, removed: Result<bool, DirError>) {
        match removed {
            Ok(any) => self.any |= any,
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
    }

    fn finish(self) -> Result<bool, DirError> {
        match self.error {
            None => Ok(self.any),
            Some(error) => Err(error),
        }
    }
}

/// Removes the other names of the job's conf, complete or not.
fn remove_aliases(run: &Dir, id: JobId) -> Result<bool, DirError> {
    let mut any = false;
    for name in [conf_name(id), new_conf_name(id)] {
        let Some(conf) = run.stat_of(&name)? else {
            continue;
        };
        if conf.st_nlink < 2 {
            continue;
        }
        let ours = [conf_name(id), new_conf_name(id)];
        for other in run.names()? {
            if ours.contains(&other) || !other.ends_with(".conf") {
                continue;
            }
            let same = run
                .stat_of(&other)?
                .is_some_and(|stat| (stat.st_dev, stat.st_ino) == (conf.st_dev, conf.st_ino));
            if same {
                any |= run.remove(&other)?;
            }
        }
    }
    Ok(any)
}

/// Removes `uid/*/JOBID` or `gpu/*/JOBID`, whichever user or GPU it was, and the folder when that was the last.
fn remove_markers(run: &Dir, kind: &str, id: &str) -> Result<bool, DirError> {
    let Some(folder) = run.child(kind)? else {
        return Ok(false);
    };
    let mut cleared = Cleared::default();
    for name in folder.names()? {
        let removed = folder.child(&name).and_then(|marked| match marked {
            Some(marked) => marked.remove(id),
            None => Ok(false),
        });
        if matches!(removed, Ok(true)) {
            cleared.note(folder.remove_if_empty(&name).map(|()| true));
        }
        cleared.note(removed);
    }
    cleared.finish()
}
