//! A request that a client has translated, as its user typed it.

use crate::config::policy::Policy;
use crate::decision::decide::decide;
use crate::decision::gpu_request::{Part, Wanted};
use crate::decision::reason::Reason;
use crate::decision::refusal::Refusal;
use crate::decision::rewrite::replaced;
use crate::decision::verdict::{Context, Verdict};
use crate::slurm::gres::Name;
use crate::slurm::job_request::{CountedPer, Request};

/// Decides on a request for which a client says what its user typed.
///
/// The decision is about the typed request, so that refusals name it. The shards that the client made of it have to be
/// the ones that this policy makes of it: a machine with another policy.toml would give its users other slices than
/// they typed.
pub fn decide_typed(policy: &Policy, request: &Request, typed: &str, context: &Context) -> Verdict {
    let Some(as_typed) = as_typed(policy, request, typed) else {
        return decide(policy, request, context);
    };
    let verdict = decide(policy, &as_typed, context);
    match &verdict {
        Verdict::Granted(grant) if grant.request.tres_per_node != request.tres_per_node => {
            let shards = |request: &Request| {
                let wanted = Wanted::read(request, Some(policy));
                let part = wanted.parts.first().map(|part| part.gres.to_string());
                part.unwrap_or_default()
            };
            let reason = Reason::ClientPolicy {
                sent: shards(request),
                right: shards(&grant.request),
            };
            Verdict::Refused(Refusal::new(&grant.asked, reason).at(policy))
        }
        _ => verdict,
    }
}

/// The request with what was typed in the place of its shards; `None` where that cannot be.
fn as_typed(policy: &Policy, request: &Request, typed: &str) -> Option<Request> {
    let wanted = Wanted::read(request, Some(policy));
    let [
        Part {
            place: CountedPer::Node,
            raw,
            gres,
            ..
        },
    ] = wanted.parts.as_slice()
    else {
        return None;
    };
    if gres.name != Name::Shard || wanted.malformed.is_some() || wanted.has_wholes() {
        return None;
    }
    let alone = Request {
        tres_per_node: Some(typed.to_string()),
        ..Request::default()
    };
    let own = Wanted::read(&alone, Some(policy));
    if own.parts.len() != 1 || own.malformed.is_some() || own.has_wholes() || !own.others.is_empty()
    {
        return None;
    }
    let item = format!("{}{typed}", gres.prefix.as_str());
    let text = request.tres_per_node.as_deref()?;
    Some(Request {
        tres_per_node: Some(replaced(text, raw, &item)),
        ..request.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::refusal_code::Code;

    const GPUS: &str = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n";

    fn verdict(more: &str, sent: &str, typed: &str) -> Verdict {
        let policy = Policy::parse(&format!("{GPUS}{more}")).unwrap();
        let request = Request {
            tres_per_node: Some(sent.into()),
            ..Request::default()
        };
        decide_typed(&policy, &request, typed, &Context::default())
    }

    fn refusal(more: &str, sent: &str, typed: &str) -> Refusal {
        match verdict(more, sent, typed) {
            Verdict::Refused(refusal) => refusal,
            other => panic!("{sent} {typed}: {other:?}"),
        }
    }

    #[test]
    fn what_agrees_is_granted_in_the_words_that_were_typed() {
        let Verdict::Granted(grant) =
            verdict("", "gres/license:x,gres/shard:l40s:1", "gpu:l40s.4:1")
        else {
            panic!()
        };
        assert_eq!(grant.asked, "gpu:l40s.4:1");
        let made = grant.request.tres_per_node.as_deref();
        assert_eq!(made, Some("gres/license:x,gres/shard:l40s:1"));
    }

    #[test]
    fn a_client_with_another_policy_is_refused() {
        let refusal = refusal("", "gres/shard:l40s:2", "gpu:l40s.4:1");
        assert_eq!(refusal.code(), Code::ClientPolicy);
        let words = refusal.to_string();
        assert!(
            words.contains("gpu:l40s.4:1: ") && words.contains("--gres=shard:l40s:1"),
            "{words}"
        );
        // A size that this policy has not.
        let unknown = self::refusal("", "gres/shard:l40s:1", "gpu:l40s.8:1");
        assert_eq!(unknown.code(), Code::SliceSize);
    }

    #[test]
    fn refusals_name_what_was_typed() {
        let limit = "[defaults]\nshards = 1\n";
        let refusal = refusal(limit, "gres/shard:l40s:2", "gpu:l40s.2:1");
        assert_eq!(refusal.code(), Code::LimitJob);
        assert!(refusal.message().starts_with("gpu:l40s.2:1: "), "{refusal}");
    }

    #[test]
    fn words_that_are_no_slice_count_for_nothing() {
        for typed in [
            "",
            "gpu:l40s:4",
            "x",
            "gpu:l40s.2:1,gpu:l40s.2:1",
            "license:x,gpu:l40s.4:1",
        ] {
            let Verdict::Granted(grant) = verdict("", "gres/shard:l40s:1", typed) else {
                panic!("{typed}")
            };
            assert_eq!(grant.asked, "shard:l40s:1", "{typed}");
        }
        // The words are for shards alone.
        let whole = verdict("", "gres/gpu:l40s:1", "gpu:l40s.4:1");
        assert!(matches!(whole, Verdict::Unchanged { tag: Some(_), .. }));
    }
}
