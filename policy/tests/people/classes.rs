//! The classes of users, and what their members may hold.

use super::*;

#[test]
fn a_class_is_found_by_user_then_account_then_group() {
    let policy = policy(CLASSES);
    let qos = |submitter| passed(ask(&policy, "gpu:l40s.4:1", submitter)).qos;
    let named = |name: &str| Some(name.to_string());
    assert_eq!(qos(alice()), named("student"));
    assert_eq!(
        qos(Submitter {
            account: MaybeKnown::Is("research".into()),
            ..alice()
        }),
        named("student")
    );
    assert_eq!(qos(researcher()), named("researcher"));
    assert_eq!(
        qos(Submitter {
            group: Some(3001),
            ..researcher()
        }),
        named("researcher")
    );
    let zoe = Submitter {
        user: Some("zoe".into()),
        account: MaybeKnown::Missing,
        ..alice()
    };
    assert_eq!(
        qos(Submitter {
            group: Some(3001),
            ..zoe.clone()
        }),
        named("student")
    );
    assert_eq!(qos(zoe), named("softmig"));
    assert_eq!(
        qos(Submitter {
            user: Some("carol".into()),
            ..alice()
        }),
        None,
        "nothing to hold"
    );
    let dave = Submitter {
        user: Some("dave".into()),
        account: MaybeKnown::Is("research".into()),
        ..alice()
    };
    assert_eq!(qos(dave), named("user_dave"), "accounts are not looked at");
    assert_eq!(
        qos(Submitter {
            account: MaybeKnown::Unknown,
            ..researcher()
        }),
        None
    );
    let text = CLASSES.replace("[defaults]", "default_class = \"student\"\n[defaults]");
    let policy = self::policy(&text);
    let zoe = Submitter {
        user: Some("zoe".into()),
        account: MaybeKnown::Missing,
        ..alice()
    };
    assert_eq!(
        passed(ask(&policy, "gpu:l40s.4:1", zoe)).qos,
        named("student")
    );
}

#[test]
fn a_job_that_could_never_start_is_refused_with_the_figures() {
    let policy = policy(CLASSES);
    let students = |gres| refused(ask(&policy, gres, alice()));
    insta::assert_snapshot!(students("gpu:l40s:1"), @r"
    softmig: gpu:l40s:1: class student may not use whole GPUs [WHOLE_GPU_CLASS]
    softmig: use --gres=gpu:l40s.2:1 (22732 MiB, 50 % of the GPU's time)
    ");
    insta::assert_snapshot!(students("gpu:h200.2:1"), @r"
    softmig: gpu:h200.2:1: 4 shards requested, but class student may hold at most 2 at once [LIMIT_JOB]
    softmig: use --gres=gpu:h200.4:1 (35788 MiB, 25 % of the GPU's time)
    ");
    insta::assert_snapshot!(students("gpu:h100_1g.10gb:1").message(), @"gpu:h100_1g.10gb:1: 1 MIG instance of type h100_1g.10gb requested, but class student may not hold any");
    let research = |gres| refused(ask(&policy, gres, researcher()));
    insta::assert_snapshot!(research("gpu:l40s:3").message(), @"gpu:l40s:3: 3 whole GPUs requested, but class researcher may hold at most 2 at once");
    insta::assert_snapshot!(research("gpu:h200:1").message(), @"gpu:h200:1: this counts as 8 shards, but class researcher may hold at most 4 of type h200 at once");
    insta::assert_snapshot!(research("gpu:titanrtx.4:1").message(), @"gpu:titanrtx.4:1: 20 shards requested, but class researcher may hold at most 16 at once");
    insta::assert_snapshot!(research("gpu:h100_1g.10gb:3").message(), @"gpu:h100_1g.10gb:3: 3 MIG instances of type h100_1g.10gb requested, but class researcher may hold at most 2 at once");
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
    softmig: gpu:1: a GPU type is required here, because types count differently in the limits of class researcher [LIMIT_JOB]
    softmig: use --gres=gpu:h200:1 or --gres=gpu:l40s:1 or --gres=gpu:titanrtx:1
    ");
    let carol = Submitter {
        user: Some("carol".into()),
        ..alice()
    };
    passed(ask(&policy, "gpu:h200:64", carol));
    let long = Submitter {
        time_limit: Some(1441),
        ..researcher()
    };
    insta::assert_snapshot!(refused(ask(&policy, "gpu:l40s.4:1", long)), @r"
    softmig: gpu:l40s.4:1: --time=1-00:01:00 requested, but class researcher may use at most 1-00:00:00 [LIMIT_JOB]
    softmig: use --time=1-00:00:00 or less
    ");
}

fn ask_in_qos(policy: &Policy, submitter: Submitter, qos: &str, gres: &str) -> Verdict {
    let qos = Some(qos.into());
    ask(policy, gres, Submitter { qos, ..submitter })
}

#[test]
fn a_job_is_in_its_class_qos_and_in_no_other_class() {
    let policy = policy(CLASSES);
    let qos = |submitter, qos: &str, gres| ask_in_qos(&policy, submitter, qos, gres);
    assert_eq!(passed(qos(alice(), "student", "gpu:l40s.4:1")).qos, None);
    assert_eq!(passed(qos(researcher(), "LONG", "gpu:l40s:1")).qos, None);
    insta::assert_snapshot!(refused(qos(alice(), "long", "gpu:l40s.4:1")), @r"
    softmig: gpu:l40s.4:1: GPU jobs of class student may not use QOS long [LIMIT_QOS]
    softmig: omit --qos, or use --qos=student
    ");
    for (who, other) in [
        (alice(), "researcher"),
        (researcher(), "Student"),
        (alice(), "user_dave"),
    ] {
        let refusal = refused(qos(who.clone(), other, "gpu:l40s.4:1"));
        assert_eq!(refusal.code(), Code::LimitQos);
        // Also a job without any GPU may not borrow another class's priority.
        let cpu = Request::default();
        let submitter = Submitter {
            qos: Some(other.into()),
            ..who
        };
        assert_eq!(
            refused(ask_for(&policy, &cpu, submitter)).code(),
            Code::LimitQos
        );
    }
    assert_eq!(passed(qos(alice(), "normal", "license:1")).qos, None);
    assert_eq!(passed(ask(&policy, "license:1", alice())).qos, None);
    let now = Submitter {
        qos_now: Some("normal".into()),
        ..alice()
    };
    assert_eq!(
        passed(ask(&policy, "gpu:l40s.4:1", now)).qos.as_deref(),
        Some("student")
    );
    let now = Submitter {
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
    insta::assert_snapshot!(notice, @"softmig: class student may hold at once: 2 shards, 0 whole GPUs; jobs beyond that stay pending [LIMIT_NOTICE]");
    let carol = Submitter {
        user: Some("carol".into()),
        ..alice()
    };
    assert_eq!(passed(ask(&policy, "gpu:l40s.4:1", carol)).notice, None);
}

#[test]
fn an_administrators_change_meets_no_class_and_no_gate() {
    let policy = policy(&format!("{CLASSES}{GATE}"));
    let root = Submitter {
        is_exempt: true,
        qos: Some("researcher".into()),
        ..alice()
    };
    assert_eq!(
        passed(ask(&policy, "gpu:l40s:4", root.clone())),
        Terms::default()
    );
    granted(ask(&policy, "gpu:l40s.2:1", root.clone()));
    // The meaning of a slice stays the same.
    refused(ask(&policy, "gpu:l40s.3:1", root));
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
fn a_list_of_qos_is_as_strict_as_its_strictest_name() {
    let policy = policy(CLASSES);
    let qos = |submitter, qos: &str, gres| ask_in_qos(&policy, submitter, qos, gres);
    passed(qos(researcher(), "researcher,long", "gpu:l40s:1"));
    for list in ["student,normal", "normal,student", "student,admin"] {
        assert_eq!(
            refused(qos(alice(), list, "gpu:l40s.4:1")).code(),
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
            refused(qos(alice(), list, "license:1")).code(),
            Code::LimitQos,
            "{list}"
        );
    }
}
