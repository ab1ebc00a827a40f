//! The promise the project exists for: the limits granted at submission are those enforced on the node.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use softmig_policy::node::job_conf::{Gpus, JobConf, Uuid};
use softmig_policy::node::size::Bytes;
use softmig_policy::node::tag;
use softmig_policy::slurm::gres::{Item, items};
use softmig_policy::{Context, Policy, Request, Tag, Verdict, decide};
use std::num::NonZeroU32;

/// A type as a random but valid table of policy.toml, and its figures.
#[derive(Clone, Debug)]
struct Gpu {
    name: String,
    memory_mib: u32,
    reserved_mib: u32,
    shards: u32,
    mode: &'static str,
}

fn gpu() -> impl Strategy<Value = Gpu> {
    (
        "[a-z][a-z0-9_-]{0,12}(\\.[a-z]{1,3})?",
        1024u32..400_000,
        0u32..1024,
        1u32..=100,
        prop_oneof![Just("hard"), Just("soft")],
    )
        .prop_filter_map(
            "no memory left",
            |(name, memory_mib, reserved_mib, shards, mode)| {
                (memory_mib - reserved_mib >= shards).then_some(Gpu {
                    name,
                    memory_mib,
                    reserved_mib,
                    shards,
                    mode,
                })
            },
        )
}

fn policy(gpu: &Gpu) -> Policy {
    Policy::parse(&format!(
        "raw_shards = \"allow\"\n[gpu.\"{}\"]\nmemory_mib = {}\nreserved_mib = {}\nshards = {}\nmode = \"{}\"\n",
        gpu.name, gpu.memory_mib, gpu.reserved_mib, gpu.shards, gpu.mode
    ))
    .unwrap()
}

fn uuids(count: u8) -> Gpus {
    let mut gpus = Gpus::default();
    for at in 0..count {
        gpus.push(Uuid::parse(&format!("GPU-{at:08x}-1111-2222-3333-444444444444")).unwrap())
            .unwrap();
    }
    gpus
}

proptest! {
    #[test]
    fn a_size_of_memory_is_the_smallest_slice_that_has_it(gpu in gpu(), mib in 1u32..400_000) {
        let policy = policy(&gpu);
        let limits = |size: &str| {
            let tres = Some(format!("gpu:{}.{size}:1", gpu.name));
            let request = Request { tres_per_node: tres, ..Request::default() };
            match decide(&policy, &request, &Context::default()) {
                Verdict::Granted(grant) => Some(grant.limits),
                _ => None,
            }
        };
        let mut slices: Vec<_> = (2..=100).filter_map(|size| limits(&size.to_string())).collect();
        slices.sort_by_key(|it| it.memory_mib());
        let right = slices.into_iter().find(|it| it.memory_mib() >= mib);
        prop_assert_eq!(limits(&format!("{mib}m")), right);
        prop_assert_eq!(limits(&format!("{}.0MiB", mib)), right);
    }

    #[test]
    fn what_submission_grants_is_what_the_node_reads(
        gpu in gpu(),
        shards in 1u32..=100,
        as_slice: bool,
        comment in "[ -~\u{e0}-\u{ff}\n]{0,1100}",
        job: u32,
        uid: u32,
        run in 0u32..100,
        start: Option<u32>,
        count in 0u8..=8,
    ) {
        let text = if as_slice && gpu.shards.is_multiple_of(shards) && shards < gpu.shards {
            format!("gres/gpu:{}.{}:1", gpu.name, gpu.shards / shards)
        } else {
            format!("gres/shard:{}:{shards}", gpu.name)
        };
        let request = Request { tres_per_node: Some(text), ..Request::default() };
        let verdict = decide(&policy(&gpu), &request, &Context::default());
        prop_assert_eq!(shards <= gpu.shards, matches!(verdict, Verdict::Granted(_)));
        if let Verdict::Granted(grant) = &verdict {
            // Submission writes the tag among the user's words ...
            let field = verdict.tag().unwrap().put(&comment);
            prop_assert!(field.len() <= tag::FIELD_MAX);
            // ... the prolog finds it there and writes the conf ...
            let Some(Ok(Tag::Slice(limits))) = Tag::find(&field) else { panic!("{field}") };
            let conf = JobConf { job: NonZeroU32::new(job), uid, run, start, limits: Some(limits), gpus: uuids(count), gate: false, larger: None, pack: None };
            // ... and the hook reads that.
            let read = JobConf::parse(conf.to_string().as_bytes()).unwrap();
            prop_assert_eq!(read.limits, Some(grant.limits));
            prop_assert_eq!(read, conf);
            // The C library reads the same memory from its own key.
            let first = conf.to_string();
            let memory = first.lines().next().unwrap().strip_prefix("CUDA_DEVICE_MEMORY_LIMIT=").unwrap();
            prop_assert_eq!(Bytes::parse(memory).unwrap().mib(), Some(u64::from(grant.limits.memory_mib())));
        }
    }

    #[test]
    fn the_slices_of_a_gpu_never_add_up_to_more_than_it_has(gpu in gpu(), parts in prop::collection::vec(1u32..=100, 1..100)) {
        let policy = policy(&gpu);
        let (mut left, mut memory, mut tenths) = (gpu.shards, 0u64, 0u32);
        for shards in parts {
            if shards > left {
                continue;
            }
            left -= shards;
            let limits = policy.gpu(&gpu.name).unwrap().limits(shards).unwrap();
            memory += u64::from(limits.memory_mib());
            tenths += limits.share().percent_tenths();
        }
        prop_assert!(memory <= u64::from(gpu.memory_mib - gpu.reserved_mib));
        prop_assert!(tenths <= 1000);
    }

    #[test]
    fn no_text_makes_the_parsers_panic_or_lose_a_byte(text in "\\PC{0,60}|[a-z:=/,.0-9 +-]{0,60}") {
        let pieces: Vec<&str> = items(&text).map(|(raw, _)| raw).collect();
        prop_assert_eq!(pieces.join(","), text.as_str());
        let request = Request { tres_per_node: Some(text.clone()), tres_per_task: Some(text.clone()), ..Request::default() };
        let policy = Policy::parse(include_str!("../../conf/policy.toml")).unwrap();
        let _ = decide(&policy, &request, &Context::default());
        let _ = Bytes::parse(&text);
        let _ = Tag::find(&text);
        let _ = JobConf::parse(text.as_bytes());
        let _ = Policy::parse(&text);
    }

    #[test]
    fn a_printed_request_is_read_as_the_same_request(
        kind in prop::option::of("[a-z][a-z0-9.-]{0,10}"),
        count in prop::option::of(0u64..100_000),
        shard: bool,
        equals: bool,
        prefix in prop_oneof![Just(""), Just("gres:"), Just("gres/")],
    ) {
        let name = if shard { "shard" } else { "gpu" };
        let kind_text = kind.as_ref().map(|kind| format!(":{kind}")).unwrap_or_default();
        let separator = if equals { '=' } else { ':' };
        let count_text = count.map(|count| format!("{separator}{count}")).unwrap_or_default();
        let text = format!("{prefix}{name}{kind_text}{count_text}");
        let (_, item) = items(&text).next().unwrap();
        let Item::Gpu(gres) = item else { panic!("{text}") };
        prop_assert_eq!(gres.kind, kind.as_deref());
        prop_assert_eq!(gres.count, count);
        prop_assert_eq!(gres.prefix.as_str(), prefix);
        let printed = gres.to_string();
        let (_, again) = items(&printed).next().unwrap();
        let Item::Gpu(again) = again else { panic!("{printed}") };
        prop_assert_eq!((again.kind, again.count, again.name), (gres.kind, gres.count, gres.name));
    }
}
