//! A job on its way into Slurm.

use crate::{fields, marks, slurm, store};
use mlua::prelude::*;
use softmig_policy::gres::Prefix;
use softmig_policy::{Context, Policy, Refusal, Request, Verdict, decide, decide_without_policy};
use std::sync::Arc;

/// Decides on a new job and writes the answer into it.
pub(crate) fn submit(lua: &Lua, job: &LuaTable, uid: &LuaValue) -> LuaResult<i32> {
    let gpus = fields::read_gpus(job);
    if gpus == Request::default() {
        marks::strip(job)?;
        return Ok(slurm::SUCCESS);
    }
    let request = fields::read_rest(job, gpus);
    let (policy, verdict) = answer(lua, &request, None);
    let line = match &verdict {
        Verdict::Unchanged { gpus: false, .. } => None,
        Verdict::Unchanged { gpus: true, .. } => Some("whole GPUs: unchanged".to_string()),
        Verdict::Granted(grant) => {
            fields::write(job, &request, &grant.request)?;
            Some(granted_line(&verdict))
        }
        Verdict::Refused(refusal) => return Ok(refuse(lua, "job_submit", uid, refusal)),
    };
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

/// Decides by the policy in force, and logs when that is not the one in the file. `prefix` is how this Slurm is known to
/// mark a GRES; it is never learned from what users write.
pub(crate) fn answer(
    lua: &Lua,
    request: &Request,
    prefix: Option<Prefix>,
) -> (Option<Arc<Policy>>, Verdict) {
    let (policy, complaint) = store::policy();
    if let Some(complaint) = complaint {
        slurm::log_error(lua, &complaint);
    }
    let context = Context {
        prefix,
        ..Context::default()
    };
    let verdict = match &policy {
        Some(policy) => decide(policy, request, &context),
        None => decide_without_policy(request),
    };
    (policy, verdict)
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
    slurm::INVALID_GRES
}

/// A number as a number, also where Lua made a float of it.
pub(crate) fn id(uid: &LuaValue) -> String {
    match uid {
        LuaValue::Integer(uid) => uid.to_string(),
        LuaValue::Number(uid) => format!("{uid:.0}"),
        _ => "unknown".to_string(),
    }
}
