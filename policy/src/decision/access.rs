//! Access: gates, reserved GPUs, and the limits of the submitter's class.
//!
//! Slurm counts what the class holds at the moment, and a job over that limit stays pending. Only a job that could never start
//! is refused here.

use crate::config::classes::{ClassLimits, Unknown};
use crate::config::gates::{Gate, GateSubject};
use crate::config::policy::Policy;
use crate::config::reservable::{Reservable, Window};
use crate::decision::alternatives::{slice_meant, type_meant, whole_types};
use crate::decision::gpu_demand::GpuDemand;
use crate::decision::gpu_request::Wanted;
use crate::decision::reason::{Meant, Reason};
use crate::decision::refusal::Refusal;
use crate::decision::submitter::{MaybeKnown, Submitter};
use crate::decision::verdict::{Context, Grant, Terms};
use crate::decision::{gate_check, host_resources, quota_check, reserved_check, wording};
use crate::slurm::gres::is_named;
use crate::slurm::job_request::Request;
use std::collections::BTreeSet;

/// The terms of a job without a slice, or the refusal.
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
    let elsewhere;
    let request = if request.exclusive && submitter.without_gpus {
        elsewhere = Request {
            exclusive: false,
            ..request.clone()
        };
        &elsewhere
    } else {
        request
    };
    let demand = GpuDemand::wholes(policy, request, wanted, context.now);
    refuse_unknown_type(policy, &demand)?;
    if demand.is_untyped
        && let Ok(Some(standing)) = submitter.standing(policy)
        && standing.quota.whole_gpus == Some(0)
    {
        // A type would not help, so do not ask for one.
        quota_check::fit(policy, &demand, standing, submitter)?;
    }
    pass_reserved(policy, &demand, context)?;
    let off_nodes = off_reserved_nodes(policy, request, &demand, context.now)?;
    if demand.wholes > 0 || request.implies_gpus() {
        gate_check::pass(policy, submitter, &GateSubject::Whole, &demand.text)?;
    }
    if !demand.mig.is_empty() {
        gate_check::pass(policy, submitter, &GateSubject::Mig, &demand.text)?;
    }
    pass_gates_of_others(policy, submitter, wanted)?;
    let gpus = !demand.is_nothing() || request.implies_gpus();
    match submitter.standing(policy) {
        Ok(Some(standing)) if gpus => {
            quota_check::fit(policy, &demand, standing, submitter)?;
            host_resources::within(request, &demand.text, standing)?;
            Ok(Terms {
                off_nodes,
                ..terms(policy, &demand, standing, submitter)?
            })
        }
        // A job with only GPUs that are reserved for it, or without GPUs.
        Ok(standing) => {
            refuse_foreign_qos(policy, submitter, standing, &demand.text)?;
            Ok(Terms {
                off_nodes,
                ..Terms::default()
            })
        }
        Err(Unknown) => Ok(Terms::default()),
    }
}

/// The terms of a slice, or the refusal. Sets the CPUs and memory of the slice.
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
    let nodes = grant.request.nodes();
    let demand = GpuDemand::slice(&grant.asked, gpu, shards.into(), nodes);
    reserved_check::pass_reservation(
        policy.reservables(),
        &demand.text,
        &context.submitter,
        context.now,
    )?;
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
    gate_check::pass(policy, submitter, &GateSubject::Slice, &demand.text)?;
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
    quota_check::fit(policy, &demand, standing, submitter)?;
    host_resources::fit(
        &mut grant.request,
        &grant.asked,
        shards,
        standing,
        context.is_change,
    )?;
    host_resources::within(&grant.request, &demand.text, standing)?;
    Ok(Terms {
        partition,
        ..terms(policy, &demand, standing, submitter)?
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

/// Only the holder can ask for a reserved GPU, and only in the time of the reservation.
fn pass_reserved(
    policy: &Policy,
    demand: &GpuDemand<'_>,
    context: &Context,
) -> Result<(), Refusal> {
    let all = policy.reservables();
    for kind in &demand.reserved {
        reserved_check::pass(all, kind, &demand.text, &context.submitter, context.now)?;
    }
    reserved_check::pass_reservation(all, &demand.text, &context.submitter, context.now)?;
    let is_kept = |one: &&Reservable| one.window(context.now) != Window::Over;
    if !demand.is_untyped || !all.iter().any(|one| is_kept(&one)) {
        return Ok(());
    }
    let is_own = |one: &&Reservable| {
        one.window(context.now) == Window::Open && context.submitter.is(one.holder()) == Some(true)
    };
    let kinds = |one: &Reservable| one.kind().to_string();
    let reason = Reason::MayBeReserved {
        reserved: all.iter().filter(is_kept).map(kinds).collect(),
        own: all.iter().filter(is_own).map(kinds).collect(),
        types: whole_types(policy),
        count: if demand.is_for_each {
            1
        } else {
            demand.wholes.max(1)
        },
    };
    Err(Refusal::new(&demand.text, reason))
}

/// Gates about other GRES than GPUs, each name once.
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

/// Where the type of a GPU matters, unknown types are refused. Slurm compares types by a hash of their names, so an unknown
/// name can mean a known type.
fn refuse_unknown_type(policy: &Policy, demand: &GpuDemand<'_>) -> Result<(), Refusal> {
    let Some(kind) = demand.unknown_type else {
        return Ok(());
    };
    let mut standings = policy.standings().iter();
    let matters = policy.weights().by_type()
        || !policy.reservables().is_empty()
        || standings.any(|standing| !standing.quota.shards_of.is_empty());
    if !matters {
        return Ok(());
    }
    let reason = Reason::UnknownGpuType {
        name: kind.to_string(),
        meant: match (slice_meant(policy, kind), type_meant(policy, kind)) {
            (Some(slice), _) => Meant::Slice(slice),
            (None, Some(meant)) => Meant::WholeGpu(meant.to_string()),
            (None, None) => Meant::Types(whole_types(policy)),
        },
    };
    Err(Refusal::new(&demand.text, reason))
}

/// The nodes with reserved GPUs, which an exclusive job must avoid.
fn off_reserved_nodes(
    policy: &Policy,
    request: &Request,
    demand: &GpuDemand<'_>,
    now: i64,
) -> Result<Option<String>, Refusal> {
    let is_over = |one: &Reservable| one.window(now) == Window::Over;
    if !request.exclusive || policy.reservables().iter().all(is_over) {
        return Ok(None);
    }
    if let Some(nodes) = policy.nodes_with_reserved_gpus(now) {
        return Ok(Some(nodes));
    }
    Err(Refusal::new(&demand.text, Reason::ExclusiveReserved))
}

/// The QOS and the notice of a job.
fn terms(
    policy: &Policy,
    demand: &GpuDemand<'_>,
    standing: &ClassLimits,
    submitter: &Submitter,
) -> Result<Terms, Refusal> {
    Ok(Terms {
        qos: qos(policy, demand, standing, submitter)?,
        partition: None,
        off_nodes: None,
        notice: if policy.limit_notice && !is_by_foreign_account(policy, submitter) {
            wording::limit_notice(policy, standing)
        } else {
            None
        },
    })
}

/// True if the class follows from an account that may not be the user's: the user typed it, and Slurm has yet to check it.
fn is_by_foreign_account(policy: &Policy, submitter: &Submitter) -> bool {
    let own = Submitter {
        account: MaybeKnown::Missing,
        ..submitter.clone()
    };
    let name = |submitter: &Submitter| {
        let standing = submitter.standing(policy).ok().flatten();
        standing.map(ClassLimits::called)
    };
    submitter.is_account_unchecked && name(&own) != name(submitter)
}

/// The QOS to put the job in, unless it is in it.
fn qos(
    policy: &Policy,
    demand: &GpuDemand<'_>,
    standing: &ClassLimits,
    submitter: &Submitter,
) -> Result<Option<String>, Refusal> {
    let own = standing.qos.as_deref();
    refuse_foreign_qos(policy, submitter, Some(standing), &demand.text)?;
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
    // Newer releases take a list, and Slurm may use any QOS of it.
    if named.split(',').all(may_be) {
        return Ok(None);
    }
    let own = own.to_string();
    let reason = Reason::QosOfClass {
        who: standing.called(),
        named: named.to_string(),
        may: [own].into_iter().chain(others.iter().cloned()).collect(),
    };
    Err(Refusal::new(&demand.text, reason))
}

/// The QOS of a class is only for that class, also for jobs without GPUs.
fn refuse_foreign_qos(
    policy: &Policy,
    submitter: &Submitter,
    standing: Option<&ClassLimits>,
    text: &str,
) -> Result<(), Refusal> {
    let own = standing.and_then(|standing| standing.qos.as_deref());
    let others = standing.map_or(&[][..], |standing| &standing.quota.other_qos);
    let Some(named) = submitter.qos.as_deref() else {
        return Ok(());
    };
    let named = named.to_ascii_lowercase();
    let own_in_list = own.filter(|own| named.split(',').any(|name| name == *own));
    let reason = named.split(',').find_map(|name| {
        if own == Some(name) {
            return None;
        }
        let named = name.to_string();
        if policy.is_qos(name) {
            return Some(Reason::QosOfOthers { named });
        }
        // Slurm keeps a list when one of its names is set later, and may use any QOS of it.
        let may_be = others.iter().any(|other| other.eq_ignore_ascii_case(name));
        let own = own_in_list.filter(|_| !may_be)?.to_string();
        Some(Reason::QosBesideOwn { named, own })
    });
    reason.map_or(Ok(()), |reason| Err(Refusal::new(text, reason)))
}
