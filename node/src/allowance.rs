//! The allowance: what a job may take of each of its GPUs.
//!
//! The tag says it, and it is what the user was promised. Only a job without a readable one (from before softmig was
//! installed, or tagged by a newer version) costs a question to slurmctld, and only if that stays unanswered the
//! policy's `on_unknown` decides.

use crate::job::JobId;
use crate::slurmctld::AskError;
use softmig_policy::NodePolicy;
use softmig_policy::config::node_policy::OnUnknown;
use softmig_policy::node::limits::Limits;
use softmig_policy::node::tag::{Tag, TagError};
use softmig_policy::slurm::allocation::Allocation;
use std::fmt;
use tracing::{error, warn};

/// The GPU memory and time that a job may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// All of its GPUs.
    Whole(Source),
    /// The same, and Slurm's list of them may lack some: they may be of several types.
    Mixed(Source),
    /// A slice.
    Slice(Limits, Source),
    /// Nothing is known, not even a policy. No conf is written, and the hook shows such a job no GPU.
    Unknown,
    /// It has no tag, so job_submit has not decided on it, and the policy gives such jobs no GPU.
    Unseen,
    /// slurmctld gave no answer, and the policy says that the node must then be drained.
    Drain,
}

impl Allowance {
    /// The allowance for a job on this number of GPUs here. A slice is a part of one GPU; where Slurm is configured to spread a
    /// job's shards (`MULTIPLE_SHARING_GRES_PJ`), each of the GPUs gives it no more than one shard.
    pub fn on_gpus(self, id: JobId, gpus: usize) -> Self {
        match self {
            Self::Slice(limits, source) if gpus > 1 => {
                warn!(
                    job = id.get(),
                    "job={id} has {} on {gpus} GPUs and may take one shard of each; leave \
                     MULTIPLE_SHARING_GRES_PJ out of SelectTypeParameters",
                    limits.share()
                );
                Self::Slice(limits.of_one_shard(), source)
            }
            other => other,
        }
    }

    /// Whether the job must not start unless this is on disk. A job that may take all of its GPUs needs nothing there
    /// to be kept within limits; one of which nothing is known must at least not find an older job's conf.
    pub fn must_be_recorded(&self) -> bool {
        !matches!(self, Self::Whole(_) | Self::Mixed(_))
    }
}

/// The source of an allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The job's tag.
    Tag,
    /// slurmctld.
    Slurmctld,
    /// Neither: it is the smallest slice of the GPU's type.
    Smallest,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tag => "tag",
            Self::Slurmctld => "slurmctld",
            Self::Smallest => "smallest",
        })
    }
}

/// Decides for a job. `model` is its GPU's name, `ask` asks slurmctld.
pub fn decide(
    id: JobId,
    tag: Option<Result<Tag, TagError>>,
    policy: Option<&NodePolicy>,
    model: Option<&str>,
    ask: impl FnOnce() -> Result<Allocation, AskError>,
) -> Allowance {
    match tag {
        Some(Ok(Tag::Whole)) => return Allowance::Whole(Source::Tag),
        Some(Ok(Tag::Mixed)) => return Allowance::Mixed(Source::Tag),
        Some(Ok(Tag::Slice(limits))) => {
            if let Some(difference) = policy.and_then(|policy| difference(&limits, policy)) {
                warn!(
                    job = id.get(),
                    "job={id} keeps the limits of its tag: {difference}"
                );
            }
            return Allowance::Slice(limits, Source::Tag);
        }
        Some(Err(problem)) => warn!(job = id.get(), "job={id} asks slurmctld: {problem}"),
        // Its tag says that slurmctld knows, or it has none.
        _ => {}
    }
    match ask() {
        Ok(Allocation::Whole) => return Allowance::Whole(Source::Slurmctld),
        Ok(Allocation::Mixed) => return Allowance::Mixed(Source::Slurmctld),
        Ok(Allocation::Shards { kind, shards }) => {
            let limits = policy.and_then(|policy| policy.allocated(kind.as_deref(), shards));
            if let Some(limits) = limits {
                return Allowance::Slice(limits, Source::Slurmctld);
            }
            warn!(
                job = id.get(),
                "job={id} has {shards} shards of {kind:?}, which the policy does not know"
            );
        }
        Ok(Allocation::Nothing) => {
            warn!(
                job = id.get(),
                "job={id} has GPUs here, but slurmctld names none"
            );
        }
        Err(problem) => {
            warn!(
                job = id.get(),
                "job={id}: no answer from slurmctld: {problem}"
            );
            // Users can bring it about by changing a job, so that drains no node.
            let drains = policy.is_some_and(|policy| policy.on_unknown == OnUnknown::Drain);
            if drains && tag != Some(Ok(Tag::Ask)) {
                return Allowance::Drain;
            }
        }
    }
    // Also if the answer makes no sense: it holds words of the user's.
    smallest(id, policy, model)
}

fn smallest(id: JobId, policy: Option<&NodePolicy>, model: Option<&str>) -> Allowance {
    let Some(policy) = policy else {
        error!(
            job = id.get(),
            "job={id} gets no GPU: neither its tag nor slurmctld nor a policy says what it may take"
        );
        return Allowance::Unknown;
    };
    match policy.smallest(model) {
        Some(limits) => {
            warn!(
                job = id.get(),
                "job={id} gets the smallest slice, as nothing says what it may take"
            );
            Allowance::Slice(limits, Source::Smallest)
        }
        None => {
            error!(
                job = id.get(),
                "job={id} gets no GPU: the policy has no type that can be cut"
            );
            Allowance::Unknown
        }
    }
}

/// How the policy's limits for the same shards differ from the tag's, if they do.
fn difference(tag: &Limits, policy: &NodePolicy) -> Option<String> {
    let name = tag.gpu_type().as_str();
    let Some(gpu) = policy.gpu(name) else {
        return Some(format!("policy.toml has no [gpu.{name}]"));
    };
    let here = match gpu.limits(tag.share().shards()) {
        Ok(here) if here == *tag => return None,
        Ok(here) => Tag::Slice(here).to_string(),
        Err(error) => error.to_string(),
    };
    Some(format!("tag {}, policy.toml {here}", Tag::Slice(*tag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n";
    const DRAIN: &str = "[node]\non_unknown = \"drain\"\n";

    fn tag(text: &str) -> Option<Result<Tag, TagError>> {
        Tag::find(text)
    }

    fn allowance(
        text: &str,
        policy: Option<&str>,
        answer: Result<Allocation, AskError>,
    ) -> Allowance {
        let policy = policy.map(|text| NodePolicy::parse(text).unwrap());
        let id = JobId::parse("7").unwrap();
        decide(id, tag(text), policy.as_ref(), Some("NVIDIA L40S"), || {
            answer
        })
    }

    fn memory(allowance: Allowance) -> (u32, Source) {
        match allowance {
            Allowance::Slice(limits, source) => (limits.memory_mib(), source),
            other => panic!("{other:?}"),
        }
    }

    fn shards(kind: &str, shards: u64) -> Result<Allocation, AskError> {
        Ok(Allocation::Shards {
            kind: Some(kind.to_string()),
            shards,
        })
    }

    #[test]
    fn a_tag_decides_and_slurmctld_is_not_asked() {
        let id = JobId::parse("7").unwrap();
        for (text, expected) in [
            ("softmig=1:whole", None),
            ("softmig=1:l40s:1/4:9999:soft", Some(9999)),
        ] {
            let allowance = decide(id, tag(text), None, None, || panic!("asked"));
            match expected {
                None => assert_eq!(allowance, Allowance::Whole(Source::Tag)),
                Some(mib) => assert_eq!(memory(allowance), (mib, Source::Tag)),
            }
        }
        let mixed = decide(id, tag("softmig=1:mixed"), None, None, || panic!("asked"));
        assert_eq!(mixed, Allowance::Mixed(Source::Tag));
    }

    #[test]
    fn a_difference_to_the_policy_is_named() {
        let policy = NodePolicy::parse(POLICY).unwrap();
        let limits = |text: &str| match tag(text) {
            Some(Ok(Tag::Slice(limits))) => limits,
            other => panic!("{other:?}"),
        };
        let difference = |text: &str| difference(&limits(text), &policy);
        assert_eq!(difference("softmig=1:l40s:1/4:11366:hard"), None);
        for (text, part) in [
            (
                "softmig=1:l40s:1/4:9999:hard",
                "policy.toml softmig=1:l40s:1/4:11366:hard",
            ),
            ("softmig=1:l40s:1/4:11366:soft", "11366:hard"),
            ("softmig=1:l40s:1/8:11366:hard", "1/4"),
            ("softmig=1:l40s:7/8:11366:hard", "not a share"),
            ("softmig=1:a100:1/4:11366:hard", "no [gpu.a100]"),
        ] {
            assert!(difference(text).unwrap().contains(part), "{text}");
        }
    }

    #[test]
    fn without_a_readable_tag_slurmctld_decides() {
        for text in ["", "softmig=1:ask", "softmig=2:whole", "softmig=1:whole:x"] {
            assert_eq!(
                allowance(text, Some(POLICY), Ok(Allocation::Whole)),
                Allowance::Whole(Source::Slurmctld)
            );
            assert_eq!(
                allowance(text, Some(POLICY), Ok(Allocation::Mixed)),
                Allowance::Mixed(Source::Slurmctld)
            );
            let slice = allowance(text, Some(POLICY), shards("l40s", 2));
            assert_eq!(memory(slice), (22732, Source::Slurmctld));
        }
        assert_eq!(
            allowance("", None, Ok(Allocation::Whole)),
            Allowance::Whole(Source::Slurmctld)
        );
    }

    #[test]
    fn without_an_answer_the_policy_decides() {
        let silent = || Err(AskError::NotFound);
        assert_eq!(
            memory(allowance("", Some(POLICY), silent())),
            (11366, Source::Smallest)
        );
        let drain = format!("{POLICY}{DRAIN}");
        assert_eq!(allowance("", Some(&drain), silent()), Allowance::Drain);
        assert_eq!(allowance("", None, silent()), Allowance::Unknown);
        assert_eq!(allowance("", Some(""), silent()), Allowance::Unknown);
    }

    #[test]
    fn no_word_of_a_users_drains_a_node_that_drains_on_unknown() {
        let drain = format!("{POLICY}{DRAIN}");
        let answers = || {
            [
                "Comment=x Nodes=n1 GRES=shard:nosuch:1 Nodes=n1 GRES=gpu:l40s:4(IDX:0-3)",
                "Nodes=n1 GRES=gpu:l40s:4(IDX:0-3) Comment=x Nodes=n1 GRES=shard:nosuch:1",
                "Comment=x Nodes=n1 GRES=shard:l40s:99999999999999999999 Nodes=n1 GRES=gpu:l40s:4(IDX:0-3)",
                "Comment=x",
                "",
            ]
            .map(|line| Allocation::parse(line, "n1"))
        };
        for answer in answers() {
            let found = allowance("", Some(&drain), Ok(answer.clone()));
            match answer {
                // Words that only look like an answer change nothing.
                Allocation::Whole => assert_eq!(found, Allowance::Whole(Source::Slurmctld)),
                _ => assert_eq!(memory(found), (11366, Source::Smallest)),
            }
            let without_policy = allowance("", None, Ok(answer));
            assert_ne!(without_policy, Allowance::Drain);
        }
    }
}
