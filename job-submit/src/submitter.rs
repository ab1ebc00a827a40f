//! Who asks for a job, and where it is to run, as slurmctld knows it.

use crate::fields;
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

/// How long a name is believed: a number may become somebody else's.
const BELIEVED: Duration = Duration::from_secs(3600);

/// Who submits `job`.
pub(crate) fn of_submission(policy: &Policy, job: &LuaTable, partitions: &LuaValue) -> Submitter {
    if !policy.looks_at_people() {
        return Submitter::default();
    }
    let field = |name| fields::text(job, name).filter(|text| !text.is_empty());
    let named = field("partition");
    Submitter {
        user: user(policy, fields::id(job, "user_id"), job),
        group: fields::id(job, "group_id"),
        account: MaybeKnown::known(field("account").or_else(|| field("default_account"))),
        named_partition: named.is_some(),
        partition: MaybeKnown::known(named.or_else(|| default_partition(policy, partitions))),
        reservation: field("reservation"),
        qos: field("qos"),
        qos_now: None,
        time_limit: fields::time_limit(job),
        batch: field("script").is_some(),
        is_exempt: false,
    }
}

/// Who the job will be of, and where it will run, once `change` is made to `record`. `had_gpus` is whether it asked for GPUs
/// before.
pub(crate) fn of_change(
    policy: &Policy,
    change: &LuaTable,
    record: &LuaTable,
    uid: Option<u32>,
    had_gpus: bool,
) -> Submitter {
    if !policy.looks_at_people() {
        return Submitter::default();
    }
    let recorded = |name| fields::text(record, name).filter(|text| !text.is_empty());
    // An empty text in a change takes away what is there.
    let after = |name: &str, old: Option<String>| match fields::text(change, name) {
        Some(new) => Some(new).filter(|new| !new.is_empty()),
        None => old,
    };
    let names_qos = fields::text(change, "qos").is_some();
    let owner = fields::id(record, "user_id");
    Submitter {
        // The record has no name; a user's own change has his.
        user: user(policy, owner, change),
        group: fields::id(record, "group_id"),
        account: MaybeKnown::known(after("account", recorded("account"))),
        partition: MaybeKnown::known(after("partition", recorded("partition"))),
        named_partition: true,
        // A list is one name in the record of some releases, and each of its names was looked at when it came.
        reservation: after("reservation", recorded("resv_name")),
        qos: after("qos", None),
        // The record shows one QOS of a list, and a job without GPUs may have any list.
        qos_now: recorded("qos").filter(|_| had_gpus && !names_qos),
        time_limit: fields::time_limit(change),
        batch: false,
        // Slurm lets nobody else change it but administrators, and the accounts' coordinators.
        is_exempt: matches!((uid, owner), (Some(uid), Some(owner)) if uid != owner),
    }
}

/// The name of user number `uid`, who may be the one that `job` is about.
fn user(policy: &Policy, uid: Option<u32>, job: &LuaTable) -> Option<String> {
    let uid = uid.filter(|_| policy.names_users())?;
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    if let Some(known) = names
        .get(&uid)
        .filter(|known| known.since.elapsed() < BELIEVED)
    {
        return Some(known.name.clone());
    }
    if fields::id(job, "user_id") != Some(uid) {
        return None;
    }
    let name = fields::text(job, "user_name").filter(|name| !name.is_empty())?;
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

/// Slurm fills it in later; only a gate wants to know it.
fn default_partition(policy: &Policy, partitions: &LuaValue) -> Option<String> {
    let partitions = partitions
        .as_table()
        .filter(|_| policy.names_partitions())?;
    partitions
        .pairs::<String, LuaTable>()
        .filter_map(Result::ok)
        .find(|(_, partition)| {
            let is_default = partition.get::<Option<f64>>("flag_default");
            is_default.is_ok_and(|flag| flag == Some(1.0))
        })
        .map(|(name, _)| name)
}
