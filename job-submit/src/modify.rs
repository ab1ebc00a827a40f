//! A change to a job that Slurm already has: `scontrol update`, hold, release, requeue.

use crate::job_description::{self, JobDescription};
use crate::marks::{self, Field};
use crate::slurm::{self, Slurm};
use crate::submit::{answer, granted_line, id, policy, refuse, take_terms};
use crate::submitter;
use mlua::prelude::*;
use softmig_policy::node::tag::{self, Tag};
use softmig_policy::{Context, Policy, Refusal, Request, Submitter, Verdict, now};

/// Decides on the job as it would be after the change.
pub(crate) fn modify(
    slurm: &Slurm,
    change_table: &LuaTable,
    record_table: &LuaTable,
    partitions: &LuaValue,
    uid: &LuaValue,
) -> LuaResult<i32> {
    let policy = policy(slurm);
    let policy = policy.as_deref();
    let came = JobDescription::default()
        .read_gpus(slurm, change_table)?
        .read_request(slurm, change_table)?
        .read_place(slurm, change_table)?;
    let record = JobDescription::default().read_record(slurm, record_table)?;
    if edits_tag(&came, &record) {
        let mut refusal = Refusal::tag_edit();
        if let Some(policy) = policy {
            refusal = refusal.at(policy);
        }
        refuse(slurm, "job_modify", uid, &refusal);
        return Ok(slurm::ACCESS_DENIED);
    }
    let tag = current_tag(&record);
    let mut change = came.clone();
    let mut granted = None;
    let mut tag_changes = false;
    if came.names_gpus()
        || came.request() != Request::default()
        || moves(&came, &record)
        || asks_for_reserved(slurm, policy, record_table)?
    {
        let recorded = JobDescription::default()
            .read_gpus(slurm, record_table)?
            .read_request(slurm, record_table)?
            .request();
        let context = Context {
            prefix: recorded.prefix(),
            submitter: match policy.filter(|policy| policy.looks_at_people()) {
                Some(policy) => {
                    let uid = job_description::id(uid);
                    let had_gpus = tag.is_some();
                    submitter::of_change(
                        policy,
                        &came,
                        change_table,
                        &record,
                        uid,
                        had_gpus,
                        partitions,
                    )
                }
                None => Submitter::default(),
            },
            now: now(),
            is_change: true,
        };
        let mut after = applied(&came, recorded);
        // The record does not show an option that gives a job GPUs without naming them; the tag does.
        let may_be_whole = matches!(tag, Some(Tag::Whole | Tag::Mixed | Tag::Ask));
        after.exclusive |= may_be_whole && !after.names_gpus();
        let verdict = answer(policy, &after, &context);
        match &verdict {
            // An earlier decision granted this request, and the change does not touch it.
            Verdict::Refused(refusal)
                if came.request() == Request::default() && !refusal.is_about_people() => {}
            Verdict::Refused(refusal) => return Ok(refuse(slurm, "job_modify", uid, refusal)),
            Verdict::Granted(_) | Verdict::Unchanged { .. } => {}
        }
        carry_out(&mut change, &came, &after, &verdict);
        granted = matches!(verdict, Verdict::Granted(_)).then(|| granted_line(&verdict));
        tag_changes = verdict.tag() != tag;
    }
    if came.names_gpus() && tag_changes {
        have_prolog_ask(slurm, policy, &mut change, &record);
    } else {
        keep_tag(&mut change, &record, tag);
    }
    change.write(slurm, change_table, &came)?;
    if let Some(line) = granted.filter(|_| came.names_gpus()) {
        slurm.log_info(&format!("softmig: job_modify: uid={}: {line}", id(uid)));
    }
    Ok(slurm::SUCCESS)
}

/// True if the change makes another decision about users and places necessary.
fn moves(change: &JobDescription, record: &JobDescription) -> bool {
    let raises_time = change
        .time_limit
        .is_some_and(|new| record.time_limit.is_none_or(|old| new > old));
    raises_time
        || change.account.is_some()
        || change.partition.is_some()
        || change.qos.is_some()
        || change.reservation.is_some()
        || change.exc_nodes.is_some()
}

/// True if the job is for a reserved GPU: the reservation may be over, so any change, also a release, is decided on.
fn asks_for_reserved(slurm: &Slurm, policy: Option<&Policy>, record: &LuaTable) -> LuaResult<bool> {
    let Some(policy) = policy.filter(|policy| !policy.reservables().is_empty()) else {
        return Ok(false);
    };
    let recorded = JobDescription::default().read_gpus(slurm, record)?;
    Ok(policy.asks_for_reserved(&recorded.request()))
}

/// Applies the decision to the change. Fields that neither of them sets stay unset, so that Slurm leaves them.
fn carry_out(
    change: &mut JobDescription,
    came: &JobDescription,
    after: &Request,
    verdict: &Verdict,
) {
    if let Verdict::Granted(grant) = verdict {
        let asked = &mut change.asked;
        if came.names_gpus() {
            change.take(after, &grant.request);
            // The slice itself is always part of the change: it may have been asked for in another field.
            let slice = grant.request.tres_per_node.clone();
            change.asked.tres_per_node = Some(slice.unwrap_or_default());
        } else if asked.min_nodes.is_some() || asked.max_nodes.is_some() {
            // As many as limits were counted for, whatever else the change allows.
            asked.min_nodes = grant.request.min_nodes;
            asked.max_nodes = grant.request.max_nodes;
        }
    }
    if let Some(terms) = verdict.terms() {
        take_terms(change, terms);
        // The record already excludes these nodes, unless the change names others.
        if let (Some(nodes), Some(_)) = (&terms.off_nodes, &came.exc_nodes) {
            change.keep_off(nodes);
        }
    }
}

/// True if the change writes a tag that is not the job's own.
fn edits_tag(change: &JobDescription, record: &JobDescription) -> bool {
    Field::ALL.into_iter().any(|field| {
        let Some(text) = field.of(change) else {
            return false;
        };
        let own: Vec<&str> = tag::tokens(field.of(record).unwrap_or_default()).collect();
        let new: Vec<&str> = tag::tokens(text).collect();
        // Slurm passes the same change again for each task of an array, with the tag that was written for the task before.
        // That tag grants nothing.
        let ask = Tag::Ask.to_string();
        !new.is_empty() && new != own && new != [ask.as_str()]
    })
}

/// The job's tag, in whichever field it is.
fn current_tag(record: &JobDescription) -> Option<Tag> {
    Field::ALL
        .into_iter()
        .filter_map(|field| field.of(record))
        .find_map(|text| Tag::find(text)?.ok())
}

/// Puts the tag back among the user's new words, and takes [`Tag::Ask`] from among them: the prolog is to ask slurmctld only
/// where a change made it necessary.
fn keep_tag(change: &mut JobDescription, record: &JobDescription, tag: Option<Tag>) {
    for field in Field::ALL {
        let Some(text) = field.of(change) else {
            continue;
        };
        let was_here = field.of(record).is_some_and(marks::is_marked);
        let is_ask = Tag::find(text) == Some(Ok(Tag::Ask));
        let text = match tag {
            Some(tag) if was_here => tag.put(text),
            _ if is_ask => tag::strip(text),
            _ => continue,
        };
        field.set(change, text);
    }
}

/// Makes the prolog ask slurmctld what the job got. [`Tag::Ask`] explains why no limits are written here.
fn have_prolog_ask(
    slurm: &Slurm,
    policy: Option<&Policy>,
    change: &mut JobDescription,
    record: &JobDescription,
) {
    let choice = policy.map_or_else(Default::default, |policy| policy.node().tag_field);
    let field = Field::ALL
        .into_iter()
        .find(|field| field.of(record).is_some_and(marks::is_marked))
        .unwrap_or_else(|| Field::chosen(slurm, choice));
    let words = field.of(change).or(field.of(record));
    let text = Tag::Ask.put(words.unwrap_or_default());
    field.set(change, text);
}

/// The job's request once the change is applied.
fn applied(change: &JobDescription, recorded: Request) -> Request {
    let mut after = change.request();
    // `--mem` and `--mem-per-cpu` replace each other.
    let memory = (after.memory_per_node, after.memory_per_cpu);
    (after.memory_per_node, after.memory_per_cpu) = match memory {
        (None, None) => (recorded.memory_per_node, recorded.memory_per_cpu),
        (Some(_), Some(_)) => (None, None),
        one => one,
    };
    macro_rules! recorded {
        ($($field:ident)+) => {
            // An empty text clears a request, so it differs from `None`.
            $(if change.asked.$field.is_none() {
                after.$field = recorded.$field;
            })+
        };
    }
    recorded!(tres_per_node tres_per_job tres_per_socket tres_per_task min_nodes max_nodes min_cpus min_cpus_per_node);
    after
}
