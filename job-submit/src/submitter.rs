//! The submitter of a job, and the place where the job will run, as slurmctld knows them.

use crate::job_description::JobDescription;
use mlua::prelude::*;
use softmig_policy::{MaybeKnown, Policy, Submitter};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Names by number. Slurm looks a name up with the system's name service, which may be slow.
static NAMES: Mutex<Option<HashMap<u32, Name>>> = Mutex::new(None);

/// A user's name, and when it was looked up.
struct Name {
    name: String,
    since: Instant,
}

/// How long a name is used: a number may be given to another user.
const BELIEVED: Duration = Duration::from_secs(3600);

/// The submitter of `job`. Reads from its `table` only the fields that cost slurmctld time.
pub(crate) fn of_submission(
    policy: &Policy,
    job: &JobDescription,
    table: &LuaTable,
    partitions: &LuaValue,
) -> Submitter {
    let costly = |name| {
        let text = table.get::<Option<LuaString>>(name).ok().flatten();
        text.filter(|text| !text.as_bytes().is_empty())
    };
    let default_account = || costly("default_account").map(|name| name.to_string_lossy());
    let named = set(&job.partition);
    let without_gpus = job.asked.exclusive && without_gpus(policy, named.as_deref(), partitions);
    let typed = set(&job.account);
    let is_unchecked = |typed: &String| default_account().as_ref() != Some(typed);
    Submitter {
        user: user(policy, job.user_id, job, table),
        group: job.group_id,
        is_account_unchecked: policy.limit_notice && typed.as_ref().is_some_and(is_unchecked),
        account: MaybeKnown::known(typed.or_else(default_account)),
        named_partition: named.is_some(),
        partition: MaybeKnown::known(named.or_else(|| default_partition(policy, partitions))),
        reservation: set(&job.reservation),
        qos: set(&job.qos),
        qos_now: None,
        time_limit: job.time_limit,
        batch: costly("script").is_some(),
        without_gpus,
        is_exempt: false,
    }
}

/// True if the partitions have no GPUs; false where that is not known.
fn without_gpus(policy: &Policy, named: Option<&str>, partitions: &LuaValue) -> bool {
    let Some(table) = partitions.as_table() else {
        return false;
    };
    let default;
    let names = match named {
        Some(names) => names,
        None => {
            default = name_of_default(table);
            default.as_deref().unwrap_or_default()
        }
    };
    policy.are_without_gpus(names, |name| {
        let partition = table.get::<LuaTable>(name).ok()?;
        partition.get::<Option<String>>("nodes").ok()?
    })
}

/// The submitter and the place of a job after a change. `table` is that of the change; `had_gpus` is true if the job asked
/// for GPUs before.
pub(crate) fn of_change(
    policy: &Policy,
    change: &JobDescription,
    table: &LuaTable,
    record: &JobDescription,
    uid: Option<u32>,
    had_gpus: bool,
    partitions: &LuaValue,
) -> Submitter {
    // An empty text in a change clears the field.
    let after =
        |new: &Option<String>, old: &Option<String>| set(if new.is_some() { new } else { old });
    let owner = record.user_id;
    let partition = after(&change.partition, &record.partition);
    Submitter {
        // The record has no name; a user's own change has it.
        user: user(policy, owner, change, table),
        group: record.group_id,
        is_account_unchecked: set(&change.account).is_some(),
        account: MaybeKnown::known(after(&change.account, &record.account)),
        without_gpus: partition
            .as_deref()
            .is_some_and(|names| without_gpus(policy, Some(names), partitions)),
        partition: MaybeKnown::known(partition),
        named_partition: true,
        // The record of some releases shows a list as one name. Each name of the list was checked when the job came.
        reservation: after(&change.reservation, &record.reservation),
        qos: set(&change.qos),
        // The record shows one QOS of a list, and a job without GPUs may have any list.
        qos_now: set(&record.qos).filter(|_| had_gpus && change.qos.is_none()),
        time_limit: change.time_limit,
        batch: false,
        // Besides the owner, Slurm lets only administrators and coordinators of the account change a job.
        is_exempt: matches!((uid, owner), (Some(uid), Some(owner)) if uid != owner),
    }
}

/// A text that is not empty.
fn set(text: &Option<String>) -> Option<String> {
    text.clone().filter(|text| !text.is_empty())
}

/// The name of user number `uid`, read from `table` if `job` is that user's.
fn user(
    policy: &Policy,
    uid: Option<u32>,
    job: &JobDescription,
    table: &LuaTable,
) -> Option<String> {
    let uid = uid.filter(|_| policy.names_users())?;
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    if let Some(known) = names
        .get(&uid)
        .filter(|known| known.since.elapsed() < BELIEVED)
    {
        return Some(known.name.clone());
    }
    if job.user_id != Some(uid) {
        return None;
    }
    let name = table.get::<Option<LuaString>>("user_name").ok().flatten()?;
    let name = name.to_string_lossy();
    if name.is_empty() {
        return None;
    }
    let since = Instant::now();
    names.insert(
        uid,
        Name {
            name: name.clone(),
            since,
        },
    );
    Some(name)
}

/// The default partition, which Slurm sets later. Only gates need it.
fn default_partition(policy: &Policy, partitions: &LuaValue) -> Option<String> {
    let partitions = partitions.as_table();
    name_of_default(partitions.filter(|_| policy.names_partitions())?)
}

fn name_of_default(partitions: &LuaTable) -> Option<String> {
    partitions
        .pairs::<String, LuaTable>()
        .filter_map(Result::ok)
        .find(|(_, partition)| {
            let is_default = partition.get::<Option<f64>>("flag_default");
            is_default.is_ok_and(|flag| flag == Some(1.0))
        })
        .map(|(name, _)| name)
}
