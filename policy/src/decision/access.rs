//! Who may have it: gates, reserved GPUs, and what the submitter's class may ever hold.
//!
//! What the class holds at the moment is Slurm's to count: a job that has to wait for that waits in the queue. Only a job that
//! could never start is refused here.

use crate::config::classes::{Standing, Unknown};
use crate::config::gates::{Gate, GateSubject};
use crate::config::policy::Policy;
use crate::config::refusal_code::Code;
use crate::config::reservable::Reservable;
use crate::decision::gpu_demand::Asked;
use crate::decision::gpu_request::Wanted;
use crate::decision::refusal::Refusal;
use crate::decision::submitter::{MaybeKnown, Submitter};
use crate::decision::verdict::{Context, Grant, Terms};
use crate::decision::wording::{meant_type, name_a_type, number, slice_meant};
use crate::decision::{gate_check, host_resources, quota_check, reserved_check};
use crate::slurm::gres::is_named;
use crate::slurm::job_request::Request;
use std::collections::BTreeSet;

/// The terms of a job without a slice, or why it cannot be had.
pub(crate) fn of_wholes(
    policy: &Policy,
    request: &Request,
    context: &Context,
    wanted: &Wanted<'_>,
) -> Result<Terms, Refusal> {
    let submitter = &context.submitter;
    if submitter.is_exempt || !policy.looks_at_people() {
        return Ok(Terms::default());
    }
    let asked = Asked::wholes(policy, request, wanted);
    refuse_unknown_type(policy, &asked)?;
    if asked.is_untyped
        && let Ok(Some(standing)) = submitter.standing(policy)
        && standing.quota.whole_gpus == Some(0)
    {
        // To name a type would not help.
        quota_check::fit(policy, &asked, standing, submitter)?;
    }
    pass_reserved(policy, &asked, context)?;
    let off_nodes = off_kept_nodes(policy, request, &asked)?;
    if asked.wholes > 0 || request.implies_gpus() {
        gate_check::pass(policy, submitter, &GateSubject::Whole, &asked.text)?;
    }
    if !asked.mig.is_empty() {
        gate_check::pass(policy, submitter, &GateSubject::Mig, &asked.text)?;
    }
    pass_gates_of_others(policy, submitter, wanted)?;
    let gpus = !asked.is_nothing() || request.implies_gpus();
    match submitter.standing(policy) {
        Ok(Some(standing)) if gpus => {
            quota_check::fit(policy, &asked, standing, submitter)?;
            host_resources::within(request, &asked.text, standing)?;
            Ok(Terms {
                off_nodes,
                ..terms(policy, &asked, standing, submitter)?
            })
        }
        // A job on nothing but GPUs that are kept for it, or without any.
        Ok(standing) => {
            refuse_foreign_qos(policy, submitter, standing, &asked.text)?;
            Ok(Terms {
                off_nodes,
                ..Terms::default()
            })
        }
        Err(Unknown) => Ok(Terms::default()),
    }
}

/// The terms of a slice; gives it its part of the host.
pub(crate) fn of_slice(
    policy: &Policy,
    context: &Context,
    wanted: &Wanted<'_>,
    grant: &mut Grant,
) -> Result<Terms, Refusal> {
    if context.submitter.is_exempt || !policy.looks_at_people() {
        return Ok(Terms::default());
    }
    let gpu_type = grant.limits.gpu_type();
    let shards = grant.limits.share().shards();
    let gpu = policy.gpu(gpu_type.as_str());
    let asked = Asked::slice(&grant.asked, gpu.map(|gpu| (gpu, u64::from(shards))));
    let partition = route(policy, gpu_type.as_str(), &context.submitter);
    let routed;
    let submitter = match &partition {
        Some(partition) => {
            routed = Submitter {
                partition: MaybeKnown::Is(partition.clone()),
                ..context.submitter.clone()
            };
            &routed
        }
        None => &context.submitter,
    };
    gate_check::pass(policy, submitter, &GateSubject::Slice, &asked.text)?;
    pass_gates_of_others(policy, submitter, wanted)?;
    let standing = match submitter.standing(policy) {
        Ok(Some(standing)) => standing,
        Ok(None) | Err(Unknown) => {
            return Ok(Terms {
                partition,
                ..Terms::default()
            });
        }
    };
    quota_check::fit(policy, &asked, standing, submitter)?;
    host_resources::fit(
        &mut grant.request,
        &grant.asked,
        shards,
        standing,
        context.is_change,
    )?;
    host_resources::within(&grant.request, &asked.text, standing)?;
    Ok(Terms {
        partition,
        ..terms(policy, &asked, standing, submitter)?
    })
}

fn route(policy: &Policy, gpu_type: &str, submitter: &Submitter) -> Option<String> {
    if submitter.named_partition {
        return None;
    }
    let mut routes = policy.routes().iter();
    let route =
        routes.find(|route| route.takes(gpu_type, submitter.time_limit, submitter.batch))?;
    Some(route.partition().to_string())
}

/// GPUs that are kept for somebody are only for them, and only in their time.
fn pass_reserved(policy: &Policy, asked: &Asked<'_>, context: &Context) -> Result<(), Refusal> {
    let all = policy.reservables();
    for kind in &asked.reserved {
        reserved_check::pass(all, kind, &asked.text, &context.submitter, context.now)?;
    }
    if !asked.is_untyped || all.is_empty() {
        return Ok(());
    }
    let kinds: Vec<&str> = all.iter().map(Reservable::kind).collect();
    Err(Refusal::new(
        Code::Reserved,
        format!(
            "{}: names no type of GPU, and could be given one that is kept for somebody ({})",
            asked.text,
            kinds.join(", ")
        ),
        name_a_type(policy),
    ))
}

/// The same for GRES that are not about GPUs, each name once.
fn pass_gates_of_others(
    policy: &Policy,
    submitter: &Submitter,
    wanted: &Wanted<'_>,
) -> Result<(), Refusal> {
    let names: BTreeSet<&str> = policy.gates().iter().filter_map(Gate::gres_name).collect();
    for name in names {
        if let Some(raw) = wanted.others.iter().find(|raw| is_named(raw, name)) {
            gate_check::pass(policy, submitter, &GateSubject::Gres(name.to_string()), raw)?;
        }
    }
    Ok(())
}

/// Where it matters which type a GPU is of, only known ones can be named. Slurm knows types by a number that it makes of
/// their names, and other names have the same.
fn refuse_unknown_type(policy: &Policy, asked: &Asked<'_>) -> Result<(), Refusal> {
    let Some(kind) = asked.unknown_type else {
        return Ok(());
    };
    let mut standings = policy.standings().iter();
    let matters = policy.weights().by_type()
        || !policy.reservables().is_empty()
        || standings.any(|standing| !standing.quota.shards_of.is_empty());
    if !matters {
        return Ok(());
    }
    Err(Refusal::new(
        Code::SliceType,
        format!("{}: no GPU here is of type {kind}", asked.text),
        match (slice_meant(policy, kind), meant_type(policy, kind)) {
            (Some(slice), _) => format!("did you mean {slice}?"),
            (None, Some(meant)) => format!("did you mean --gres=gpu:{meant}:1?"),
            (None, None) => name_a_type(policy),
        },
    ))
}

/// The nodes that a job with all of a node must stay off, since it would get GPUs that are kept for somebody.
fn off_kept_nodes(
    policy: &Policy,
    request: &Request,
    asked: &Asked<'_>,
) -> Result<Option<String>, Refusal> {
    if !request.exclusive || policy.reservables().is_empty() {
        return Ok(None);
    }
    if let Some(nodes) = policy.nodes_with_kept_gpus() {
        return Ok(Some(nodes));
    }
    Err(Refusal::new(
        Code::Reserved,
        format!(
            "{}: --exclusive takes all GPUs of a node, also those that are kept for somebody",
            asked.text
        ),
        "leave --exclusive out; with [[nodes]] in policy.toml your administrator can have other nodes chosen",
    ))
}

/// What the job's record gets, and its user hears.
fn terms(
    policy: &Policy,
    asked: &Asked<'_>,
    standing: &Standing,
    submitter: &Submitter,
) -> Result<Terms, Refusal> {
    Ok(Terms {
        qos: qos(policy, asked, standing, submitter)?,
        partition: None,
        off_nodes: None,
        notice: policy.limit_notice.then(|| notice(standing)).flatten(),
    })
}

/// The QOS to put the job in, unless it is in it.
fn qos(
    policy: &Policy,
    asked: &Asked<'_>,
    standing: &Standing,
    submitter: &Submitter,
) -> Result<Option<String>, Refusal> {
    let own = standing.qos.as_deref();
    refuse_foreign_qos(policy, submitter, Some(standing), &asked.text)?;
    let Some(own) = own else { return Ok(None) };
    let others = &standing.quota.other_qos;
    let may_be = |name: &str| {
        let mut names = others.iter().map(String::as_str).chain([own]);
        names.any(|other| other.eq_ignore_ascii_case(name))
    };
    let Some(named) = submitter.qos.as_deref() else {
        let stays = submitter.qos_now.as_deref().is_some_and(may_be);
        return Ok((!stays).then(|| own.to_string()));
    };
    // Newer releases take a list, of which any may come to hold.
    if named.split(',').all(may_be) {
        return Ok(None);
    }
    let hint = match others.as_slice() {
        [] => format!("leave --qos out, or use --qos={own}"),
        others => format!(
            "leave --qos out, or use --qos={own} or {}",
            others.join(" or ")
        ),
    };
    Err(Refusal::new(
        Code::LimitQos,
        format!(
            "{}: jobs with GPUs of {} are not in QOS {named}",
            asked.text,
            standing.called()
        ),
        hint,
    ))
}

/// A QOS that holds one class to its limits is not for others, whatever their job asks for.
fn refuse_foreign_qos(
    policy: &Policy,
    submitter: &Submitter,
    standing: Option<&Standing>,
    text: &str,
) -> Result<(), Refusal> {
    let own = standing.and_then(|standing| standing.qos.as_deref());
    let others = standing.map_or(&[][..], |standing| &standing.quota.other_qos);
    let Some(named) = submitter.qos.as_deref() else {
        return Ok(());
    };
    let named = named.to_ascii_lowercase();
    let is_foreign = |name: &&str| policy.is_qos(name) && own != Some(*name);
    // Slurm keeps a list when one of its names is set later, and any of it may come to hold.
    let leads_out = |name: &&str| {
        let names_own = own.is_some_and(|own| named.split(',').any(|name| name == own));
        let may_be =
            own == Some(*name) || others.iter().any(|other| other.eq_ignore_ascii_case(name));
        names_own && !may_be
    };
    let mut names = named.split(',');
    let Some(named) = names.find(|name| is_foreign(name) || leads_out(name)) else {
        return Ok(());
    };
    Err(Refusal::new(
        Code::LimitQos,
        format!(
            "{text}: QOS {named} is for another class of users, or is named beside a class's own"
        ),
        "leave --qos out, or name one that is yours",
    ))
}

/// What the class may have, and what becomes of a job beyond that.
fn notice(standing: &Standing) -> Option<String> {
    let quota = &standing.quota;
    let mut may = Vec::new();
    if let Some(shards) = quota.shards {
        may.push(number(shards, "shard"));
    }
    may.extend(
        quota
            .shards_of
            .iter()
            .map(|(kind, most)| format!("{} of type {kind}", number(*most, "shard"))),
    );
    if let Some(wholes) = quota.whole_gpus {
        may.push(number(wholes, "whole GPU"));
    }
    if let Some(jobs) = quota.jobs {
        may.push(format!("{} with GPUs", number(jobs, "job")));
    }
    if may.is_empty() {
        return None;
    }
    Some(format!(
        "softmig: {} may hold at once: {}; a job beyond that waits in the queue [{}]",
        standing.called(),
        may.join(", "),
        Code::LimitNotice.as_str()
    ))
}
