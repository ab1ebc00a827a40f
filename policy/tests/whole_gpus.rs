//! Which jobs with whole GPUs may have them of several types.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside their functions"
)]

use softmig_policy::node::tag::Tag;
use softmig_policy::{Context, Policy, Request, Verdict, decide, decide_without_policy};

fn per_node(gres: &str) -> Request {
    Request {
        tres_per_node: Some(gres.into()),
        ..Request::default()
    }
}

fn answer(request: &Request) -> Verdict {
    let policy = include_str!("../../conf/policy.toml");
    decide(
        &Policy::parse(policy).unwrap(),
        request,
        &Context::default(),
    )
}

/// A policy that shares one type of GPU.
fn one_type(more: &str) -> Policy {
    let gpu = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n";
    Policy::parse(&format!("{gpu}{more}")).unwrap()
}

#[test]
fn a_job_that_gets_gpus_without_naming_them_is_tagged_whole() {
    let request = Request {
        ntasks_per_tres: Some(2),
        num_tasks: Some(2),
        ..Request::default()
    };
    let tag = decide(&one_type(""), &request, &Context::default()).tag();
    assert_eq!(tag, Some(Tag::Whole));
    assert_eq!(answer(&Request::default()).tag(), None);
}

#[test]
fn a_job_that_may_get_gpus_of_several_types_is_tagged_so() {
    for (gres, tag) in [
        ("gres/gpu:l40s:1,gres/gpu:h200:1", Tag::Mixed),
        ("gpu:l40s:1,gpu:1", Tag::Mixed),
        ("gpu:l40s:1,gpu:l40s:1", Tag::Whole),
        ("gpu:2,license:x:1", Tag::Mixed),
    ] {
        assert_eq!(answer(&per_node(gres)).tag(), Some(tag), "{gres}");
        assert_eq!(decide_without_policy(&per_node(gres)).tag(), Some(tag));
    }
    let mut apart = per_node("gpu:l40s:1");
    apart.tres_per_job = Some("gpu:h200:2".into());
    assert_eq!(answer(&apart).tag(), Some(Tag::Mixed));
    for gres in ["", "gpu:l40s:1"] {
        let mut exclusive = per_node(gres);
        exclusive.exclusive = true;
        assert_eq!(answer(&exclusive).tag(), Some(Tag::Mixed), "{gres}");
    }
}

#[test]
fn a_request_for_any_type_may_be_mixed_where_a_node_has_several() {
    let nodes = |gpus: &str| format!("[[nodes]]\nnames = \"n1\"\ngpus = {gpus}\n");
    let kept = "[[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\nuser = \"alice\"\nreason = \"x\"\n\
        start = 2020-01-01\nend = 2020-01-02\n";
    let per_task = Request {
        tres_per_task: Some("gpu:1".into()),
        ..Request::default()
    };
    let mut exclusive = per_node("gpu:l40s:1");
    exclusive.exclusive = true;
    for (more, mixed) in [
        (String::new(), false),
        (kept.to_string(), true),
        (format!("{kept}{}", nodes("[\"l40s:4\"]")), false),
        (
            format!("{kept}{}", nodes("[\"l40s:3\", \"l40s_r:1\"]")),
            true,
        ),
    ] {
        let policy = one_type(&more);
        let context = Context {
            // After its time.
            now: 2_000_000_000,
            ..Context::default()
        };
        let tag = |request: &Request| decide(&policy, request, &context).tag();
        let any = Some(if mixed { Tag::Mixed } else { Tag::Whole });
        for request in [&per_node("gpu:2"), &per_task, &exclusive] {
            assert_eq!(tag(request), any, "{more} {request:?}");
        }
        for gres in ["gpu:1", "gpu", "gpu:l40s:2"] {
            assert_eq!(tag(&per_node(gres)), Some(Tag::Whole), "{more} {gres}");
        }
    }
}
