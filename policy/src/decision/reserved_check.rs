//! Whether a GPU that is kept for somebody may be asked for.

use crate::config::refusal_code::Code;
use crate::config::reservable::{Reservable, Window};
use crate::decision::refusal::Refusal;
use crate::decision::submitter::Submitter;

/// Lets only the holder ask for GPUs of a type that is kept for somebody, and only in its time. `all` is every entry,
/// `text` the request.
pub(crate) fn pass(
    all: &[Reservable],
    kind: &str,
    text: &str,
    submitter: &Submitter,
    now: i64,
) -> Result<(), Refusal> {
    let of_kind = || all.iter().filter(|one| one.kind() == kind);
    let mut hint = None;
    let (message, of) = if let Some(open) = of_kind().find(|one| one.window(now) == Window::Open) {
        // What is not known here is left to slurmctld.
        if submitter.is(open.holder()) != Some(false) {
            return Ok(());
        }
        let (holder, end, reason) = (open.holder().called(), open.end_local(), open.reason());
        (
            format!("kept for {holder} until {end} ({reason})"),
            open.of(),
        )
    } else if let Some(next) = of_kind()
        .filter(|one| one.window(now) == Window::Ahead)
        .min_by_key(|one| one.start())
    {
        let (holder, end, reason) = (next.holder().called(), next.end_local(), next.reason());
        let start = next.start_local().unwrap_or_default();
        if submitter.is(next.holder()) == Some(true) {
            hint = Some(format!(
                "it is yours from {start} on; until then ask for another GPU, for example --gres=gpu:{}:1",
                next.of()
            ));
        }
        (
            format!("kept for {holder} from {start} to {end} ({reason})"),
            next.of(),
        )
    } else if let Some(last) = of_kind().max_by_key(|one| one.end()) {
        let (holder, end) = (last.holder().called(), last.end_local());
        (
            format!("was kept for {holder} until {end}, and is not given back to all yet"),
            last.of(),
        )
    } else {
        return Ok(());
    };
    Err(Refusal::new(
        Code::Reserved,
        format!("{text}: {message}"),
        hint.unwrap_or_else(|| format!("ask for another GPU, for example --gres=gpu:{of}:1")),
    ))
}
