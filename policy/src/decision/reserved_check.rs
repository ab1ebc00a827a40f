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
        // What is not known here is left to slurmctld.
        if submitter.is(open.holder()) != Some(false) {
            return Ok(());
        }
        Reason::Reserved {
            holder: open.holder().clone(),
            end: open.end_local(),
            reason: open.reason().to_string(),
            instead: open.of().to_string(),
        }
    } else if let Some(next) = of_kind()
        .filter(|one| one.window(now) == Window::Ahead)
        .min_by_key(|one| one.start())
    {
        Reason::ReservedLater {
            holder: next.holder().clone(),
            start: next.start_local().unwrap_or_default(),
            end: next.end_local(),
            reason: next.reason().to_string(),
            instead: next.of().to_string(),
            is_own: submitter.is(next.holder()) == Some(true),
        }
    } else if let Some(last) = of_kind().max_by_key(|one| one.end()) {
        Reason::ReservedBefore {
            holder: last.holder().clone(),
            end: last.end_local(),
            instead: last.of().to_string(),
        }
    } else {
        return Ok(());
    };
    Err(Refusal::new(text, reason))
}
