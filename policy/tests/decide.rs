//! The rules, one behaviour a test, on the example policy.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use softmig_policy::slurm::gres::Prefix;
use softmig_policy::{
    Code, Context, Grant, Policy, Refusal, Request, Tag, Terms, Verdict, decide,
    decide_without_policy,
};

fn policy() -> Policy {
    Policy::parse(include_str!("../../conf/policy.toml")).unwrap()
}

fn per_node(gres: &str) -> Request {
    Request {
        tres_per_node: Some(gres.into()),
        ..Request::default()
    }
}

fn answer(request: &Request) -> Verdict {
    decide(&policy(), request, &Context::default())
}

fn granted(request: &Request) -> Grant {
    match answer(request) {
        Verdict::Granted(grant) => *grant,
        other => panic!("{request:?}: {other:?}"),
    }
}

fn refused(request: &Request) -> Refusal {
    match answer(request) {
        Verdict::Refused(refusal) => refusal,
        other => panic!("{request:?}: {other:?}"),
    }
}

#[test]
fn a_quarter_is_granted_in_every_spelling() {
    for (asked, got) in [
        ("gpu:l40s.4:1", "shard:l40s:1"),
        ("gpu:l40s.4", "shard:l40s:1"),
        ("gpu:l40s.4=1", "shard:l40s:1"),
        ("gres:gpu:l40s.4:1", "gres:shard:l40s:1"),
        ("gres/gpu:l40s.4=1", "gres/shard:l40s:1"),
        ("gres/shard:l40s:1", "gres/shard:l40s:1"),
        ("gres/shard:l40s", "gres/shard:l40s:1"),
        (
            "gres/license:x:2,gres/gpu:l40s.4:1,gres/mps:0",
            "gres/license:x:2,gres/shard:l40s:1,gres/mps:0",
        ),
    ] {
        let grant = granted(&per_node(asked));
        assert_eq!(grant.request.tres_per_node.as_deref(), Some(got), "{asked}");
        assert_eq!(grant.limits.memory_mib(), 11366);
        assert_eq!(grant.limits.percent().to_string(), "25");
        assert_eq!(
            (grant.request.min_nodes, grant.request.max_nodes),
            (Some(1), Some(1))
        );
    }
}

#[test]
fn a_slice_in_another_field_moves_to_the_node_alone() {
    let request = Request {
        tres_per_node: Some("gres/license:x:1".into()),
        tres_per_task: Some("cpu=2,gres/gpu:l40s.4=1".into()),
        tres_bind: Some("gres/gpu:per_task:1".into()),
        ..Request::default()
    };
    let grant = granted(&request);
    assert_eq!(
        grant.request,
        Request {
            tres_per_node: Some("gres/license:x:1,gres/shard:l40s:1".into()),
            tres_per_task: Some("cpu=2".into()),
            min_nodes: Some(1),
            max_nodes: Some(1),
            ..Request::default()
        }
    );
    let request = Request {
        tres_per_job: Some("gres:gpu:l40s.2:1".into()),
        ..Request::default()
    };
    let grant = granted(&request);
    assert_eq!(grant.request.tres_per_job, None);
    assert_eq!(
        grant.request.tres_per_node.as_deref(),
        Some("gres:shard:l40s:2")
    );
}

#[test]
fn a_granted_request_is_granted_again_unchanged() {
    let once = granted(&per_node("gres/gpu:l40s.2:1"));
    let twice = granted(&once.request);
    assert_eq!(twice.request, once.request);
    assert_eq!(twice.limits, once.limits);
}

#[test]
fn a_request_without_the_releases_mark_gets_it_if_known() {
    let context = Context {
        prefix: Some(Prefix::Colon),
        ..Context::default()
    };
    let Verdict::Granted(grant) = decide(&policy(), &per_node("gpu:l40s.4:1"), &context) else {
        panic!()
    };
    assert_eq!(
        grant.request.tres_per_node.as_deref(),
        Some("gres:shard:l40s:1")
    );
}

#[test]
fn what_is_not_a_slice_passes() {
    for (gres, gpus) in [
        ("gres/gpu:l40s:2", true),
        ("gres:gpu:1", true),
        ("gpu", true),
        ("gres/gpu:h100_1g.10gb:1", true),
        ("gres/gpu:l40s:", true),
        ("gres/license:x:1", false),
        ("gres/mps:80", false),
        ("", false),
    ] {
        let verdict = answer(&per_node(gres));
        let terms = Terms::default();
        let tag = gpus.then_some(Tag::Whole);
        assert_eq!(verdict.tag(), tag, "{gres}");
        assert_eq!(verdict, Verdict::Unchanged { tag, terms }, "{gres}");
    }
}

#[test]
fn a_type_listed_as_plain_is_no_slice() {
    let policy = Policy::parse("plain_types = [\"foo.2\", \"0.5\"]\n").unwrap();
    for gres in ["gpu:foo.2:1", "gpu:0.5:1"] {
        let verdict = decide(&policy, &per_node(gres), &Context::default());
        let terms = Terms::default();
        let tag = Some(Tag::Whole);
        assert_eq!(verdict, Verdict::Unchanged { tag, terms });
    }
}

#[test]
fn every_wrong_request_has_its_code() {
    for (gres, code) in [
        ("gpu:l40s.1:1", Code::SliceIsWholeGpu),
        ("gpu:l40s.3:1", Code::SliceSize),
        ("gpu:l40s.0:1", Code::SliceSize),
        ("gpu:l40s.04:1", Code::SliceSize),
        ("gpu:l40s.8:1", Code::SliceSize),
        ("gpu:l40s.99999999999:1", Code::SliceSize),
        ("gpu:titanrtx.2:1", Code::SliceSize),
        ("gpu:l40s.4:2", Code::SliceCount),
        ("gpu:l40s.4:3", Code::SliceCount),
        ("gpu:l40s.4:1,gpu:l40s.4:1", Code::SliceCount),
        ("gpu:l40s.4:1,shard:l40s:1", Code::SliceCount),
        ("gpu:l40s.4:1,gpu:l40s:1", Code::SliceMixed),
        ("shard:l40s:1,gpu:1", Code::SliceMixed),
        ("gpu:foo.2:1", Code::SliceType),
        ("gpu:L40S.4:1", Code::SliceType),
        ("shard:foo:1", Code::SliceType),
        ("shard:1", Code::RawShard),
        ("shard", Code::RawShard),
        ("shard:l40s:3", Code::RawShard),
        ("shard:l40s:4", Code::RawShard),
        ("shard:l40s:9", Code::RawShard),
        ("gpu:l40s.4:x", Code::Malformed),
        ("gpu:l40s.4:1:1", Code::Malformed),
        ("shard:l40s:", Code::Malformed),
        ("xgres:shard:9", Code::Malformed),
    ] {
        let refusal = refused(&per_node(gres));
        assert_eq!(refusal.code(), code, "{gres}: {refusal}");
    }
}

#[test]
fn a_part_as_people_write_it_elsewhere_gets_the_slice_that_it_means() {
    for (gres, meant) in [
        ("gpu:l40s:0.5", 2),
        ("gpu:l40s:0.25:1", 4),
        ("gpu:l40s:1/2", 2),
        ("gpu:l40s.50%:1", 2),
        ("gpu:l40s.25%", 4),
        ("gpu:l40s.half:1", 2),
        ("gpu:l40s.Quarter:1", 4),
        ("gpu:0.5", 2),
        ("gpu:0.25:1", 4),
        ("gpu:1/2:1", 2),
        ("gpu:.4:1", 4),
        ("gpu.2:1", 2),
        ("gpu:l40s.0.5:1", 2),
        ("gpu:l40s:25%", 4),
        ("gpu:l40s:half", 2),
        ("gpu:l40s:quarter:1", 4),
        ("gpu:l40s.fourth:1", 4),
        ("gpu:50%", 2),
        ("shard:0.25", 4),
        // The next larger part that there is, or else the largest.
        ("gpu:l40s:0.3", 2),
        ("gpu:l40s:0.75", 2),
        ("gpu:l40s:2/4", 2),
        ("gpu:l40s.0x:1", 4),
        ("gpu:l40s:1.5", 4),
        ("gpu:l40s:0.0", 4),
        ("gpu:nan%", 4),
    ] {
        let refusal = refused(&per_node(gres));
        let hint = format!("--gres=gpu:l40s.{meant}:1");
        assert_eq!(refusal.code(), Code::Malformed, "{gres}: {refusal}");
        assert!(refusal.hint().contains(&hint), "{gres}: {refusal}");
    }
    let twice = Request {
        tres_per_job: Some("gres/gpu:l40s.4:2".into()),
        min_nodes: Some(2),
        ..Request::default()
    };
    let refusal = refused(&twice);
    let hint = "use --gres=gpu:l40s.4:1 --nodes=2 for a slice on each node";
    assert!(refusal.hint().contains(hint), "{refusal}");
    let each = Request {
        min_nodes: Some(2),
        ..per_node("gres/gpu:l40s.4:2")
    };
    assert!(!refused(&each).hint().contains("each node"));
}

#[test]
fn each_node_has_a_slice_and_no_more_nodes_than_it_needs() {
    let nodes = |min, max| {
        let request = Request {
            min_nodes: Some(min),
            max_nodes: Some(max),
            ..per_node("gpu:l40s.4:1")
        };
        let grant = granted(&request);
        assert_eq!(grant.request.tres_per_node.as_deref(), Some("shard:l40s:1"));
        (grant.request.min_nodes, grant.request.max_nodes)
    };
    assert_eq!(nodes(1, 4), (Some(1), Some(1)));
    assert_eq!(nodes(2, 2), (Some(2), Some(2)));
    assert_eq!(nodes(2, 8), (Some(2), Some(2)));
    assert_eq!(nodes(0, 8), (Some(1), Some(1)));
    let by_tasks = granted(&Request {
        num_tasks: Some(5),
        ntasks_per_node: Some(2),
        ..per_node("gpu:l40s.4:1")
    });
    assert_eq!(by_tasks.request.min_nodes, Some(3));
    let two = |change: fn(&mut Request)| {
        let mut request = Request {
            min_nodes: Some(2),
            ..Request::default()
        };
        change(&mut request);
        request
    };
    // One in all is not one on each.
    let in_all = two(|it| it.tres_per_job = Some("gpu:l40s.4:1".into()));
    assert_eq!(refused(&in_all).code(), Code::SliceNodes);
    // One for each task is one on each node, if each node has a task.
    let by_task = two(|it| {
        it.tres_per_task = Some("gpu:l40s.4:1".into());
        it.ntasks_per_node = Some(1);
        it.num_tasks = Some(2);
    });
    let granted = granted(&by_task).request;
    assert_eq!(granted.tres_per_node.as_deref(), Some("shard:l40s:1"));
    let anywhere = two(|it| {
        it.tres_per_task = Some("gpu:l40s.4:1".into());
        it.num_tasks = Some(2);
    });
    assert_eq!(refused(&anywhere).code(), Code::SlicePerTask);
}

#[test]
fn figures_per_gpu_count_once_for_each_node() {
    let grant = granted(&Request {
        min_nodes: Some(3),
        cpus_per_tres: Some("gres:gpu:4".into()),
        mem_per_tres: Some("gres:gpu:100".into()),
        ntasks_per_tres: Some(2),
        min_cpus: Some(3),
        ..per_node("gres:gpu:l40s.4:1")
    });
    assert_eq!(
        grant.request,
        Request {
            num_tasks: Some(6),
            ntasks_per_node: Some(2),
            cpus_per_task: Some(2),
            min_cpus: Some(12),
            memory_per_node: Some(100),
            min_nodes: Some(3),
            max_nodes: Some(3),
            ..per_node("gres:shard:l40s:1")
        }
    );
}

#[test]
fn a_slice_belongs_to_one_task_one_socket() {
    let quarter = Some("gres:gpu:l40s.4:1".to_string());
    let task = |tasks| Request {
        tres_per_task: quarter.clone(),
        num_tasks: tasks,
        ..Request::default()
    };
    assert_eq!(refused(&task(Some(2))).code(), Code::SlicePerTask);
    granted(&task(Some(1)));
    granted(&task(None));
    let socket = |sockets| Request {
        tres_per_socket: quarter.clone(),
        sockets_per_node: sockets,
        ..Request::default()
    };
    assert_eq!(refused(&socket(Some(2))).code(), Code::SlicePerTask);
    granted(&socket(None));
}

#[test]
fn figures_per_gpu_become_figures_of_the_job() {
    let grant = granted(&Request {
        cpus_per_tres: Some("gres:gpu:4".into()),
        mem_per_tres: Some("gres:gpu:100".into()),
        ntasks_per_tres: Some(2),
        min_cpus: Some(1),
        ..per_node("gres:gpu:l40s.4:1")
    });
    assert_eq!(
        grant.request,
        Request {
            num_tasks: Some(2),
            cpus_per_task: Some(2),
            min_cpus: Some(4),
            memory_per_node: Some(100),
            min_nodes: Some(1),
            max_nodes: Some(1),
            ..per_node("gres:shard:l40s:1")
        }
    );
}

#[test]
fn tasks_of_a_node_count_where_no_others_are_given() {
    let grant = granted(&Request {
        cpus_per_tres: Some("gres:gpu:8".into()),
        ntasks_per_node: Some(4),
        ..per_node("gres:gpu:l40s.4:1")
    });
    assert_eq!(grant.request.cpus_per_task, Some(2));
    let grant = granted(&Request {
        ntasks_per_tres: Some(4),
        cpus_per_task: Some(2),
        min_cpus: Some(2),
        mem_per_tres: Some("gres:gpu:0".into()),
        ..per_node("gres:gpu:l40s.4:1")
    });
    assert_eq!(
        (grant.request.num_tasks, grant.request.min_cpus),
        (Some(4), Some(8))
    );
    assert_eq!(grant.request.memory_per_node, None);
}

#[test]
fn a_hint_is_never_itself_refused() {
    let policy = Policy::parse("raw_shards = \"allow\"\n[gpu.x]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 4\nslices = [2]\n").unwrap();
    let hint = |request: &Request| match decide(&policy, request, &Context::default()) {
        Verdict::Refused(refusal) => refusal.hint(),
        other => panic!("{other:?}"),
    };
    assert!(hint(&per_node("shard:x:3,gpu:1")).contains("--gres=shard:x:3,"));
    let two_nodes = Request {
        min_nodes: Some(2),
        tres_per_job: Some("shard:x:1".into()),
        ..Request::default()
    };
    assert!(hint(&two_nodes).contains("--gres=shard:x:1 --nodes=2 for a slice on each node"));
}

#[test]
fn options_that_cannot_go_with_a_slice_are_refused() {
    let quarter = || per_node("gpu:l40s.4:1");
    for request in [
        Request {
            exclusive: true,
            ..quarter()
        },
        Request {
            tres_freq: Some("gpu:low".into()),
            ..quarter()
        },
        Request {
            cpus_per_tres: Some("gpu:3".into()),
            num_tasks: Some(2),
            ..quarter()
        },
        Request {
            cpus_per_tres: Some("gpu:4".into()),
            cpus_per_task: Some(2),
            ..quarter()
        },
    ] {
        assert_eq!(refused(&request).code(), Code::SliceOption, "{request:?}");
    }
    // A binding that fits one shared GPU stays.
    let bound = Request {
        tres_bind: Some("gres:gpu:closest".into()),
        ..quarter()
    };
    assert_eq!(granted(&bound).request.tres_bind, bound.tres_bind);
}

#[test]
fn raw_shards_are_granted_up_to_one_gpu_if_allowed() {
    let table =
        "raw_shards = \"allow\"\n[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n";
    let one_type = Policy::parse(table).unwrap();
    let two_types = Policy::parse(&format!(
        "{table}[gpu.x]\nmemory_mib = 8000\nreserved_mib = 0\nshards = 8\n"
    ))
    .unwrap();
    let memory =
        |policy: &Policy, gres: &str| match decide(policy, &per_node(gres), &Context::default()) {
            Verdict::Granted(grant) => Ok((
                grant.limits.memory_mib(),
                grant.request.tres_per_node.unwrap(),
            )),
            Verdict::Refused(refusal) => Err(refusal.code()),
            Verdict::Unchanged { .. } => panic!(),
        };
    assert_eq!(
        memory(&one_type, "shard:l40s:3"),
        Ok((34098, "shard:l40s:3".into()))
    );
    assert_eq!(
        memory(&one_type, "shard:4"),
        Ok((45464, "shard:l40s:4".into()))
    );
    assert_eq!(memory(&one_type, "shard:5"), Err(Code::RawShard));
    assert_eq!(memory(&two_types, "shard:1"), Err(Code::RawShard));
}

#[test]
fn without_a_policy_only_slices_are_refused() {
    let code = |gres: &str| match decide_without_policy(&per_node(gres)) {
        Verdict::Refused(refusal) => Some(refusal.code()),
        Verdict::Unchanged { .. } => None,
        Verdict::Granted(_) => panic!(),
    };
    for gres in ["gpu:l40s.4:1", "shard:1", "gpu:l40s.4:x"] {
        assert_eq!(code(gres), Some(Code::PolicyUnreadable), "{gres}");
    }
    for gres in ["gpu:l40s:1", "gpu:1", "license:x:1"] {
        assert_eq!(code(gres), None, "{gres}");
    }
}

#[test]
fn requests_are_refused_in_these_words() {
    let mut texts = String::new();
    let mut add = |name: &str, request: &Request| {
        texts.push_str(&format!(
            "{}\n{}\n\n",
            name.escape_default(),
            refused(request)
        ));
    };
    for gres in [
        "gpu:l40s.1:1",
        "gpu:l40s.3:1",
        "gpu:l40s.8:1",
        "gpu:titanrtx.2:1",
        "gpu:l40s.4:2",
        "gpu:l40s.4:3",
        "gpu:l40s.4:8",
        "gpu:l40s.4:1,gpu:l40s.2:1",
        "gpu:l40s.4:1,gpu:l40s:1",
        "gpu:foo.2:1",
        "gpu:L40S.4:1",
        "gpu:l4os.4:1",
        "gpu:L40S.3:1",
        "shard:1",
        "shard:l40s:3",
        "shard:l40s:9",
        "gpu:l40s.4:x",
        "gpu:l40s.4:\u{7}\u{e9}",
    ] {
        add(gres, &per_node(gres));
    }
    let quarter = || per_node("gpu:l40s.4:1");
    add(
        "two nodes",
        &Request {
            tres_per_job: Some("gpu:l40s.4:1".into()),
            min_nodes: Some(2),
            max_nodes: Some(2),
            ..Request::default()
        },
    );
    add(
        "per task",
        &Request {
            tres_per_task: Some("gres/gpu:l40s.4=1".into()),
            num_tasks: Some(4),
            ..Request::default()
        },
    );
    add(
        "exclusive",
        &Request {
            exclusive: true,
            ..quarter()
        },
    );
    add(
        "gpu-freq",
        &Request {
            tres_freq: Some("gpu:low".into()),
            ..quarter()
        },
    );
    add(
        "cpus-per-gpu",
        &Request {
            cpus_per_tres: Some("gpu:3".into()),
            num_tasks: Some(2),
            ..quarter()
        },
    );
    texts.push_str(&format!("tag\n{}\n", Refusal::tag_edit()));
    assert!(texts.is_ascii());
    insta::assert_snapshot!(texts);
}

#[test]
fn a_type_that_no_node_shares_has_no_slices() {
    const TYPES: &str = "[gpu.a100]\nmemory_mib = 40960\nreserved_mib = 500\nshards = 4\n\
        [gpu.\"1g.5gb\"]\nmemory_mib = 4864\nreserved_mib = 0\nshards = 2\nmig = true\n";
    let verdict = |nodes: &str, gres: &str| {
        let policy = Policy::parse(&format!("{TYPES}{nodes}")).unwrap();
        decide(&policy, &per_node(gres), &Context::default())
    };
    let mixed = "[[nodes]]\nnames = \"n1\"\ngpus = [\"a100:3\", \"1g.5gb:7\"]\n";
    for gres in ["gpu:a100.4:1", "shard:a100:2", "gpu:1g.5gb.2:1"] {
        let Verdict::Refused(refusal) = verdict(mixed, gres) else {
            panic!("{gres}")
        };
        assert_eq!(refusal.code(), Code::SliceType, "{gres}");
        // Another node has it, or nothing is known of the type.
        let others = "[[nodes]]\nnames = \"n2\"\ngpus = [\"a100:4\"]\n\
                      [[nodes]]\nnames = \"n3\"\ngpus = [\"1g.5gb:7\"]\n";
        for nodes in [format!("{mixed}{others}"), String::new()] {
            assert!(
                matches!(verdict(&nodes, gres), Verdict::Granted(_)),
                "{gres}"
            );
        }
    }
    assert!(matches!(
        verdict(mixed, "gpu:a100:1"),
        Verdict::Unchanged { tag: Some(_), .. }
    ));
}

/// The memory of the example's slices is 22732 and 11366 MiB of an L40S, and a whole one has 45464 MiB.
#[test]
fn a_size_of_memory_is_the_smallest_slice_that_has_it() {
    for (asked, got) in [
        ("gpu:l40s.10g:1", 11366),
        ("gpu:l40s.11GiB:1", 11366),
        ("gpu:l40s.11366m:1", 11366),
        ("gpu:l40s.11366MB", 11366),
        ("gpu:l40s.1m:1", 11366),
        ("gpu:l40s.11.1g:1", 22732),
        ("gpu:l40s.11367M:1", 22732),
        ("gpu:l40s.12g:1", 22732),
        ("gres/gpu:l40s.12G=1", 22732),
        ("gres:gpu:l40s.12gb", 22732),
    ] {
        let grant = granted(&per_node(asked));
        assert_eq!(grant.limits.memory_mib(), got, "{asked}");
        // Slurm and the node get the slice that it is.
        let size = if got == 11366 { 4 } else { 2 };
        let plain = granted(&per_node(&format!("gpu:l40s.{size}:1")));
        assert_eq!(grant.limits, plain.limits, "{asked}");
        let tres = grant.request.tres_per_node.unwrap();
        assert!(
            tres.ends_with(&plain.request.tres_per_node.unwrap()),
            "{tres}"
        );
    }
}

#[test]
fn more_memory_than_a_slice_has_is_refused_with_what_has_it() {
    const TWO: &str = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n\
        [gpu.h100]\nmemory_mib = 81559\nreserved_mib = 1000\nshards = 8\n";
    for (asked, hint) in [
        (
            "gpu:l40s.30g:1",
            "use --gres=gpu:l40s:1 for a whole GPU, or --gres=gpu:h100.2:1 (40279 MiB, 50 % of the GPU's time)",
        ),
        (
            "gpu:l40s.44.3g:1",
            "use --gres=gpu:l40s:1 or --gres=gpu:h100:1 for a whole GPU",
        ),
        ("gpu:h100.70g:1", "use --gres=gpu:h100:1 for a whole GPU"),
        ("gpu:l40s.70g:1", "use --gres=gpu:h100:1 for a whole GPU"),
        (
            "gpu:h100.90g:1",
            "you may have nothing with so much memory; use --gres=gpu:h100.2:1 (40279 MiB, 50 % of the GPU's time)",
        ),
        ("gpu:L40S.12g:1", "did you mean --gres=gpu:l40s.2:1?"),
    ] {
        let policy = Policy::parse(TWO).unwrap();
        let verdict = decide(&policy, &per_node(asked), &Context::default());
        let Verdict::Refused(refusal) = verdict else {
            panic!("{asked}: {verdict:?}")
        };
        assert_eq!(refusal.hint(), hint, "{asked}");
        assert!(refusal.message().starts_with(asked), "{refusal}");
    }
    let refusal = refused(&per_node("gpu:l40s.23g:1"));
    assert_eq!(
        refusal.message(),
        "gpu:l40s.23g:1: GPUs of type l40s have 45464 MiB, and their largest slices 22732 MiB"
    );
}

#[test]
fn what_is_no_size_of_memory_is_none() {
    for gres in [
        "gpu:l40s.0g:1",
        "gpu:l40s.012g:1",
        "gpu:l40s.12k:1",
        "gpu:l40s.99999999999999999999g",
        "gpu:l40s.12g:x",
        "l40s.12g:1",
    ] {
        let refusal = refused(&per_node(gres));
        assert_eq!(refusal.code(), Code::Malformed, "{gres}: {refusal}");
    }
    // Types of Slurm's.
    let policy = Policy::parse(
        "plain_types = [\"l40s.48g\"]\n[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n",
    );
    let policy = policy.unwrap();
    for gres in [
        "gpu:l40s.48g:1",
        "gpu:h100_1g.10gb:1",
        "gpu:l40s.1g.10gb:1",
        "gpu:foo.12g:1",
    ] {
        let verdict = decide(&policy, &per_node(gres), &Context::default());
        assert_eq!(verdict.tag(), Some(Tag::Whole), "{gres}: {verdict:?}");
    }
}
