//! A change to a job that Slurm already has: `scontrol update`, hold, release, requeue.

use crate::submit::{answer, granted_line, id, policy, refuse};
use crate::{fields, marks, slurm, submitter};
use mlua::prelude::*;
use softmig_policy::node::tag::{self, Tag};
use softmig_policy::{Context, Policy, Refusal, Request, Submitter, Verdict, now};

/// Decides on the job as it would be after the change.
pub(crate) fn modify(
    lua: &Lua,
    change: &LuaTable,
    record: &LuaTable,
    uid: &LuaValue,
) -> LuaResult<i32> {
    let policy = policy(lua);
    let policy = policy.as_deref();
    if edits_tag(change, record) {
        let mut refusal = Refusal::tag_edit();
        if let Some(policy) = policy {
            refusal = refusal.at(policy);
        }
        refuse(lua, "job_modify", uid, &refusal);
        return Ok(slurm::ACCESS_DENIED);
    }
    let changed = fields::read(change);
    let names = |names: &[&str]| {
        names
            .iter()
            .any(|name| fields::text(change, name).is_some())
    };
    let names_gpus = names(&[
        "tres_per_node",
        "tres_per_job",
        "tres_per_socket",
        "tres_per_task",
    ]);
    let raises_time = fields::time_limit(change)
        .is_some_and(|new| fields::time_limit(record).is_none_or(|old| new > old));
    let moves = raises_time
        || names(&["account", "partition", "qos", "reservation", "exc_nodes"])
        || policy.is_some_and(|policy| asks_for_kept(policy, record));
    if !names_gpus && !moves && changed == Request::default() {
        // Nothing about the GPUs changes; only the user's words around the tag may.
        return keep_tag(change, record, current_tag(record));
    }
    let tag = current_tag(record);
    let mut after = applied(change, &changed, record);
    // What gives a job GPUs without naming them is not in its record, but in its tag.
    after.exclusive |= matches!(tag, Some(Tag::Whole | Tag::Ask)) && !after.names_tres();
    let context = Context {
        prefix: fields::read_gpus(record).prefix(),
        submitter: policy.map_or_else(Submitter::default, |policy| {
            submitter::of_change(policy, change, record, fields::id_of(uid), tag.is_some())
        }),
        now: now(),
        is_change: true,
    };
    let verdict = answer(policy, &after, &context);
    match &verdict {
        // What the job asks for was granted once; by whatever policy, that is not at issue now.
        Verdict::Refused(refusal)
            if changed == Request::default() && !refusal.is_about_people() => {}
        Verdict::Refused(refusal) => return Ok(refuse(lua, "job_modify", uid, refusal)),
        Verdict::Granted(grant) if names_gpus => {
            write_change(change, &grant.request, &after)?;
            let line = granted_line(&verdict);
            slurm::log_info(
                lua,
                &format!("softmig: job_modify: uid={}: {line}", id(uid)),
            );
        }
        // However many nodes the change allows, a slice stays on one.
        Verdict::Granted(_) if changed.min_nodes.is_some() || changed.max_nodes.is_some() => {
            change.set("min_nodes", 1)?;
            change.set("max_nodes", 1)?;
        }
        Verdict::Granted(_) | Verdict::Unchanged { .. } => {}
    }
    if let Some(terms) = verdict.terms() {
        fields::write_terms(change, terms)?;
        // In the record they are excluded already, unless the change names others.
        if let (Some(nodes), Some(_)) = (&terms.off_nodes, fields::text(change, "exc_nodes")) {
            fields::keep_off(change, nodes)?;
        }
    }
    if names_gpus && verdict.tag() != tag {
        return have_prolog_ask(lua, policy, change, record);
    }
    keep_tag(change, record, tag)
}

/// Whether the job is for a GPU that is kept for somebody: its time may be over, and any change, also its release, is an
/// occasion to look.
fn asks_for_kept(policy: &Policy, record: &LuaTable) -> bool {
    !policy.reservables().is_empty() && policy.asks_for_kept(&fields::read_gpus(record))
}

/// Whether the change writes a tag that is not the job's own.
fn edits_tag(change: &LuaTable, record: &LuaTable) -> bool {
    marks::FIELDS.into_iter().any(|name| {
        let Some(text) = fields::text(change, name) else {
            return false;
        };
        let old = fields::text(record, name).unwrap_or_default();
        let own: Vec<&str> = tag::tokens(&old).collect();
        let new: Vec<&str> = tag::tokens(&text).collect();
        // Slurm hands the same change over again for each task of an array, with what was written into it for the
        // task before. That grants nothing.
        let ask = Tag::Ask.to_string();
        !new.is_empty() && new != own && new != [ask.as_str()]
    })
}

/// The job's tag, in whichever field it stands.
fn current_tag(record: &LuaTable) -> Option<Tag> {
    marks::FIELDS
        .into_iter()
        .filter_map(|name| fields::text(record, name))
        .find_map(|text| Tag::find(&text)?.ok())
}

/// Puts the tag back among the user's new words.
fn keep_tag(change: &LuaTable, record: &LuaTable, tag: Option<Tag>) -> LuaResult<i32> {
    for name in marks::FIELDS {
        let stood_here = fields::text(record, name).is_some_and(|text| marks::is_marked(&text));
        if let (Some(tag), true, Some(text)) = (tag, stood_here, fields::text(change, name)) {
            change.set(name, tag.put(&text))?;
        }
    }
    Ok(slurm::SUCCESS)
}

/// Has the prolog ask slurmctld what the job got; why no limits are written here, [`Tag::Ask`] says.
fn have_prolog_ask(
    lua: &Lua,
    policy: Option<&Policy>,
    change: &LuaTable,
    record: &LuaTable,
) -> LuaResult<i32> {
    let old = |name| fields::text(record, name).unwrap_or_default();
    let choice = policy.map_or_else(Default::default, |policy| policy.tag_field);
    let field = marks::FIELDS
        .into_iter()
        .find(|name| marks::is_marked(&old(name)))
        .unwrap_or_else(|| marks::field(lua, choice));
    let words = fields::text(change, field).unwrap_or_else(|| old(field));
    change.set(field, Tag::Ask.put(&words))?;
    Ok(slurm::SUCCESS)
}

/// The job's request once the change is applied.
fn applied(change: &LuaTable, changed: &Request, record: &LuaTable) -> Request {
    let recorded = fields::read(record);
    // An empty text takes a request away, so it is not the same as none.
    let field =
        |name: &str, new: &Option<String>, old: Option<String>| match fields::text(change, name) {
            Some(_) => new.clone(),
            None => old,
        };
    Request {
        tres_per_node: field(
            "tres_per_node",
            &changed.tres_per_node,
            recorded.tres_per_node,
        ),
        tres_per_job: field("tres_per_job", &changed.tres_per_job, recorded.tres_per_job),
        tres_per_socket: field(
            "tres_per_socket",
            &changed.tres_per_socket,
            recorded.tres_per_socket,
        ),
        tres_per_task: field(
            "tres_per_task",
            &changed.tres_per_task,
            recorded.tres_per_task,
        ),
        min_nodes: changed.min_nodes.or(recorded.min_nodes),
        max_nodes: changed.max_nodes.or(recorded.max_nodes),
        min_cpus: changed.min_cpus.or(recorded.min_cpus),
        min_cpus_per_node: changed.min_cpus_per_node.or(recorded.min_cpus_per_node),
        memory_per_node: match changed.memory_per_cpu {
            Some(_) => None,
            None => changed.memory_per_node.or(recorded.memory_per_node),
        },
        memory_per_cpu: match changed.memory_per_node {
            Some(_) => None,
            None => changed.memory_per_cpu.or(recorded.memory_per_cpu),
        },
        ..changed.clone()
    }
}

/// Writes the decided request into the change; fields that neither touches stay unset, so that Slurm leaves them.
fn write_change(change: &LuaTable, decided: &Request, after: &Request) -> LuaResult<()> {
    fields::write(change, after, decided)?;
    // The slice itself is always part of the change: it may have been asked for in another field.
    change.set(
        "tres_per_node",
        decided.tres_per_node.as_deref().unwrap_or(""),
    )
}
