//! Who asks for a job, and where it is to run, as slurmctld knows it.

use crate::fields;
use mlua::prelude::*;
use softmig_policy::{Asker, Fact, Policy};
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
pub(crate) fn of_submission(policy: &Policy, job: &LuaTable, partitions: &LuaValue) -> Asker {
    if !policy.looks_at_people() {
        return Asker::default();
    }
    let field = |name| fields::text(job, name).filter(|text| !text.is_empty());
    let named = field("partition");
    Asker {
        user: user(policy, job),
        group: fields::id(job, "group_id"),
        account: Fact::known(field("account").or_else(|| field("default_account"))),
        named_partition: named.is_some(),
        partition: Fact::known(named.or_else(|| default_partition(policy, partitions))),
        reservation: field("reservation"),
        qos: field("qos"),
        qos_now: None,
        time_limit: fields::number(job, "time_limit"),
        batch: field("script").is_some(),
        is_exempt: false,
    }
}

/// Who the job will be of, and where it will run, once `change` is made to `record`.
pub(crate) fn of_change(
    policy: &Policy,
    change: &LuaTable,
    record: &LuaTable,
    uid: Option<u32>,
) -> Asker {
    if !policy.looks_at_people() {
        return Asker::default();
    }
    let recorded = |name| fields::text(record, name).filter(|text| !text.is_empty());
    // An empty text in a change takes away what is there.
    let after = |name: &str, old: Option<String>| match fields::text(change, name) {
        Some(new) => Some(new).filter(|new| !new.is_empty()),
        None => old,
    };
    Asker {
        user: user(policy, record),
        group: fields::id(record, "group_id"),
        account: Fact::known(after("account", recorded("account"))),
        partition: Fact::known(after("partition", recorded("partition"))),
        named_partition: true,
        reservation: after(
            "reservation",
            recorded("resv_name").or_else(|| recorded("reservation")),
        ),
        qos: after("qos", None),
        qos_now: recorded("qos"),
        time_limit: fields::number(change, "time_limit")
            .or_else(|| fields::number(record, "time_limit")),
        batch: false,
        is_exempt: uid == Some(0),
    }
}

fn user(policy: &Policy, job: &LuaTable) -> Option<String> {
    if !policy.names_users() {
        return None;
    }
    let uid = fields::id(job, "user_id")?;
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    if let Some(known) = names
        .get(&uid)
        .filter(|known| known.since.elapsed() < BELIEVED)
    {
        return Some(known.name.clone());
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
    let is_wanted = policy
        .gates()
        .iter()
        .any(|gate| !gate.partitions().is_empty());
    let partitions = partitions.as_table().filter(|_| is_wanted)?;
    partitions
        .pairs::<String, LuaTable>()
        .filter_map(Result::ok)
        .find(|(_, partition)| {
            let is_default = partition.get::<Option<f64>>("flag_default");
            is_default.is_ok_and(|flag| flag == Some(1.0))
        })
        .map(|(name, _)| name)
}
