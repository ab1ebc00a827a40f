//! How much room the logs of ended jobs take: the oldest go first.
//!
//! Each log has a second name in its user's folder, so that what one user has is found without opening a file.
//!
//! | path below `/var/log/softmig` | what |
//! |---|---|
//! | `JOBID.log` | a log |
//! | `uid/UID/JOBID.log` | the same file, counted for its user |

use softmig_node::dir::{Dir, DirError};
use softmig_node::job::{Job, JobId};
use std::collections::BTreeSet;

/// The most that the logs of one user take.
const OF_USER: u64 = 4 << 20;
/// The most that all logs take.
const OF_ALL: u64 = 64 << 20;
/// The least room of a file.
const BLOCK: u64 = 4 << 10;

const USERS: &str = "uid";

/// Names a job's new log in its user's folder, and removes the oldest logs that are too much.
pub(crate) fn keep_within(logs: &Dir, job: &Job, name: &str) -> Result<(), DirError> {
    // Not every file system has a second name for a file. All logs are bounded there too.
    let of_user = keep_within_users(logs, job, name);
    let too_old = too_old(logs, name, OF_ALL)?;
    for old in &too_old {
        logs.remove(old)?;
    }
    if let Some(users) = logs.child(USERS)?
        && !too_old.is_empty()
    {
        forget(&users)?;
    }
    of_user
}

fn keep_within_users(logs: &Dir, job: &Job, name: &str) -> Result<(), DirError> {
    let users = logs.make_child(USERS)?;
    let own = users.make_child(&job.uid.to_string())?;
    own.remove(name)?;
    logs.link_in(&own, name, name)?;

    for old in too_old(&own, name, OF_USER)? {
        // Its other name may be a newer log by now, of a job that got the same number.
        if is_same(&own, logs, &old)? {
            logs.remove(&old)?;
        }
        own.remove(&old)?;
    }
    Ok(())
}

/// The oldest logs in a folder, without which the others have room. The newest stays.
fn too_old(folder: &Dir, newest: &str, room: u64) -> Result<Vec<String>, DirError> {
    let mut logs = Vec::new();
    for name in folder.names()?.into_iter().filter(|name| is_log(name)) {
        if let Some(stat) = folder.stat_of(&name)? {
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            let size = size.next_multiple_of(BLOCK).max(BLOCK);
            logs.push(((stat.st_mtime, stat.st_mtime_nsec), name, size));
        }
    }
    logs.sort_unstable_by(|one, other| other.cmp(one));
    let mut taken = 0u64;
    let mut too_old = BTreeSet::new();
    for (_, name, size) in logs {
        taken = taken.saturating_add(size);
        if taken > room && name != newest {
            too_old.insert(name);
        }
    }
    Ok(too_old.into_iter().collect())
}

/// `7.log`, or `.7.log.new`, which an epilog that was killed leaves.
fn is_log(name: &str) -> bool {
    let half = name
        .strip_prefix('.')
        .and_then(|name| name.strip_suffix(".new"));
    let id = half.unwrap_or(name).strip_suffix(".log");
    id.is_some_and(|id| JobId::parse(id).is_some())
}

/// Whether a name is the same file in both folders.
fn is_same(one: &Dir, other: &Dir, name: &str) -> Result<bool, DirError> {
    let file = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    Ok(one.stat_of(name)?.map(file) == other.stat_of(name)?.map(file))
}

/// Removes the names of logs that are gone.
fn forget(users: &Dir) -> Result<(), DirError> {
    for user in users.names()? {
        let Some(own) = users.child(&user)? else {
            continue;
        };
        for name in own.names()? {
            let is_gone = own.stat_of(&name)?.is_some_and(|stat| stat.st_nlink < 2);
            if is_gone {
                own.remove(&name)?;
            }
        }
        users.remove_if_empty(&user)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, FileTimes};
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    const FULL: u64 = 64 << 10;

    fn folder() -> (tempfile::TempDir, Dir) {
        let folder = tempfile::tempdir().unwrap();
        let owner = rustix::process::getuid().as_raw();
        let logs = Dir::make(&folder.path().join("log"), owner).unwrap();
        (folder, logs)
    }

    fn job(id: u32, uid: u32) -> Job {
        let uid = uid.to_string();
        crate::example::job(&id.to_string(), &[("SLURM_JOB_UID", &uid)])
    }

    /// A log as an epilog leaves it, this number of minutes after the first one.
    fn ended(logs: &Dir, id: u32, uid: u32, size: u64, minutes: u64) {
        let name = format!("{id}.log");
        logs.remove(&name).unwrap();
        written(logs, &name, size, minutes);
        keep_within(logs, &job(id, uid), &name).unwrap();
    }

    fn written(logs: &Dir, name: &str, size: u64, minutes: u64) {
        let file = File::create_new(logs.path().join(name)).unwrap();
        file.set_len(size).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(60 * minutes);
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
    }

    fn numbers(folder: &Path) -> Vec<u32> {
        let mut numbers: Vec<u32> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|name| name.strip_suffix(".log")?.parse().ok())
            .collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn logs_of_one_user_stay_within_their_room() {
        let (_folder, logs) = folder();
        ended(&logs, 1, 2002, FULL, 0);
        for id in 100..300 {
            ended(&logs, id, 2001, FULL, id.into());
        }
        let expected: Vec<u32> = (236..300).collect();
        assert_eq!(numbers(&logs.path().join("uid/2001")), expected);
        // Another user's stays, although it is older.
        assert_eq!(numbers(logs.path()), [&[1], &expected[..]].concat());
        // Short ones take a block each.
        for id in 1000..2100 {
            ended(&logs, id, 2001, 1, id.into());
        }
        assert_eq!(numbers(&logs.path().join("uid/2001")).len(), 1024);
    }

    #[test]
    fn the_oldest_logs_go_first() {
        let (_folder, logs) = folder();
        // Not in the order of their numbers, and of more users than have room together.
        for at in 0..1100u32 {
            let id = 5000 - at;
            ended(&logs, id, 2001 + at % 40, FULL, at.into());
        }
        let expected: Vec<u32> = (5000 - 1099..=5000 - 1099 + 1023).collect();
        assert_eq!(numbers(logs.path()), expected);
        let mut of_users = Vec::new();
        for user in fs::read_dir(logs.path().join("uid")).unwrap() {
            of_users.extend(numbers(&user.unwrap().path()));
        }
        of_users.sort_unstable();
        assert_eq!(of_users, expected);
    }

    #[test]
    fn nothing_that_is_no_log_of_a_job_is_removed_or_counted() {
        let (_folder, logs) = folder();
        for name in [
            "node.log",
            "events.jsonl",
            "x7.log",
            "7.log.1",
            ".x.log.new",
        ] {
            written(&logs, name, 70 << 20, 0);
        }
        ended(&logs, 7, 2001, FULL, 1);
        ended(&logs, 8, 2001, FULL, 2);
        assert_eq!(logs.names().unwrap().len(), 5 + 2 + 1);
        // The rest of a killed epilog is counted.
        written(&logs, ".9.log.new", 64 << 20, 0);
        ended(&logs, 10, 2001, FULL, 3);
        assert_eq!(numbers(logs.path()), [7, 8, 10]);
        assert!(logs.stat_of(".9.log.new").unwrap().is_none());
    }

    #[test]
    fn a_reused_number_and_a_log_removed_by_hand_count_once() {
        let (_folder, logs) = folder();
        ended(&logs, 7, 2001, FULL, 0);
        ended(&logs, 7, 2002, FULL, 1);
        ended(&logs, 8, 2001, FULL, 2);
        logs.remove("8.log").unwrap();
        // The user's older names go, and another user's log of the same number stays.
        for id in 100..164 {
            ended(&logs, id, 2001, FULL, id.into());
        }
        let own = logs.path().join("uid/2001");
        assert_eq!(numbers(&own), (100..164).collect::<Vec<_>>());
        assert_eq!(numbers(logs.path()), [&[7], &numbers(&own)[..]].concat());
    }
}
