//! Who may ask for what: gates, classes, reserved GPUs, routes, older units; one behaviour a test.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use softmig_policy::{
    Asker, Code, Context, Fact, Grant, Policy, Refusal, Request, Terms, Verdict, WallTime, decide,
};

const GPUS: &str = "\
[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n\
[gpu.h200]\nmemory_mib = 143771\nreserved_mib = 616\nshards = 8\n\
[gpu.titanrtx]\nmemory_mib = 24220\nreserved_mib = 0\nshards = 80\nslices = [4, 8, 10, 16, 20]\n\
[gpu.\"h100_1g.10gb\"]\nmemory_mib = 9856\nreserved_mib = 4\nshards = 1\nmig = true\n";

/// 2026-11-22T00:00:00Z.
const NOW: i64 = 1_795_305_600;

fn policy(text: &str) -> Policy {
    // Keys of the top level come before any table.
    let text = format!("plain_types = [\"v100\", \"h100\"]\n{text}\n{GPUS}");
    Policy::parse_at(&text, "UTC").unwrap_or_else(|error| panic!("{error}"))
}

fn wrong(text: &str) -> String {
    let error = Policy::parse_at(&format!("{text}\n{GPUS}"), "UTC");
    error.unwrap_err().to_string()
}

fn alice() -> Asker {
    Asker {
        user: Some("alice".into()),
        group: Some(2001),
        account: Fact::Is("students".into()),
        partition: Fact::Is("main".into()),
        batch: true,
        ..Asker::default()
    }
}

fn ask(policy: &Policy, gres: &str, asker: Asker) -> Verdict {
    let request = Request {
        tres_per_node: Some(gres.into()),
        ..Request::default()
    };
    ask_for(policy, &request, asker)
}

fn ask_for(policy: &Policy, request: &Request, asker: Asker) -> Verdict {
    let context = Context {
        asker,
        now: NOW,
        ..Context::default()
    };
    decide(policy, request, &context)
}

#[track_caller]
fn refused(verdict: Verdict) -> Refusal {
    match verdict {
        Verdict::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn granted(verdict: Verdict) -> Grant {
    match verdict {
        Verdict::Granted(grant) => *grant,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn passed(verdict: Verdict) -> Terms {
    match verdict.terms() {
        Some(terms) => terms.clone(),
        None => panic!("{verdict:?}"),
    }
}

const GATE: &str =
    "[[gate]]\nwhat = \"slice\"\nreservation = [\"jhl_homework_gpu_.*\", \"course_[0-9]+\"]\n";

#[test]
fn a_gate_opens_to_a_reservation_whose_whole_name_fits() {
    let policy = policy(GATE);
    let ask = |reservation: Option<&str>| {
        let reservation = reservation.map(str::to_string);
        ask(
            &policy,
            "gres/gpu:l40s.4:1",
            Asker {
                reservation,
                ..alice()
            },
        )
    };
    for open in [
        "jhl_homework_gpu_x",
        "course_1",
        "course_12,jhl_homework_gpu_",
    ] {
        granted(ask(Some(open)));
    }
    for closed in [
        "evil_jhl_homework_gpu_x",
        "course_1x",
        "xcourse_1",
        "Course_1",
        "course_1,evil",
        "evil,course_1",
        "course_1,",
        ",",
        "course_1\nx",
    ] {
        let refusal = refused(ask(Some(closed)));
        assert_eq!(refusal.code, Code::GateReservation, "{closed}");
    }
    let refusal = refused(ask(None));
    insta::assert_snapshot!(refusal, @r"
    softmig: gpu:l40s.4:1: parts of GPUs are for jobs inside certain reservations, and this job names none [GATE_NO_RESERVATION]
    softmig: use --reservation=NAME with one that is called jhl_homework_gpu_.* or course_[0-9]+; 'scontrol show reservation' lists those that there are
    ");
    let refusal = refused(ask(Some("evil_jhl_homework_gpu_x")));
    insta::assert_snapshot!(refusal.message, @"gpu:l40s.4:1: parts of GPUs are for jobs inside certain reservations, and evil_jhl_homework_gpu_x is not one of them");
}

#[test]
fn every_form_of_a_request_meets_the_same_gate() {
    let slices = policy(GATE);
    for gres in [
        "gpu:l40s.4:1",
        "gres:gpu:l40s.4",
        "shard:l40s:1",
        "gres/shard:l40s=1",
    ] {
        assert_eq!(
            refused(ask(&slices, gres, alice())).code,
            Code::GateNoReservation,
            "{gres}"
        );
    }
    passed(ask(&slices, "gpu:l40s:1", alice()));
    passed(ask(&slices, "gpu:h100_1g.10gb:1", alice()));
    passed(ask(&slices, "license:x:1", alice()));
    for (what, gres, open) in [
        ("whole", "gpu:l40s:1", "gpu:l40s.4:1"),
        ("gpu", "gres/gpu:2", "shard:l40s:1"),
        ("shard", "gpu:l40s.4:1", "gpu:l40s:1"),
        ("mig", "gpu:h100_1g.10gb:1", "gpu:l40s:1"),
        ("license", "gres:license:x:1", "gres:license2:x:1"),
        ("license", "license=1", "mylicense:1"),
        ("license", "x/gres/license:1", "License:1"),
        ("mps", "mps:80", "mpsx:80"),
    ] {
        let gate = policy(&GATE.replace("slice", what));
        let code = refused(ask(&gate, gres, alice())).code;
        assert_eq!(code, Code::GateNoReservation, "{what}: {gres}");
        passed(ask(&gate, open, alice()));
    }
    let job = Request {
        tres_per_job: Some("gpu:l40s:1".into()),
        ..Request::default()
    };
    let whole = policy(&GATE.replace("slice", "whole"));
    refused(ask_for(&whole, &job, alice()));
    let exclusive = Request {
        exclusive: true,
        ..Request::default()
    };
    assert_eq!(
        refused(ask_for(&whole, &exclusive, alice())).code,
        Code::GateNoReservation
    );
}

#[test]
fn a_gate_stands_where_and_for_whom_it_says() {
    let text = format!(
        "{GATE}accounts = [\"Students\"]\npartitions = [\"course\", \"main\"]\nexempt_classes = [\"staff\"]\n\
         [defaults]\nshards = \"unlimited\"\nwhole_gpus = \"unlimited\"\nmig = {{}}\n[classes.staff]\nmembers = {{ users = [\"bob\"] }}\n"
    );
    let policy = policy(&text);
    let ask = |asker| ask(&policy, "gpu:l40s.4:1", asker);
    refused(ask(alice()));
    refused(ask(Asker {
        partition: Fact::Is("other,course".into()),
        ..alice()
    }));
    granted(ask(Asker {
        partition: Fact::Is("other".into()),
        ..alice()
    }));
    granted(ask(Asker {
        account: Fact::Is("research".into()),
        ..alice()
    }));
    granted(ask(Asker {
        account: Fact::Missing,
        ..alice()
    }));
    granted(ask(Asker {
        user: Some("bob".into()),
        ..alice()
    }));
    // A client that does not know leaves the answer to slurmctld.
    granted(ask(Asker {
        account: Fact::Unknown,
        ..alice()
    }));
    granted(ask(Asker {
        partition: Fact::Unknown,
        ..alice()
    }));
}

const CLASSES: &str = "\
[defaults]\nshards = 1\nwhole_gpus = 0\nmig = {}\n\
[classes.student]\nmembers = { users = [\"alice\"], accounts = [\"teaching\"], groups = [3001] }\nshards = 2\n\
[classes.researcher]\nmembers = { accounts = [\"research\"] }\nshards = 16\nmax_shards_per_job = 8\nwhole_gpus = 2\nshards_of = { h200 = 4 }\nmig = { \"h100_1g.10gb\" = 2 }\nwall_time = \"1-00:00:00\"\nother_qos = [\"long\"]\n\
[classes.admin]\nmembers = { users = [\"carol\"] }\nshards = \"unlimited\"\nwhole_gpus = \"unlimited\"\nmig = { \"h100_1g.10gb\" = \"unlimited\" }\nqos = \"gpu-admin\"\n\
[users.dave]\nclass = \"student\"\nshards = 4\n";

fn researcher() -> Asker {
    Asker {
        user: Some("rita".into()),
        account: Fact::Is("research".into()),
        ..alice()
    }
}

#[test]
fn people_are_in_the_class_that_names_them_then_their_account_then_their_group() {
    let policy = policy(CLASSES);
    let qos = |asker| passed(ask(&policy, "gpu:l40s.4:1", asker)).qos;
    let named = |name: &str| Some(name.to_string());
    assert_eq!(qos(alice()), named("student"));
    assert_eq!(
        qos(Asker {
            account: Fact::Is("research".into()),
            ..alice()
        }),
        named("student")
    );
    assert_eq!(qos(researcher()), named("researcher"));
    assert_eq!(
        qos(Asker {
            group: Some(3001),
            ..researcher()
        }),
        named("researcher")
    );
    let nobody = Asker {
        user: Some("zoe".into()),
        account: Fact::Missing,
        ..alice()
    };
    assert_eq!(
        qos(Asker {
            group: Some(3001),
            ..nobody.clone()
        }),
        named("student")
    );
    assert_eq!(qos(nobody), named("softmig"));
    assert_eq!(
        qos(Asker {
            user: Some("carol".into()),
            ..alice()
        }),
        None,
        "nothing to hold"
    );
    let dave = Asker {
        user: Some("dave".into()),
        account: Fact::Is("research".into()),
        ..alice()
    };
    assert_eq!(qos(dave), named("user_dave"), "accounts are not looked at");
    assert_eq!(
        qos(Asker {
            account: Fact::Unknown,
            ..researcher()
        }),
        None
    );
    let text = CLASSES.replace("[defaults]", "default_class = \"student\"\n[defaults]");
    let policy = self::policy(&text);
    let nobody = Asker {
        user: Some("zoe".into()),
        account: Fact::Missing,
        ..alice()
    };
    assert_eq!(
        passed(ask(&policy, "gpu:l40s.4:1", nobody)).qos,
        named("student")
    );
}

#[test]
fn a_job_that_could_never_start_is_refused_with_the_figures() {
    let policy = policy(CLASSES);
    let students = |gres| refused(ask(&policy, gres, alice()));
    insta::assert_snapshot!(students("gpu:l40s:1"), @r"
    softmig: gpu:l40s:1: class student may have no whole GPUs [WHOLE_GPU_CLASS]
    softmig: use --gres=gpu:l40s.2:1 (22732 MiB, 50 % of the GPU's time)
    ");
    insta::assert_snapshot!(students("gpu:h200.2:1"), @r"
    softmig: gpu:h200.2:1: 4 shards are asked for, and class student may hold 2 at once [LIMIT_JOB]
    softmig: use --gres=gpu:h200.4:1 (35788 MiB, 25 % of the GPU's time)
    ");
    insta::assert_snapshot!(students("gpu:h100_1g.10gb:1").message, @"gpu:h100_1g.10gb:1: 1 MIG instance of type h100_1g.10gb is asked for, and class student may hold 0 at once");
    let research = |gres| refused(ask(&policy, gres, researcher()));
    insta::assert_snapshot!(research("gpu:l40s:3").message, @"gpu:l40s:3: 3 whole GPUs are asked for, and class researcher may hold 2 at once");
    insta::assert_snapshot!(research("gpu:h200:1").message, @"gpu:h200:1: this counts as 8 shards, and class researcher may hold 4 of type h200 at once");
    insta::assert_snapshot!(research("gpu:titanrtx.4:1").message, @"gpu:titanrtx.4:1: 20 shards are asked for, and class researcher may hold 16 at once");
    insta::assert_snapshot!(research("gpu:h100_1g.10gb:3").message, @"gpu:h100_1g.10gb:3: 3 MIG instances of type h100_1g.10gb are asked for, and class researcher may hold 2 at once");
    for gres in [
        "gpu:l40s:2",
        "gpu:h200.2:1",
        "gpu:h100_1g.10gb:2",
        "gpu:v100:2",
    ] {
        assert_eq!(
            passed(ask(&policy, gres, researcher())).qos.as_deref(),
            Some("researcher"),
            "{gres}"
        );
    }
    insta::assert_snapshot!(research("gpu:1"), @r"
    softmig: gpu:1: names no type of GPU, and types count differently in what class researcher may hold [LIMIT_JOB]
    softmig: name the type: --gres=gpu:h200:1 or --gres=gpu:l40s:1 or --gres=gpu:titanrtx:1
    ");
    let carol = Asker {
        user: Some("carol".into()),
        ..alice()
    };
    passed(ask(&policy, "gpu:h200:64", carol));
    let long = Asker {
        time_limit: Some(1441),
        ..researcher()
    };
    insta::assert_snapshot!(refused(ask(&policy, "gpu:l40s.4:1", long)), @r"
    softmig: gpu:l40s.4:1: 1-00:01:00 is asked for, and class researcher may have 1-00:00:00 [LIMIT_JOB]
    softmig: use --time=1-00:00:00 or less
    ");
}

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
        assert_eq!(refusal.code, Code::LimitJob, "{request:?}");
    }
}

#[test]
fn a_job_is_in_its_class_qos_and_in_no_other_class() {
    let policy = policy(CLASSES);
    let qos = |asker: Asker, qos: &str, gres| {
        ask(
            &policy,
            gres,
            Asker {
                qos: Some(qos.into()),
                ..asker
            },
        )
    };
    assert_eq!(passed(qos(alice(), "student", "gpu:l40s.4:1")).qos, None);
    assert_eq!(passed(qos(researcher(), "LONG", "gpu:l40s:1")).qos, None);
    insta::assert_snapshot!(refused(qos(alice(), "long", "gpu:l40s.4:1")), @r"
    softmig: gpu:l40s.4:1: jobs with GPUs of class student are not in QOS long [LIMIT_QOS]
    softmig: leave --qos out, or use --qos=student
    ");
    for (who, other) in [
        (alice(), "researcher"),
        (researcher(), "Student"),
        (alice(), "user_dave"),
    ] {
        let refusal = refused(qos(who.clone(), other, "gpu:l40s.4:1"));
        assert_eq!(refusal.code, Code::LimitQos);
        // Also a job without any GPU may not borrow another class's priority.
        let cpu = Request::default();
        let asker = Asker {
            qos: Some(other.into()),
            ..who
        };
        assert_eq!(refused(ask_for(&policy, &cpu, asker)).code, Code::LimitQos);
    }
    assert_eq!(passed(qos(alice(), "normal", "license:1")).qos, None);
    assert_eq!(passed(ask(&policy, "license:1", alice())).qos, None);
    let now = Asker {
        qos_now: Some("normal".into()),
        ..alice()
    };
    assert_eq!(
        passed(ask(&policy, "gpu:l40s.4:1", now)).qos.as_deref(),
        Some("student")
    );
    let now = Asker {
        qos_now: Some("long".into()),
        ..researcher()
    };
    assert_eq!(passed(ask(&policy, "gpu:l40s.4:1", now)).qos, None);
}

#[test]
fn a_granted_job_can_be_told_its_limits() {
    let policy = policy(&format!("limit_notice = true\n{CLASSES}"));
    let notice = passed(ask(&policy, "gpu:l40s.4:1", alice()))
        .notice
        .unwrap();
    insta::assert_snapshot!(notice, @"softmig: class student may hold at once: 2 shards, 0 whole GPUs; a job beyond that waits in the queue [LIMIT_NOTICE]");
    let carol = Asker {
        user: Some("carol".into()),
        ..alice()
    };
    assert_eq!(passed(ask(&policy, "gpu:l40s.4:1", carol)).notice, None);
}

#[test]
fn an_administrators_change_meets_no_class_and_no_gate() {
    let policy = policy(&format!("{CLASSES}{GATE}"));
    let root = Asker {
        is_exempt: true,
        qos: Some("researcher".into()),
        ..alice()
    };
    assert_eq!(
        passed(ask(&policy, "gpu:l40s:4", root.clone())),
        Terms::default()
    );
    granted(ask(&policy, "gpu:l40s.2:1", root.clone()));
    // What a slice is remains what it is.
    refused(ask(&policy, "gpu:l40s.3:1", root));
}

const RESERVED: &str = "\
[[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\nuser = \"alice\"\nstart = 2026-11-21T08:00:00\nend = 2026-11-28T08:00:00\nreason = \"paper deadline\"\n";

#[test]
fn a_reserved_gpu_is_its_holders_in_its_time_and_nobody_elses_ever() {
    let open = policy(RESERVED);
    let bob = || Asker {
        user: Some("bob".into()),
        ..alice()
    };
    passed(ask(&open, "gpu:l40s_r:1", alice()));
    insta::assert_snapshot!(refused(ask(&open, "gpu:l40s_r:1", bob())), @r"
    softmig: gpu:l40s_r:1: kept for user alice until 2026-11-28T08:00:00 (paper deadline) [RESERVED]
    softmig: ask for another GPU, for example --gres=gpu:l40s:1
    ");
    let ahead = policy(&RESERVED.replace("11-21", "11-23"));
    let over = policy(
        &RESERVED
            .replace("11-28", "11-22T00")
            .replace("T00T08", "T00"),
    );
    for who in [alice(), bob()] {
        let refusal = refused(ask(&ahead, "gpu:l40s_r:1", who.clone()));
        insta::allow_duplicates! {
            insta::assert_snapshot!(refusal.message, @"gpu:l40s_r:1: kept for user alice from 2026-11-23T08:00:00 to 2026-11-28T08:00:00 (paper deadline)");
        }
        let refusal = refused(ask(&over, "gpu:l40s_r:1", who));
        insta::allow_duplicates! {
            insta::assert_snapshot!(refusal.message, @"gpu:l40s_r:1: was kept for user alice until 2026-11-22T00:00:00, and is not given back to all yet");
        }
    }
    for policy in [&open, &ahead, &over] {
        // There are no slices of it, and nobody gets it by leaving the type out.
        assert_eq!(
            refused(ask(policy, "gpu:l40s_r.4:1", alice())).code,
            Code::SliceType
        );
        assert_eq!(
            refused(ask(policy, "shard:l40s_r:1", alice())).code,
            Code::SliceType
        );
        assert_eq!(refused(ask(policy, "gpu:1", bob())).code, Code::Reserved);
        passed(ask(policy, "gpu:l40s:1", bob()));
        granted(ask(policy, "gpu:l40s.4:1", bob()));
    }
}

#[test]
fn a_holder_needs_no_whole_gpus_of_his_class() {
    let policy = policy(&format!(
        "{CLASSES}{RESERVED}{}",
        GATE.replace("slice", "whole")
    ));
    assert_eq!(passed(ask(&policy, "gpu:l40s_r:1", alice())).qos, None);
    let both = refused(ask(&policy, "gpu:l40s_r:1,gpu:l40s:1", alice()));
    assert_eq!(both.code, Code::GateNoReservation);
}

#[test]
fn an_account_can_hold_a_gpu_and_times_have_offsets() {
    let text = RESERVED
        .replace("user = \"alice\"", "account = \"Research\"")
        .replace("2026-11-21T08:00:00", "2026-11-22T01:00:00+01:00");
    let policy = policy(&text);
    passed(ask(&policy, "gpu:l40s_r:1", researcher()));
    assert_eq!(
        refused(ask(&policy, "gpu:l40s_r:1", alice())).code,
        Code::Reserved
    );
    passed(ask(
        &policy,
        "gpu:l40s_r:1",
        Asker {
            account: Fact::Unknown,
            ..alice()
        },
    ));
    let window = &policy.reservables()[0];
    assert_eq!(window.utc(), "2026-11-22T00:00:00Z to 2026-11-28T08:00:00Z");
    let there = Policy::parse_at(&format!("{RESERVED}{GPUS}"), "Europe/Amsterdam").unwrap();
    let window = &there.reservables()[0];
    assert_eq!(window.utc(), "2026-11-21T07:00:00Z to 2026-11-28T07:00:00Z");
    assert_eq!(window.end_local(), "2026-11-28T08:00:00");
}

#[test]
fn units_of_mps_are_slices_where_the_policy_says_so() {
    let plain = policy("");
    passed(ask(&plain, "mps:80", alice()));
    let policy = policy("[legacy.mps]\ntype = \"titanrtx\"\nunits_per_gpu = 320\n");
    for (units, shards) in [(80, 20), (40, 10), (32, 8), (20, 5), (16, 4)] {
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
    softmig: mps:50: of the 320 units of one titanrtx a job can have 80, 40, 32, 20, 16 [SLICE_SIZE]
    softmig: use --gres=mps:80, which is --gres=gpu:titanrtx.4:1; or --gres=mps:40, which is --gres=gpu:titanrtx.8:1
    ");
    insta::assert_snapshot!(refused(ask(&policy, "mps:320", alice())).message, @"mps:320: 320 units are a whole titanrtx, and a job can share one only");
    for (gres, code) in [
        ("mps", Code::SliceSize),
        ("mps:0", Code::SliceSize),
        ("mps:160", Code::SliceSize),
        ("mps:1000", Code::SliceIsWholeGpu),
        ("mps:l40s:80", Code::SliceType),
        ("mps:80,gpu:l40s.4:1", Code::SliceCount),
        ("mps:80,gpu:1", Code::SliceMixed),
        ("mps:x:y", Code::Malformed),
        ("xgres/mps:80", Code::Malformed),
    ] {
        assert_eq!(refused(ask(&policy, gres, alice())).code, code, "{gres}");
    }
}

#[test]
fn a_slice_job_without_a_partition_takes_the_first_route_that_fits() {
    let policy = policy(
        "[[route]]\npartition = \"quick\"\ntypes = [\"l40s\"]\nmax_time = \"4:00:00\"\njobs = \"interactive\"\n\
         [[route]]\npartition = \"short\"\nmax_time = \"1:00:00\"\n\
         [[route]]\npartition = \"slices\"\njobs = \"batch\"\n\
         [[gate]]\nwhat = \"slice\"\nreservation = [\"x\"]\npartitions = [\"short\"]\n",
    );
    let route = |gres, asker| passed(ask(&policy, gres, asker)).partition;
    let quick = Asker {
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
            Asker {
                time_limit: Some(241),
                ..quick.clone()
            }
        ),
        None
    );
    assert_eq!(
        route(
            "gpu:l40s.4:1",
            Asker {
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
            Asker {
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
    let short = Asker {
        time_limit: Some(60),
        ..alice()
    };
    assert_eq!(
        refused(ask(&policy, "gpu:l40s.4:1", short)).code,
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
            "9 CPUs are asked for, and people in no class may have 8 for 2 shards",
        ),
        (
            Request {
                min_cpus_per_node: Some(9),
                ..half.clone()
            },
            "9 CPUs are asked for",
        ),
        (
            Request {
                num_tasks: Some(9),
                ..half.clone()
            },
            "9 CPUs are asked for",
        ),
        (
            Request {
                memory_per_node: Some(4001),
                ..half.clone()
            },
            "4001 MiB of host memory are asked for, and people in no class may have 4000 MiB for 2 shards",
        ),
        (
            Request {
                memory_per_node: Some(0),
                ..half.clone()
            },
            "all of a node's memory is asked for",
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
        assert_eq!(refusal.code, Code::LimitJob);
        assert!(refusal.message.contains(message), "{refusal}");
    }
    // A job that Slurm has already keeps what it has.
    let context = Context {
        asker: alice(),
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
fn levels_lie_over_each_other() {
    let policy = policy(
        "[defaults]\nshards = 1\nwhole_gpus = 0\nmig = {}\npriority = 5\nwall_time = \"1:00:00\"\n\
         [classes.a]\nmembers = { users = [\"u\"] }\nshards = 2\nwall_time = \"unlimited\"\n\
         [users.u]\nshards = \"unlimited\"\n[users.v]\n",
    );
    let of = |called: &str| {
        let mut all = policy.standings().iter();
        &all.find(|standing| standing.called() == called)
            .unwrap()
            .quota
    };
    let (defaults, class, user) = (of("people in no class"), of("class a"), of("user u"));
    assert_eq!(
        (defaults.shards, defaults.wall_time),
        (Some(1), WallTime::parse("60"))
    );
    assert_eq!(
        (class.shards, class.wall_time, class.priority),
        (Some(2), None, Some(5))
    );
    assert_eq!(
        (user.shards, user.whole_gpus, user.priority),
        (None, Some(0), Some(5))
    );
    assert_eq!(
        policy.standings().len(),
        3,
        "a table that says nothing makes no QOS"
    );
}

#[test]
fn a_policy_that_does_not_say_enough_or_contradicts_itself_is_refused() {
    for (text, expected) in [
        (
            "[classes.a]\nmembers = { users = [\"x\"] }",
            "line 1: [classes.a]: shards is set neither here nor in [defaults]; write a number, or shards = \"unlimited\"",
        ),
        (
            "[classes.a]\nshards = 1",
            "line 1: [classes.a]: whole_gpus is set neither here nor in [defaults]",
        ),
        (
            "[classes.a]\nshards = 1\nwhole_gpus = 1",
            "line 1: [classes.a]: mig is set neither here nor in [defaults]",
        ),
        (
            "[classes.a]\nshards = 1\nwhole_gpus = 1\nmig = {}",
            "[defaults], which holds for people in no class: shards is set neither here nor in [defaults]; write a number, or shards = \"unlimited\"; or name a default_class",
        ),
        (
            "[defaults]\nshards = -1",
            "line 2: invalid value: integer `-1`, expected a number from 0 up, or \"unlimited\"",
        ),
        (
            "[defaults]\nshards = \"lots\"",
            "line 2: invalid value: string \"lots\"",
        ),
        (
            "[defaults]\nshards = 1.5",
            "line 2: invalid type: floating point",
        ),
        (
            "[defaults]\nwall_time = \"4h\"",
            "line 2: \"4h\" is no time; write as for sbatch --time",
        ),
        (
            "[defaults]\nshard = 1",
            "line 2: unknown key shard; did you mean shards?",
        ),
        (
            "[defaults]\ncpus_per_shard = 0",
            "line 1: [defaults]: cpus_per_shard = 0 would give a job nothing; leave it out",
        ),
        (
            "[defaults]\nshards_of = { l40 = 1 }",
            "line 1: [defaults]: shards_of names l40; [gpu.*] tables are h100_1g.10gb, h200, l40s, titanrtx",
        ),
        (
            "[defaults]\nmig = { l40s = 1 }",
            "line 1: [defaults]: mig names l40s; [gpu.*] tables with mig = true are h100_1g.10gb",
        ),
        (
            "default_class = \"studnet\"\n[defaults]\nshards = 1\nwhole_gpus = 1\nmig = {}\n[classes.student]",
            "line 1: default_class: there is no class studnet; did you mean student?",
        ),
        (
            "[classes.Student]\n",
            "line 1: [classes.Student]: \"Student\" cannot be the name of a class and QOS",
        ),
        (
            "[defaults]\nshards = 1\nwhole_gpus = 1\nmig = {}\n[classes.a]\nmembers = { users = [\"x\"] }\n[classes.b]\nmembers = { users = [\"x\"] }",
            "line 7: [classes.b]: user x is in class a already",
        ),
        (
            "[defaults]\nshards = 1\nwhole_gpus = 1\nmig = {}\n[classes.a]\nmembers = { accounts = [\"x\"] }\n[classes.b]\nmembers = { accounts = [\"X\"] }",
            "line 7: [classes.b]: account X is in class a already",
        ),
        (
            "[defaults]\nshards = 1\nwhole_gpus = 1\nmig = {}\n[classes.a]\nmembers = { groups = [1, 1] }",
            "line 5: [classes.a]: group 1 is in class a already",
        ),
        (
            "[defaults]\nshards = 1\nwhole_gpus = 1\nmig = {}\n[classes.a]\nmembers = [\"x\"]",
            "line 6: invalid type: string \"x\", expected a sequence",
        ),
        (
            "[defaults]\nshards = 1\nwhole_gpus = 1\nmig = {}\n[classes.a]\nmembers = { groups = [\"students\"] }",
            "line 6: invalid type: string \"students\", expected u32",
        ),
        (
            "[defaults]\nshards = 1\nwhole_gpus = 1\nmig = {}\n[classes.a]\nmembers = { users = [\"x\"] }\n[classes.b]\n[users.x]\nclass = \"b\"",
            "line 8: [users.x]: class says otherwise than class a, which has them in members",
        ),
        (
            "[defaults]\nshards = 1\nwhole_gpus = 1\nmig = {}\n[classes.a]\n[classes.b]\nqos = \"a\"",
            "QOS a would be that of class a and of class b; give one of them another with qos = \"NAME\"",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\n",
            "line 1: missing field `reservation`",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = []",
            "line 1: [[gate]]: reservation is empty, so nobody could ever pass; name at least one",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"a(\"]",
            "line 1: [[gate]]: reservation = \"a(\" is no regular expression: unclosed group",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"a)|(.*\"]",
            "is no regular expression: unopened group",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"(a{1000}){1000}\"]",
            "it is too large",
        ),
        (
            "[[gate]]\nwhat = \"gres/mps\"\nreservation = [\"a\"]",
            "line 1: [[gate]]: what = \"gres/mps\" is neither \"slice\" nor \"whole\" nor the name of a GRES",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"a\"]\npartitions = []",
            "partitions = [] would make a gate for nobody",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"a\"]\nexempt_classes = [\"x\"]",
            "exempt_classes: there is no class x; none is known here",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"[a\", \"b]\"]",
            "reservation = \"[a\" is no regular expression: unclosed character class",
        ),
        (
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"(?x)a # b\"]",
            "has a #, and no name of a reservation has",
        ),
        (
            "[[gate]]\nwhat = \"mps\"\nreservation = [\"a\"]\n[legacy.mps]\ntype = \"titanrtx\"\nunits_per_gpu = 320",
            "what = \"mps\" would never be met",
        ),
        (
            "default_class = \"normal\"\n[classes.normal]\nshards = 1\nwhole_gpus = 1\nmig = {}",
            "[classes.normal]: \"normal\" is the QOS that Slurm gives everybody",
        ),
        (
            "[gate]\nwhat = \"slice\"",
            "line 1: there can be several of these tables: write its name in double brackets",
        ),
        (
            "[legacy.mps]\ntype = \"titanrtx\"\nunits_per_gpu = 0",
            "line 1: [legacy.mps]: units_per_gpu = 0 means nothing",
        ),
        (
            "[legacy.mps]\ntype = \"titanrtx\"\nunits_per_gpu = 100",
            "units_per_gpu = 100 cannot be cut in 8, which slices of [gpu.titanrtx] has",
        ),
        (
            "[legacy.mps]\ntype = \"x\"\nunits_per_gpu = 100",
            "type = \"x\" names no [gpu.*] table",
        ),
        (
            "[[route]]\npartition = \"\"",
            "line 1: [[route]]: partition = \"\" is no name of a partition",
        ),
        (
            "[[route]]\npartition = \"a\"\ntypes = [\"x\"]",
            "types has x, and there is no [gpu.x]",
        ),
        (
            "[[route]]\npartition = \"a\"\njobs = \"all\"",
            "unknown variant `all`, expected `batch` or `interactive`",
        ),
        (
            "[[nodes]]\nnames = \"n1 n2\"\ngpus = [\"l40s:1\"]",
            "line 1: [[nodes]]: names = \"n1 n2\" is no list of nodes",
        ),
        (
            "[[nodes]]\nnames = \"n1\"\ngpus = [\"l40s\"]",
            "gpus has \"l40s\"; write TYPE:COUNT",
        ),
        (
            "[[nodes]]\nnames = \"n1\"\ngpus = [\"l40s:0\"]",
            "gpus has \"l40s:0\"; write TYPE:COUNT",
        ),
        (
            "[[nodes]]\nnames = \"n1\"\ngpus = [\"v100:4\"]",
            "gpus has v100, which is no [gpu.*] table",
        ),
        (
            "[[nodes]]\nnames = \"n1\"\ngpus = [\"l40s:1\"]\nslurm = \"a\\nPartitionName=x\"",
            "is not one line of plain words",
        ),
    ] {
        let error = wrong(text);
        assert!(error.contains(expected), "{text}\n{error}\n{expected}");
    }
    for (from, to, expected) in [
        (
            "end = 2026-11-28T08:00:00",
            "end = 2026-11-21T08:00:00",
            "start is not before end",
        ),
        ("end = 2026-11-28T08:00:00\n", "", "missing field `end`"),
        (
            "end = 2026-11-28T08:00:00",
            "end = \"tomorrow\"",
            "line 6: ",
        ),
        (
            "end = 2026-11-28T08:00:00",
            "end = 08:00:00",
            "end = 08:00:00 is no time",
        ),
        (
            "user = \"alice\"\n",
            "",
            "for whom? write user = \"NAME\" or account = \"NAME\"",
        ),
        (
            "user = \"alice\"\n",
            "user = \"a\"\naccount = \"b\"\n",
            "user and account are both set; write one",
        ),
        (
            "\"l40s_r\"",
            "\"h200\"",
            "type = \"h200\" also has a table [gpu.h200]",
        ),
        (
            "of = \"l40s\"",
            "of = \"x\"",
            "of = \"x\" names no [gpu.*] table",
        ),
        (
            "reason = \"paper deadline\"",
            "reason = \"\"",
            "reason is not one line of plain ASCII",
        ),
        (
            "reason = \"paper deadline\"\n",
            "",
            "missing field `reason`",
        ),
    ] {
        let text = RESERVED.replace(from, to);
        assert_ne!(text, RESERVED);
        let error = wrong(&text);
        assert!(error.contains(expected), "{error}\n{expected}");
    }
    let twice = wrong(&format!("{RESERVED}{RESERVED}"));
    assert!(
        twice.contains(
            "line 8: [[reservable]]: type l40s_r is kept for user alice until 2026-11-28T08:00:00"
        ),
        "{twice}"
    );
    // Since ever, and one after the other.
    policy(&RESERVED.replace("start = 2026-11-21T08:00:00\n", ""));
    let next = RESERVED.replace("11-28", "12-05").replace("11-21", "11-28");
    policy(&format!("{RESERVED}{next}"));
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
    softmig: --ntasks-per-gpu=1: class student may have no whole GPUs [WHOLE_GPU_CLASS]
    softmig: use --gres=gpu:h200.4:1 (35788 MiB, 25 % of the GPU's time)
    ");
    let refusal = refused(ask_for(&policy, &tasks(2, 1), researcher()));
    assert!(
        refusal.message.contains("names no type of GPU"),
        "{refusal}"
    );
    let reserved = self::policy(RESERVED);
    assert_eq!(
        refused(ask_for(&reserved, &tasks(1, 1), alice())).code,
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
fn a_type_that_nobody_knows_is_refused_where_types_matter() {
    // Slurm takes some other names for a known type.
    for policy in [policy(CLASSES), policy(RESERVED)] {
        let refusal = refused(ask(&policy, "gpu:a40sjr:1", researcher()));
        assert_eq!(refusal.code, Code::SliceType, "{refusal}");
        passed(ask(&policy, "gpu:v100:1", researcher()));
    }
    let same = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n[defaults]\nshards = 8\nwhole_gpus = 2\n";
    let same = Policy::parse(same).unwrap();
    passed(ask(&same, "gpu:other:1", alice()));
}

#[test]
fn a_job_that_takes_a_whole_node_stays_off_kept_gpus() {
    let exclusive = |gres: Option<&str>| Request {
        exclusive: true,
        tres_per_node: gres.map(str::to_string),
        ..Request::default()
    };
    let bare = policy(RESERVED);
    assert_eq!(
        refused(ask_for(&bare, &exclusive(None), alice())).code,
        Code::Reserved
    );
    let nodes = "[[nodes]]\nnames = \"gpu[1-2]\"\ngpus = [\"l40s:4\"]\n[[nodes]]\nnames = \"gpu3\"\ngpus = [\"l40s:3\", \"l40s_r:1\"]\n";
    let known = policy(&format!("{RESERVED}{nodes}"));
    for gres in [None, Some("gpu:l40s:1")] {
        let terms = passed(ask_for(&known, &exclusive(gres), alice()));
        assert_eq!(terms.off_nodes.as_deref(), Some("gpu3"));
    }
    assert_eq!(passed(ask(&known, "gpu:l40s:1", alice())).off_nodes, None);
}

#[test]
fn a_list_of_qos_is_as_strict_as_its_strictest_name() {
    let policy = policy(CLASSES);
    let qos = |asker: Asker, qos: &str, gres| {
        ask(
            &policy,
            gres,
            Asker {
                qos: Some(qos.into()),
                ..asker
            },
        )
    };
    passed(qos(researcher(), "researcher,long", "gpu:l40s:1"));
    for list in ["student,normal", "normal,student", "student,admin"] {
        assert_eq!(
            refused(qos(alice(), list, "gpu:l40s.4:1")).code,
            Code::LimitQos,
            "{list}"
        );
    }
    for list in [
        "normal,researcher",
        "researcher,normal",
        "student,researcher",
        "student,normal",
        "normal,student",
    ] {
        assert_eq!(
            refused(qos(alice(), list, "license:1")).code,
            Code::LimitQos,
            "{list}"
        );
    }
}

#[test]
fn more_reservations_than_anybody_means_open_nothing() {
    let policy = policy(GATE);
    let list = vec!["course_1"; 65].join(",");
    let asker = Asker {
        reservation: Some(list),
        ..alice()
    };
    assert_eq!(
        refused(ask(&policy, "gpu:l40s.4:1", asker)).code,
        Code::GateReservation
    );
}
