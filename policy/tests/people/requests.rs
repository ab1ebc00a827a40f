//! Requests that are counted and rewritten: units of mps, routes, the host's part.

use super::*;

#[test]
fn whole_gpus_are_counted_however_they_are_asked_for() {
    let policy = policy(CLASSES);
    let tres = |text: &str| Some(text.to_string());
    for request in [
        Request {
            tres_per_node: tres("gpu:l40s:1"),
            min_nodes: Some(3),
            ..Request::default()
        },
        Request {
            tres_per_job: tres("gpu:l40s:3"),
            ..Request::default()
        },
        Request {
            tres_per_task: tres("gres/gpu:l40s=1"),
            num_tasks: Some(3),
            ..Request::default()
        },
        Request {
            tres_per_socket: tres("gpu:l40s:2"),
            sockets_per_node: Some(2),
            ..Request::default()
        },
        Request {
            tres_per_node: tres("gpu:l40s:2,gpu:h100:1"),
            ..Request::default()
        },
        Request {
            tres_per_node: tres("gpu:l40s:18446744073709551615"),
            min_nodes: Some(9),
            ..Request::default()
        },
    ] {
        let refusal = refused(ask_for(&policy, &request, researcher()));
        assert_eq!(refusal.code(), Code::LimitJob, "{request:?}");
    }
}

#[test]
fn units_of_mps_are_slices_where_the_policy_says_so() {
    let plain = policy("");
    passed(ask(&plain, "mps:80", alice()));
    let policy = policy("[legacy.mps]\ntype = \"titanrtx\"\nunits_per_gpu = 320\n");
    for (units, shards) in [(320, 80), (80, 20), (40, 10), (32, 8), (20, 5), (16, 4)] {
        for gres in [
            format!("gres:mps:{units}"),
            format!("gres:mps:titanrtx:{units}"),
        ] {
            let grant = granted(ask(&policy, &gres, alice()));
            let expected = format!("gres:shard:titanrtx:{shards}");
            assert_eq!(grant.request.tres_per_node, Some(expected), "{gres}");
        }
    }
    insta::assert_snapshot!(refused(ask(&policy, "mps:50", alice())), @r"
    softmig: mps:50: a job can have 320, 80, 40, 32, 20 or 16 of the 320 units of one titanrtx [SLICE_SIZE]
    softmig: use --gres=mps:80, which is --gres=gpu:titanrtx.4:1; or --gres=mps:40, which is --gres=gpu:titanrtx.8:1
    ");
    insta::assert_snapshot!(refused(ask(&policy, "mps:400", alice())).message(), @"mps:400: 320 units are a whole titanrtx, and a job can share only one GPU");
    // The request that cli_filter made of all units.
    let all = granted(ask(&policy, "shard:titanrtx:80", alice()));
    assert_eq!(all.limits.memory_mib(), 24220);
    assert_eq!(
        refused(ask(&self::policy(""), "shard:titanrtx:80", alice())).code(),
        Code::RawShard
    );
    insta::assert_snapshot!(refused(ask(&policy, "mps:l40s:80", alice())), @r"
    softmig: mps:l40s:80: units of mps are parts of GPUs of type titanrtx [SLICE_TYPE]
    softmig: omit the type, or use --gres=gpu:titanrtx.4:1
    ");
    for (gres, code) in [
        ("mps", Code::SliceSize),
        ("mps:160", Code::SliceSize),
        ("mps:1000", Code::SliceIsWholeGpu),
        ("mps:l40s:80", Code::SliceType),
        ("mps:80,gpu:l40s.4:1", Code::SliceCount),
        ("mps:80,gpu:1", Code::SliceMixed),
        ("mps:x:y", Code::Malformed),
        ("xgres/mps:80", Code::Malformed),
    ] {
        assert_eq!(refused(ask(&policy, gres, alice())).code(), code, "{gres}");
    }
}

#[test]
fn a_slice_job_without_partition_takes_the_first_fitting_route() {
    let policy = policy(
        "[[route]]\npartition = \"quick\"\ntypes = [\"l40s\"]\nmax_time = \"4:00:00\"\njobs = \"interactive\"\n\
         [[route]]\npartition = \"short\"\nmax_time = \"1:00:00\"\n\
         [[route]]\npartition = \"slices\"\njobs = \"batch\"\n\
         [[gate]]\nwhat = \"slice\"\nreservation = [\"x\"]\npartitions = [\"short\"]\n",
    );
    let route = |gres, submitter| passed(ask(&policy, gres, submitter)).partition;
    let quick = Submitter {
        batch: false,
        time_limit: Some(240),
        ..alice()
    };
    assert_eq!(
        route("gpu:l40s.4:1", quick.clone()).as_deref(),
        Some("quick")
    );
    assert_eq!(route("gpu:h200.4:1", quick.clone()), None);
    assert_eq!(
        route(
            "gpu:l40s.4:1",
            Submitter {
                time_limit: Some(241),
                ..quick.clone()
            }
        ),
        None
    );
    assert_eq!(
        route(
            "gpu:l40s.4:1",
            Submitter {
                time_limit: None,
                ..quick.clone()
            }
        ),
        None
    );
    assert_eq!(route("gpu:l40s.4:1", alice()).as_deref(), Some("slices"));
    assert_eq!(
        route(
            "gpu:l40s.4:1",
            Submitter {
                named_partition: true,
                ..alice()
            }
        ),
        None
    );
    assert_eq!(
        route("gpu:l40s:1", alice()),
        None,
        "whole GPUs stay where they are"
    );
    // It is the partition that it goes to whose gates count.
    let short = Submitter {
        time_limit: Some(60),
        ..alice()
    };
    assert_eq!(
        refused(ask(&policy, "gpu:l40s.4:1", short)).code(),
        Code::GateNoReservation
    );
}

#[test]
fn a_slice_has_its_part_of_the_host() {
    let policy = policy(
        "[defaults]\ncpus_per_shard = 2\nmax_cpus_per_shard = 4\nhost_memory_mib_per_shard = 1000\nmax_host_memory_mib_per_shard = 2000\n",
    );
    let half = Request {
        tres_per_node: Some("gpu:l40s.2:1".into()),
        ..Request::default()
    };
    let ask = |request: Request| ask_for(&policy, &request, alice());
    let given = granted(ask(half.clone())).request;
    assert_eq!(
        (given.cpus_per_task, given.min_cpus, given.memory_per_node),
        (Some(4), Some(4), Some(2000))
    );
    let own = Request {
        cpus_per_task: Some(8),
        memory_per_node: Some(4000),
        ..half.clone()
    };
    assert_eq!(
        granted(ask(own.clone())).request,
        Request {
            min_nodes: Some(1),
            max_nodes: Some(1),
            tres_per_node: Some("shard:l40s:2".into()),
            ..own
        }
    );
    for (request, message) in [
        (
            Request {
                cpus_per_task: Some(9),
                ..half.clone()
            },
            "9 CPUs requested, but people in no class may use at most 8 for 2 shards",
        ),
        (
            Request {
                min_cpus_per_node: Some(9),
                ..half.clone()
            },
            "9 CPUs requested",
        ),
        (
            Request {
                num_tasks: Some(9),
                ..half.clone()
            },
            "9 CPUs requested",
        ),
        (
            Request {
                memory_per_node: Some(4001),
                ..half.clone()
            },
            "4001 MiB of host memory requested, but people in no class may use at most 4000 MiB for 2 shards",
        ),
        (
            Request {
                memory_per_node: Some(0),
                ..half.clone()
            },
            "all memory of a node requested",
        ),
        (
            Request {
                memory_per_cpu: Some(1001),
                cpus_per_task: Some(4),
                ..half.clone()
            },
            "4004 MiB of host memory",
        ),
    ] {
        let refusal = refused(ask(request));
        assert_eq!(refusal.code(), Code::LimitJob);
        assert!(refusal.message().contains(message), "{refusal}");
    }
    // A job that Slurm has already keeps what it has.
    let context = Context {
        submitter: alice(),
        is_change: true,
        ..Context::default()
    };
    let kept = granted(decide(&policy, &half, &context)).request;
    assert_eq!((kept.cpus_per_task, kept.memory_per_node), (None, None));
    let capped = self::policy("[defaults]\nmax_host_memory_mib_per_shard = 2000\n");
    let given = granted(ask_for(&capped, &half, alice())).request;
    assert_eq!(
        (given.cpus_per_task, given.memory_per_node),
        (None, Some(4000)),
        "not Slurm's own default"
    );
}

#[test]
fn gpus_that_no_field_names_are_counted_too() {
    let policy = policy(CLASSES);
    let tasks = |tasks, per_gpu| Request {
        ntasks_per_tres: Some(per_gpu),
        num_tasks: Some(tasks),
        ..Request::default()
    };
    let refusal = refused(ask_for(&policy, &tasks(1, 1), alice()));
    insta::assert_snapshot!(refusal, @r"
    softmig: --ntasks-per-gpu=1: class student may not use whole GPUs [WHOLE_GPU_CLASS]
    softmig: use --gres=gpu:h200.4:1 (35788 MiB, 25 % of the GPU's time)
    ");
    let refusal = refused(ask_for(&policy, &tasks(2, 1), researcher()));
    assert!(
        refusal.message().contains("a GPU type is required"),
        "{refusal}"
    );
    let reserved = self::policy(RESERVED);
    assert_eq!(
        refused(ask_for(&reserved, &tasks(1, 1), alice())).code(),
        Code::Reserved
    );
    // Beside GPUs that are named it only says how many tasks each has.
    let named = Request {
        tres_per_job: Some("gpu:l40s:1".into()),
        ..tasks(2, 2)
    };
    passed(ask_for(&policy, &named, researcher()));
}

#[test]
fn several_fields_speak_of_the_same_gpus() {
    let policy = policy(CLASSES);
    let both = Request {
        tres_per_node: Some("gpu:l40s:2".into()),
        tres_per_job: Some("gpu:l40s:2".into()),
        ..Request::default()
    };
    passed(ask_for(&policy, &both, researcher()));
    let more = Request {
        min_nodes: Some(2),
        ..both
    };
    refused(ask_for(&policy, &more, researcher()));
}

#[test]
fn an_unknown_type_is_refused_where_types_matter() {
    // Slurm takes some other names for a known type.
    for policy in [policy(CLASSES), policy(RESERVED)] {
        let refusal = refused(ask(&policy, "gpu:a40sjr:1", researcher()));
        assert_eq!(refusal.code(), Code::SliceType, "{refusal}");
        passed(ask(&policy, "gpu:v100:1", researcher()));
    }
    let same = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n[defaults]\nshards = 8\nwhole_gpus = 2\n";
    let same = Policy::parse(same).unwrap();
    passed(ask(&same, "gpu:other:1", alice()));
}

/// Of slices and whole GPUs alike, asked for or given by the policy.
#[test]
fn more_than_a_class_may_hold_together_is_refused_to_one_job() {
    let policy = policy(
        "[defaults]\nshards = 8\nwhole_gpus = 2\nmig = {}\ncpus = 4\nhost_memory_mib = 16000\nmax_cpus_per_shard = 64\n",
    );
    for gres in ["gres/gpu:l40s.4:1", "gres/gpu:l40s:1"] {
        let request = |cpus: Option<u32>, memory: Option<u64>| Request {
            tres_per_node: Some(gres.into()),
            cpus_per_task: cpus,
            memory_per_node: memory,
            ..Request::default()
        };
        for (cpus, memory) in [(Some(4), Some(16000)), (None, None)] {
            let verdict = ask_for(&policy, &request(cpus, memory), alice());
            assert!(!matches!(verdict, Verdict::Refused(_)), "{verdict:?}");
        }
        let refusal = refused(ask_for(&policy, &request(Some(8), None), alice()));
        assert_eq!(refusal.code(), Code::LimitJob);
        assert!(
            refusal.message().contains("8 CPUs requested, but")
                && refusal.message().ends_with("may hold at most 4 at once"),
            "{refusal}"
        );
        let refusal = refused(ask_for(&policy, &request(None, Some(16001)), alice()));
        assert!(
            refusal
                .message()
                .contains("16001 MiB of host memory requested"),
            "{refusal}"
        );
        assert_eq!(refusal.hint(), "use --mem=16000M or less");
    }
    let given = self::policy(
        "[defaults]\nshards = 8\nmig = {}\nwhole_gpus = 0\ncpus = 4\ncpus_per_shard = 4\n",
    );
    let refusal = refused(ask(&given, "gres/gpu:l40s.2:1", alice()));
    assert!(refusal.message().contains("8 CPUs requested"), "{refusal}");
}

#[test]
fn what_cannot_be_read_is_not_taken_for_something_else() {
    let reserved = policy(RESERVED);
    for text in [
        "gpu:l40s:x",
        "gpu:l40s:",
        "gpu::1",
        "gpu:l40s:1:2",
        "gpu:l40s_r:x",
    ] {
        let request = Request {
            tres_per_node: Some(format!("gres/{text}")),
            ..Request::default()
        };
        let refusal = refused(ask_for(&reserved, &request, alice()));
        assert_eq!(refusal.code(), Code::Malformed, "{refusal}");
        assert!(
            refusal
                .message()
                .starts_with(&format!("{text}: this is not a valid request")),
            "{refusal}"
        );
    }
}

#[test]
fn names_in_other_letters_and_nameless_slices_are_not_passed_on() {
    let policy = policy("");
    for (text, meant) in [
        ("GPU:l40s.4:1", "did you mean --gres=gpu:l40s.4:1?"),
        ("Gpu:2", "did you mean --gres=gpu:2?"),
        ("Shard:l40s=1", "did you mean --gres=shard:l40s=1?"),
        ("l40s.4:1", "use --gres=gpu:l40s.4:1"),
        ("gpu.4:1", "--gres=gpu:l40s.4:1"),
    ] {
        let refusal = refused(ask(&policy, &format!("gres/{text}"), alice()));
        assert_eq!(refusal.code(), Code::Malformed, "{refusal}");
        assert!(refusal.hint().contains(meant), "{refusal}");
    }
    // Another GRES, or a type that only Slurm knows: a site may have types that the policy does not name.
    for text in [
        "l40s:1",
        "v4.2:1",
        "license:gpu:1",
        "gpu:v4.x:1",
        "gpu:l40s.nvl:1",
    ] {
        passed(ask(&policy, text, alice()));
    }
    // Where types matter they are all known.
    let reserved = self::policy(RESERVED);
    let refusal = refused(ask(&reserved, "gpu:l40s.nvl:1", alice()));
    assert_eq!(refusal.code(), Code::SliceType);
    assert_eq!(refusal.hint(), "did you mean --gres=gpu:l40s.4:1?");
}

#[test]
fn what_is_offered_instead_is_what_the_class_may_have() {
    let policy = policy(CLASSES);
    let hint = |text: &str, submitter| refused(ask(&policy, text, submitter)).hint();
    insta::assert_snapshot!(hint("gpu:1", alice()), @"use --gres=gpu:h200.4:1 (35788 MiB, 25 % of the GPU's time)");
    insta::assert_snapshot!(hint("gpu:l40s:9", researcher()), @"use --gres=gpu:l40s:2");
    insta::assert_snapshot!(hint("gpu:h100_1g.10gb:9", researcher()), @"use --gres=gpu:h100_1g.10gb:2");
    // Two on each of four nodes are eight.
    let nodes = Request {
        tres_per_node: Some("gpu:l40s:2".into()),
        min_nodes: Some(4),
        max_nodes: Some(4),
        ..Request::default()
    };
    let refusal = refused(ask_for(&policy, &nodes, researcher()));
    assert!(
        refusal.hint().starts_with("use --gres=gpu:l40s.2:1"),
        "{refusal}"
    );
    insta::assert_snapshot!(hint("gpu:1g.10gb:1", researcher()), @"did you mean --gres=gpu:h100_1g.10gb:1?");
    insta::assert_snapshot!(hint("gpu:l40:1", researcher()), @"did you mean --gres=gpu:l40s:1?");
}

#[test]
fn who_will_have_a_gpu_is_told_from_when() {
    let soon = policy(
        &RESERVED
            .replace("start = 2026-11-21", "start = 2098-11-21")
            .replace("end = 2026-11-28", "end = 2098-11-28"),
    );
    let refusal = refused(ask(&soon, "gpu:l40s_r:1", alice()));
    insta::assert_snapshot!(refusal, @r"
    softmig: gpu:l40s_r:1: reserved for user alice from 2098-11-21T08:00:00 to 2098-11-28T08:00:00 (paper deadline) [RESERVED]
    softmig: you can use it from 2098-11-21T08:00:00; until then use another GPU, for example --gres=gpu:l40s:1
    ");
}

#[test]
fn what_is_nearly_a_slice_gets_a_hint() {
    let policy = policy("");
    for gres in [
        "gpu:.4:1",
        "gpu:1/4",
        "gpu:1/4:1",
        "gpu:l40s.4x:1",
        "gpu:l40s.4.:1",
        "gpu:l40s.4;1",
        "gpu:l40s.4/1",
        "gpu:l40s.\u{ff14}:1",
        "gpu:l40s.\u{664}:1",
    ] {
        let refusal = refused(ask(&policy, gres, alice()));
        assert_eq!(refusal.code(), Code::Malformed, "{gres}");
        assert!(refusal.hint().contains("gpu:l40s.4:1"), "{gres}: {refusal}");
    }
    // Types of other names are Slurm's.
    for gres in [
        "gpu:v100.32g:1",
        "gpu:l40s.48gddr6:1",
        "gpu:a30.4x:1",
        "gpu:h100_2g.20gb:1",
    ] {
        passed(ask(&policy, gres, alice()));
    }
}

#[test]
fn limits_count_the_slices_of_all_nodes() {
    let policy = policy(
        "default_class = \"student\"\n[classes.student]\nmembers = { users = [\"alice\"] }\nshards = 4\nwhole_gpus = 0\nmig = {}\n\
         cpus_per_shard = 2\nmax_cpus_per_shard = 4\nhost_memory_mib_per_shard = 1000\nmax_host_memory_mib_per_shard = 2000\n",
    );
    let on = |nodes, gres: &str, change: fn(&mut Request)| {
        let mut request = Request {
            min_nodes: Some(nodes),
            min_cpus: Some(nodes),
            tres_per_node: Some(gres.into()),
            ..Request::default()
        };
        change(&mut request);
        ask_for(&policy, &request, alice())
    };
    let plain = |_: &mut Request| {};
    // Each node has the CPUs and the memory of its shards.
    let granted = match on(2, "gpu:l40s.2:1", plain) {
        Verdict::Granted(grant) => grant.request,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (granted.cpus_per_task, granted.min_cpus),
        (Some(4), Some(8))
    );
    assert_eq!(granted.memory_per_node, Some(2000));
    for (nodes, gres, hint) in [
        (3, "gpu:l40s.2:1", "use --gres=gpu:l40s.4:1 (11366 MiB"),
        (5, "gpu:l40s.4:1", "use --gres=gpu:l40s.2:1 --nodes=1"),
    ] {
        let refusal = refused(on(nodes, gres, plain));
        assert_eq!(refusal.code(), Code::LimitJob, "{refusal}");
        assert!(refusal.hint().starts_with(hint), "{refusal}");
    }
    let in_all = on(5, "", |request| {
        request.tres_per_node = None;
        request.tres_per_job = Some("gpu:l40s.4:1".into());
    });
    assert_eq!(refused(in_all).hint(), "use --gres=gpu:l40s.4:1 --nodes=1");
    for (cpus, is_granted) in [(16, true), (17, false)] {
        let change = match cpus {
            16 => |request: &mut Request| request.min_cpus = Some(16),
            _ => |request: &mut Request| request.min_cpus = Some(17),
        };
        let verdict = on(2, "gpu:l40s.2:1", change);
        assert_eq!(
            matches!(verdict, Verdict::Granted(_)),
            is_granted,
            "{cpus}: {verdict:?}"
        );
    }
    for (change, is_granted) in [
        (
            (|it| it.memory_per_node = Some(4000)) as fn(&mut Request),
            true,
        ),
        (|it| it.memory_per_node = Some(4001), false),
        (
            |it| (it.min_cpus, it.memory_per_cpu) = (Some(4), Some(2000)),
            true,
        ),
        // All of them on one of the nodes.
        (
            |it| (it.num_tasks, it.cpus_per_task) = (Some(1), Some(9)),
            false,
        ),
        (
            |it| (it.num_tasks, it.cpus_per_task) = (Some(3), Some(4)),
            true,
        ),
        (
            |it| (it.ntasks_per_node, it.cpus_per_task) = (Some(u32::MAX), Some(u32::MAX)),
            false,
        ),
        (
            |it| (it.min_cpus, it.memory_per_cpu) = (Some(6), Some(2000)),
            false,
        ),
    ] {
        let verdict = on(2, "gpu:l40s.2:1", change);
        assert_eq!(
            matches!(verdict, Verdict::Granted(_)),
            is_granted,
            "{verdict:?}"
        );
    }
}
