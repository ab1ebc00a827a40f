//! Finds the gates that apply to a job, and checks that its reservations open them.

use crate::config::classes::Unknown;
use crate::config::gates::{Gate, GateSubject, Gates};
use crate::config::policy::Policy;
use crate::decision::reason::{ClosedGate, Denied, Reason};
use crate::decision::refusal::Refusal;
use crate::decision::submitter::Submitter;
use regex::bytes::SetMatches;

/// The most reservations of one job: slurmctld waits while all are matched.
const MOST_NAMES: usize = 64;

/// Every gate about `what` has to be open.
pub(crate) fn pass(
    policy: &Policy,
    submitter: &Submitter,
    what: &GateSubject,
    text: &str,
) -> Result<(), Refusal> {
    match closed_gate(policy, what, submitter) {
        Some((gate, denied)) => {
            let gate = ClosedGate {
                about: gate.about().clone(),
                partitions: gate.partitions().to_vec(),
                reservations: gate.reservations().to_vec(),
            };
            Err(Refusal::new(text, Reason::Gate { gate, denied }))
        }
        None => Ok(()),
    }
}

/// True if every gate about `what` is open.
pub(crate) fn is_open(policy: &Policy, submitter: &Submitter, what: &GateSubject) -> bool {
    closed_gate(policy, what, submitter).is_none()
}

/// The first gate about the same requests as this one that applies to a submitter of a class without a reservation.
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

/// The first gate about `what` that is closed to the submitter, and why.
fn closed_gate<'p>(
    policy: &'p Policy,
    what: &GateSubject,
    submitter: &Submitter,
) -> Option<(&'p Gate, Denied)> {
    first_closed(policy.gate_set(), what, submitter, || {
        let standing = submitter.standing(policy)?;
        Ok(standing.and_then(|standing| standing.class.as_deref()))
    })
}

/// The first gate about `what` that is closed to the submitter, and why.
fn first_closed<'g, 'p>(
    gates: &'g Gates,
    what: &GateSubject,
    submitter: &Submitter,
    class: impl FnOnce() -> Result<Option<&'p str>, Unknown>,
) -> Option<(&'g Gate, Denied)> {
    let all = gates.list().iter().enumerate();
    let mut about = all.filter(|(_, gate)| gate.about() == what).peekable();
    about.peek()?;
    // Look up the class only here: most requests do not need it.
    let class = class();
    let mut fits: Option<Vec<(&str, Option<SetMatches>)>> = None;
    for (index, gate) in about.filter(|(_, gate)| stands_before(gate, submitter, class)) {
        let Some(reservations) = submitter.reservations() else {
            return Some((gate, Denied::NoReservation));
        };
        if reservations.split(',').count() > MOST_NAMES {
            return Some((gate, Denied::MoreThan(MOST_NAMES)));
        }
        let fits = fits.get_or_insert_with(|| {
            let names = reservations.split(',');
            names.map(|name| (name, gates.opened_by(name))).collect()
        });
        let closed =
            |gates: &Option<SetMatches>| !gates.as_ref().is_some_and(|gates| gates.matched(index));
        if let Some((name, _)) = fits.iter().find(|(_, gates)| closed(gates)) {
            return Some((gate, Denied::Reservation((*name).to_string())));
        }
    }
    None
}

/// True if the gate applies to the submitter. Where that depends on an unknown fact, slurmctld decides.
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
