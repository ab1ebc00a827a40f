//! Which gates a job has to pass, and whether they are open to it.

use crate::config::classes::Unknown;
use crate::config::gates::{Gate, GateSubject, Gates};
use crate::config::policy::Policy;
use crate::config::refusal_code::Code;
use crate::decision::refusal::Refusal;
use crate::decision::submitter::Submitter;
use regex::bytes::SetMatches;

/// The most reservations of one job: all are looked at while slurmctld waits.
const MOST_NAMES: usize = 64;

/// Why a gate is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum GateDenied {
    /// No reservation is named.
    NoReservation,
    /// One is named that does not open it.
    Reservation(String),
    /// More are named than anybody means.
    TooMany,
}

/// Every gate about `what` has to be open.
pub(crate) fn pass(
    policy: &Policy,
    submitter: &Submitter,
    what: &GateSubject,
    text: &str,
) -> Result<(), Refusal> {
    match closed_gate(policy, what, submitter) {
        Some((gate, closed)) => Err(refusal(gate, &closed, text)),
        None => Ok(()),
    }
}

/// The first gate about the same as this one that stands before somebody of a class who names no reservation.
///
/// ```
/// use softmig_policy::{Submitter, MaybeKnown, Policy, gate_before};
/// let policy = Policy::parse("[[gate]]\nwhat = \"slice\"\nreservation = [\"r\"]\naccounts = [\"course\"]\n").unwrap();
/// let meets = |account: &str| {
///     let submitter = Submitter { account: MaybeKnown::known(Some(account.into())), ..Submitter::default() };
///     gate_before(&policy, &policy.gates()[0], None, &submitter).is_some()
/// };
/// assert!(meets("course") && !meets("lab"));
/// ```
pub fn gate_before<'p>(
    policy: &'p Policy,
    same: &Gate,
    class: Option<&str>,
    submitter: &Submitter,
) -> Option<&'p Gate> {
    let submitter = Submitter {
        reservation: None,
        ..submitter.clone()
    };
    let met = first_closed(policy.gate_set(), same.about(), &submitter, || Ok(class));
    met.map(|(gate, _)| gate)
}

/// The first gate about `what` that is closed to somebody, and why.
fn closed_gate<'p>(
    policy: &'p Policy,
    what: &GateSubject,
    submitter: &Submitter,
) -> Option<(&'p Gate, GateDenied)> {
    first_closed(policy.gate_set(), what, submitter, || {
        let standing = submitter.standing(policy)?;
        Ok(standing.and_then(|standing| standing.class.as_deref()))
    })
}

/// The first gate about `what` that is closed to somebody, and why.
fn first_closed<'g, 'p>(
    gates: &'g Gates,
    what: &GateSubject,
    submitter: &Submitter,
    class: impl FnOnce() -> Result<Option<&'p str>, Unknown>,
) -> Option<(&'g Gate, GateDenied)> {
    let all = gates.list().iter().enumerate();
    let mut about = all.filter(|(_, gate)| gate.about() == what).peekable();
    about.peek()?;
    // Only now: who somebody is need not be known for most requests.
    let class = class();
    let mut fits: Option<Vec<(&str, Option<SetMatches>)>> = None;
    for (index, gate) in about.filter(|(_, gate)| stands_before(gate, submitter, class)) {
        let Some(reservations) = submitter.reservations() else {
            return Some((gate, GateDenied::NoReservation));
        };
        if reservations.split(',').count() > MOST_NAMES {
            return Some((gate, GateDenied::TooMany));
        }
        let fits = fits.get_or_insert_with(|| {
            let names = reservations.split(',');
            names.map(|name| (name, gates.opened_by(name))).collect()
        });
        let closed =
            |gates: &Option<SetMatches>| !gates.as_ref().is_some_and(|gates| gates.matched(index));
        if let Some((name, _)) = fits.iter().find(|(_, gates)| closed(gates)) {
            return Some((gate, GateDenied::Reservation((*name).to_string())));
        }
    }
    None
}

/// Whether somebody meets it at all. What hangs on something that is not known here is left to slurmctld.
fn stands_before(gate: &Gate, submitter: &Submitter, class: Result<Option<&str>, Unknown>) -> bool {
    let partitions = || submitter.partitions().ok().flatten();
    let account = || submitter.account().ok().flatten();
    let in_partition = || {
        partitions().is_some_and(|list| {
            let mut names = list.split(',');
            names.any(|name| gate.partitions().iter().any(|own| own == name))
        })
    };
    let on_account = || {
        account().is_some_and(|name| {
            let mut accounts = gate.accounts().iter();
            accounts.any(|own| own.eq_ignore_ascii_case(name))
        })
    };
    let is_exempt = || match class {
        Ok(class) => {
            class.is_some_and(|class| gate.exempt_classes().iter().any(|own| own == class))
        }
        Err(Unknown) => true,
    };
    (gate.partitions().is_empty() || in_partition())
        && (gate.accounts().is_empty() || on_account())
        && (gate.exempt_classes().is_empty() || !is_exempt())
}

/// The refusal of `text` at this gate.
fn refusal(gate: &Gate, closed: &GateDenied, text: &str) -> Refusal {
    let what = match gate.what() {
        "slice" => "parts of GPUs are",
        "whole" => "whole GPUs are",
        "mig" => "MIG instances are",
        _ => "this is",
    };
    let place = match gate.partitions() {
        [] => String::new(),
        [one] => format!(" in partition {one}"),
        several => format!(" in partitions {}", several.join(", ")),
    };
    let names = gate.reservations().join(" or ");
    let hint = format!(
        "use --reservation=NAME with one that is called {names}; 'scontrol show reservation' lists those that there are"
    );
    match closed {
        GateDenied::NoReservation => Refusal::new(
            Code::GateNoReservation,
            format!(
                "{text}: {what} for jobs inside certain reservations{place}, and this job names none"
            ),
            hint,
        ),
        GateDenied::TooMany => Refusal::new(
            Code::GateReservation,
            format!(
                "{text}: {what} for jobs inside certain reservations{place}, and this job names more than {MOST_NAMES}"
            ),
            hint,
        ),
        GateDenied::Reservation(name) => Refusal::new(
            Code::GateReservation,
            format!(
                "{text}: {what} for jobs inside certain reservations{place}, and {name} is not one of them"
            ),
            hint,
        ),
    }
}
