//! Checks that the submitter may ask for a reserved GPU.

use crate::config::reservable::{Reservable, Window};
use crate::decision::reason::Reason;
use crate::decision::refusal::Refusal;
use crate::decision::submitter::Submitter;

/// Lets only the holder ask for GPUs of a reserved type, and only in its time. `all` is every entry, `text` the request.
pub(crate) fn pass(
    all: &[Reservable],
    kind: &str,
    text: &str,
    submitter: &Submitter,
    now: i64,
) -> Result<(), Refusal> {
    let of_kind = || all.iter().filter(|one| one.kind() == kind);
    let reason = if let Some(open) = of_kind().find(|one| one.window(now) == Window::Open) {
        // A type that is not known here is left to slurmctld.
        if submitter.is(open.holder()) != Some(false) {
            return Ok(());
        }
        reserved(open)
    } else if let Some(next) = of_kind()
        .filter(|one| one.window(now) == Window::Ahead)
        .min_by_key(|one| one.start())
    {
        Reason::ReservedLater {
            holder: next.holder().clone(),
            start: next.start_local().unwrap_or_default(),
            end: next.end_local(),
            reason: next.reason().to_string(),
            instead: next.base_type().to_string(),
            is_own: submitter.is(next.holder()) == Some(true),
        }
    } else {
        return Ok(());
    };
    Err(Refusal::new(text, reason))
}

/// Lets only the holder name Slurm's reservation of a reserved GPU: Slurm would not say whose it is.
pub(crate) fn pass_reservation(
    all: &[Reservable],
    text: &str,
    submitter: &Submitter,
    now: i64,
) -> Result<(), Refusal> {
    let Some(named) = submitter.reservations() else {
        return Ok(());
    };
    let is_named = |one: &&Reservable| named.split(',').any(|name| name == one.reservation());
    let foreign = all
        .iter()
        .filter(|one| one.window(now) == Window::Open && submitter.is(one.holder()) == Some(false))
        .find(is_named);
    match foreign {
        Some(one) => Err(Refusal::new(text, reserved(one))),
        None => Ok(()),
    }
}

fn reserved(one: &Reservable) -> Reason {
    Reason::Reserved {
        holder: one.holder().clone(),
        end: one.end_local(),
        reason: one.reason().to_string(),
        instead: one.base_type().to_string(),
    }
}
