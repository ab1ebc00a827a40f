//! A job on its way into Slurm.

use crate::job_description::{self, JobDescription};
use crate::marks::{self, Field};
use crate::slurm::{self, Slurm};
use crate::{store, submitter};
use mlua::prelude::*;
use softmig_policy::{
    Context, Policy, Refusal, Request, Submitter, Terms, Verdict, decide, decide_typed,
    decide_without_policy, now,
};
use std::sync::Arc;

/// Decides on a new job and writes the answer into it.
pub(crate) fn submit(
    slurm: &Slurm,
    table: &LuaTable,
    partitions: &LuaValue,
    uid: &LuaValue,
) -> LuaResult<i32> {
    let mut came = JobDescription::default().read_gpus(slurm, table)?;
    let names_qos = came.qos.as_deref().is_some_and(|qos| !qos.is_empty());
    if !names_qos && came.request() == Request::default() {
        let mut job = came.clone();
        marks::strip(&mut job);
        job.write(slurm, table, &came)?;
        return Ok(slurm::SUCCESS);
    }
    came = came.read_request(slurm, table)?;
    let policy = policy(slurm);
    let policy = policy.as_deref();
    let submitter = match policy.filter(|policy| policy.looks_at_people()) {
        Some(policy) => {
            came = came.read_place(slurm, table)?;
            submitter::of_submission(policy, &came, table, partitions)
        }
        None => Submitter::default(),
    };
    let context = Context {
        submitter,
        now: now(),
        ..Context::default()
    };
    let request = came.request();
    let verdict = match (policy, marks::typed(&came)) {
        (Some(policy), Some(typed)) => decide_typed(policy, &request, typed, &context),
        _ => answer(policy, &request, &context),
    };
    let mut job = came.clone();
    let line = match &verdict {
        Verdict::Unchanged { tag, .. } => tag.map(|_| "whole GPUs: unchanged".to_string()),
        Verdict::Granted(grant) => {
            job.take(&request, &grant.request);
            Some(granted_line(&verdict))
        }
        Verdict::Refused(refusal) => return Ok(refuse(slurm, "job_submit", uid, refusal)),
    };
    if let Some(terms) = verdict.terms() {
        take_terms(&mut job, terms);
        if let Some(nodes) = &terms.off_nodes {
            job.keep_off(nodes);
        }
    }
    match verdict.tag() {
        Some(tag) => {
            let choice = policy.map_or_else(Default::default, |policy| policy.node().tag_field);
            marks::put(&mut job, Field::chosen(slurm, choice), tag);
        }
        None => marks::strip(&mut job),
    }
    job.write(slurm, table, &came)?;
    if let Some(notice) = verdict.terms().and_then(|terms| terms.notice.as_deref()) {
        slurm.log_user(notice);
    }
    if let Some(line) = line {
        slurm.log_info(&format!("softmig: job_submit: uid={}: {line}", id(uid)));
    }
    Ok(slurm::SUCCESS)
}

/// The QOS and the partition that the job is to have.
pub(crate) fn take_terms(job: &mut JobDescription, terms: &Terms) {
    for (field, text) in [
        (&mut job.qos, &terms.qos),
        (&mut job.partition, &terms.partition),
    ] {
        if text.is_some() {
            field.clone_from(text);
        }
    }
}

/// The policy in force; logs when it changes, and when it is not the one in the file.
pub(crate) fn policy(slurm: &Slurm) -> Option<Arc<Policy>> {
    let in_force = store::policy();
    if let Some(news) = in_force.news {
        slurm.log_info(&news);
    }
    if let Some(complaint) = in_force.complaint {
        slurm.log_error(&complaint);
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

/// The log's line about a granted slice.
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
        grant.limits.mode()
    )
}

/// Tells the user and the log, and gives Slurm the code to refuse with.
pub(crate) fn refuse(slurm: &Slurm, call: &str, uid: &LuaValue, refusal: &Refusal) -> i32 {
    slurm.log_user(&refusal.to_string());
    slurm.log_info(&format!(
        "softmig: {call}: uid={}: refused: {} [{}]",
        id(uid),
        refusal.message(),
        refusal.code().as_str()
    ));
    // Before 23.02 the code's own text is all that scontrol shows of a refused change.
    match refusal.is_about_people() {
        true => slurm::ACCESS_DENIED,
        false => slurm::INVALID_GRES,
    }
}

/// A user's number for the log.
pub(crate) fn id(uid: &LuaValue) -> String {
    job_description::id(uid).map_or_else(|| "unknown".to_string(), |uid| uid.to_string())
}
