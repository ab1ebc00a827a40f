//! A job on its way into Slurm.

use crate::{fields, marks, slurm, store, submitter};
use mlua::prelude::*;
use softmig_policy::{
    Context, Policy, Refusal, Request, Submitter, Verdict, decide, decide_without_policy, now,
};
use std::sync::Arc;

/// Decides on a new job and writes the answer into it.
pub(crate) fn submit(
    lua: &Lua,
    job: &LuaTable,
    partitions: &LuaValue,
    uid: &LuaValue,
) -> LuaResult<i32> {
    let gpus = fields::read_gpus(job);
    let names_qos = fields::text(job, "qos").is_some_and(|qos| !qos.is_empty());
    if gpus == Request::default() && !names_qos {
        marks::strip(job)?;
        return Ok(slurm::SUCCESS);
    }
    let request = fields::read_rest(job, gpus);
    let policy = policy(lua);
    let context = Context {
        submitter: policy.as_deref().map_or_else(Submitter::default, |policy| {
            submitter::of_submission(policy, job, partitions)
        }),
        now: now(),
        ..Context::default()
    };
    let verdict = answer(policy.as_deref(), &request, &context);
    let line = match &verdict {
        Verdict::Unchanged { gpus: false, .. } => None,
        Verdict::Unchanged { gpus: true, .. } => Some("whole GPUs: unchanged".to_string()),
        Verdict::Granted(grant) => {
            fields::write(job, &request, &grant.request)?;
            Some(granted_line(&verdict))
        }
        Verdict::Refused(refusal) => return Ok(refuse(lua, "job_submit", uid, refusal)),
    };
    if let Some(terms) = verdict.terms() {
        fields::write_terms(job, terms)?;
        if let Some(nodes) = &terms.off_nodes {
            fields::keep_off(job, nodes)?;
        }
        if let Some(notice) = &terms.notice {
            slurm::log_user(lua, notice);
        }
    }
    let choice = policy
        .as_deref()
        .map_or_else(Default::default, |policy| policy.tag_field);
    match verdict.tag() {
        Some(tag) => marks::put(job, marks::field(lua, choice), tag)?,
        None => marks::strip(job)?,
    }
    if let Some(line) = line {
        slurm::log_info(
            lua,
            &format!("softmig: job_submit: uid={}: {line}", id(uid)),
        );
    }
    Ok(slurm::SUCCESS)
}

/// The policy in force; logs when it changes, and when it is not the one in the file.
pub(crate) fn policy(lua: &Lua) -> Option<Arc<Policy>> {
    let in_force = store::policy();
    if let Some(news) = in_force.news {
        slurm::log_info(lua, &news);
    }
    if let Some(complaint) = in_force.complaint {
        slurm::log_error(lua, &complaint);
    }
    in_force.policy
}

/// Decides by the policy, if there is one.
pub(crate) fn answer(policy: Option<&Policy>, request: &Request, context: &Context) -> Verdict {
    match policy {
        Some(policy) => decide(policy, request, context),
        None => decide_without_policy(request),
    }
}

/// What the log says of a granted slice.
pub(crate) fn granted_line(verdict: &Verdict) -> String {
    let Verdict::Granted(grant) = verdict else {
        return String::new();
    };
    format!(
        "{}: granted as {}: {} MiB, {} % of the time, {}",
        grant.asked,
        grant.request.tres_per_node.as_deref().unwrap_or_default(),
        grant.limits.memory_mib(),
        grant.limits.percent(),
        grant.limits.mode().as_str()
    )
}

/// Tells the user and the log, and gives Slurm the code to refuse with.
pub(crate) fn refuse(lua: &Lua, call: &str, uid: &LuaValue, refusal: &Refusal) -> i32 {
    slurm::log_user(lua, &refusal.to_string());
    slurm::log_info(
        lua,
        &format!(
            "softmig: {call}: uid={}: refused: {} [{}]",
            id(uid),
            refusal.message,
            refusal.code.as_str()
        ),
    );
    // Before 23.02 the code's own text is all that scontrol shows of a refused change.
    match refusal.is_about_people() {
        true => slurm::ACCESS_DENIED,
        false => slurm::INVALID_GRES,
    }
}

/// A user's number for the log.
pub(crate) fn id(uid: &LuaValue) -> String {
    fields::id_of(uid).map_or_else(|| "unknown".to_string(), |uid| uid.to_string())
}
