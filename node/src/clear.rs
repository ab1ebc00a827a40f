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
    all([clear_limits(run, job), folder::remove(run, job.id)])
}

/// Removes the files that say what a job may take.
pub(crate) fn clear_limits(run: &Run, job: &Job) -> Result<bool, DirError> {
    let run = &run.dir;
    let sluid = job.sluid.as_ref();
    // The second names first: without the conf their owner would be unknown.
    all([
        remove_aliases(run, job.id),
        sluid.map_or(Ok(false), |sluid| run.remove(&alias_name(sluid))),
        run.remove(&conf_name(job.id)),
        run.remove(&new_conf_name(job.id)),
        remove_confs_of_tasks(run, job.id),
        remove_markers(run, "uid", job.id),
        remove_markers(run, "gpu", job.id),
    ])
}

/// Whether any of these removed something. All are tried, also when one goes wrong.
fn all(removed: impl IntoIterator<Item = Result<bool, DirError>>) -> Result<bool, DirError> {
    let mut all = Ok(false);
    for one in removed {
        all = match (all, one) {
            (Ok(any), Ok(one)) => Ok(any | one),
            (Err(first), _) | (Ok(_), Err(first)) => Err(first),
        };
    }
    all
}

/// Removes `JOBID_TASKID.conf`, which the older SoftMig's prolog writes.
fn remove_confs_of_tasks(run: &Dir, id: JobId) -> Result<bool, DirError> {
    let start = format!("{id}_");
    let is_of_task = |name: &String| {
        let task = name
            .strip_prefix(&start)
            .and_then(|rest| rest.strip_suffix(".conf"));
        task.is_some_and(|task| !task.is_empty() && task.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let names = run.names()?;
    all(names
        .iter()
        .filter(|name| is_of_task(name))
        .map(|name| run.remove(name)))
}

/// Removes the other names of the job's conf, complete or not.
fn remove_aliases(run: &Dir, id: JobId) -> Result<bool, DirError> {
    let file = |name: &str| -> Result<Option<(u64, u64, bool)>, DirError> {
        let stat = run.stat_of(name)?;
        Ok(stat.map(|stat| (stat.st_dev, stat.st_ino, stat.st_nlink > 1)))
    };
    let own = [conf_name(id), new_conf_name(id)];
    let mut any = false;
    for name in &own {
        let Some(conf @ (.., true)) = file(name)? else {
            continue;
        };
        for other in run.names()? {
            let may_be = !own.contains(&other) && other.ends_with(".conf");
            any |= may_be && file(&other)? == Some(conf) && run.remove(&other)?;
        }
    }
    Ok(any)
}

/// Removes `uid/*/JOBID` or `gpu/*/JOBID`, whichever user or GPU it was, and the folder when that was the last.
fn remove_markers(run: &Dir, kind: &str, id: JobId) -> Result<bool, DirError> {
    let Some(folder) = run.child(kind)? else {
        return Ok(false);
    };
    let names = folder.names()?;
    all(names.iter().map(|name| {
        let marked = folder.child(name)?;
        let removed = marked.map_or(Ok(false), |marked| marked.remove(&id.to_string()))?;
        if removed {
            folder.remove_if_empty(name)?;
        }
        Ok(removed)
    }))
}
