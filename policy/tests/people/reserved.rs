//! GPUs that are reserved for a user or an account.

use super::*;

#[test]
fn a_reserved_gpu_is_its_holders_in_its_time_and_free_after_it() {
    let open = policy(RESERVED);
    let bob = || Submitter {
        user: Some("bob".into()),
        ..alice()
    };
    passed(ask(&open, "gpu:l40s_r:1", alice()));
    insta::assert_snapshot!(refused(ask(&open, "gpu:l40s_r:1", bob())), @r"
    softmig: gpu:l40s_r:1: reserved for user alice until 2026-11-28T08:00:00 (paper deadline) [RESERVED]
    softmig: use another GPU, for example --gres=gpu:l40s:1
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
            insta::assert_snapshot!(refusal.message(), @"gpu:l40s_r:1: reserved for user alice from 2026-11-23T08:00:00 to 2026-11-28T08:00:00 (paper deadline)");
        }
        passed(ask(&over, "gpu:l40s_r:1", who.clone()));
        passed(ask(&over, "gpu:1", who));
    }
    for policy in [&open, &ahead] {
        assert_eq!(refused(ask(policy, "gpu:1", bob())).code(), Code::Reserved);
    }
    for policy in [&open, &ahead, &over] {
        // There are no slices of it, and no user gets it by leaving the type out.
        assert_eq!(
            refused(ask(policy, "gpu:l40s_r.4:1", alice())).code(),
            Code::SliceType
        );
        assert_eq!(
            refused(ask(policy, "shard:l40s_r:1", alice())).code(),
            Code::SliceType
        );
        passed(ask(policy, "gpu:l40s:1", bob()));
        granted(ask(policy, "gpu:l40s.4:1", bob()));
    }
}

#[test]
fn a_holder_needs_no_whole_gpus_of_the_class() {
    let policy = policy(&format!(
        "{CLASSES}{RESERVED}{}",
        GATE.replace("slice", "whole")
    ));
    assert_eq!(passed(ask(&policy, "gpu:l40s_r:1", alice())).qos, None);
    let both = refused(ask(&policy, "gpu:l40s_r:1,gpu:l40s:1", alice()));
    assert_eq!(both.code(), Code::GateNoReservation);
}

#[test]
fn an_account_can_hold_a_gpu_and_times_have_offsets() {
    let text = RESERVED
        .replace("user = \"alice\"", "account = \"Research\"")
        .replace("2026-11-21T08:00:00", "2026-11-22T01:00:00+01:00");
    let policy = policy(&text);
    passed(ask(&policy, "gpu:l40s_r:1", researcher()));
    assert_eq!(
        refused(ask(&policy, "gpu:l40s_r:1", alice())).code(),
        Code::Reserved
    );
    passed(ask(
        &policy,
        "gpu:l40s_r:1",
        Submitter {
            account: MaybeKnown::Unknown,
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
fn a_job_that_takes_a_whole_node_stays_off_reserved_gpus() {
    let exclusive = |gres: Option<&str>| Request {
        exclusive: true,
        tres_per_node: gres.map(str::to_string),
        ..Request::default()
    };
    let bare = policy(RESERVED);
    assert_eq!(
        refused(ask_for(&bare, &exclusive(None), alice())).code(),
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
fn after_its_time_a_gpu_counts_like_the_others() {
    let over = policy(&format!(
        "{CLASSES}{}",
        RESERVED.replace("2026-11-28T08", "2026-11-21T09")
    ));
    // A student has no whole GPUs, a researcher two.
    assert_eq!(
        refused(ask(&over, "gpu:l40s_r:1", alice())).code(),
        Code::WholeGpuClass
    );
    let terms = passed(ask(&over, "gpu:l40s_r:2", researcher()));
    assert_eq!(terms.qos.as_deref(), Some("researcher"));
    assert_eq!(
        refused(ask(&over, "gpu:l40s_r:3", researcher())).code(),
        Code::LimitJob
    );
    let exclusive = Request {
        exclusive: true,
        ..Request::default()
    };
    assert_eq!(
        passed(ask_for(&over, &exclusive, researcher())).off_nodes,
        None
    );
}

#[test]
fn who_names_the_reservation_of_another_reads_whose_it_is() {
    let policy = policy(RESERVED);
    let inside = |user: &str| Submitter {
        user: Some(user.into()),
        reservation: Some("lunch,softmig_l40s_r_20261121080000".into()),
        ..alice()
    };
    for gres in ["gpu:l40s:1", "gpu:l40s.4:1"] {
        let refusal = refused(ask(&policy, gres, inside("bob")));
        assert_eq!(refusal.code(), Code::Reserved);
        let words = "reserved for user alice until 2026-11-28T08:00:00 (paper deadline)";
        assert!(refusal.message().ends_with(words), "{refusal}");
        assert!(ask(&policy, gres, inside("alice")).terms().is_some());
    }
    // Also jobs without GPUs.
    let verdict = ask_for(&policy, &Request::default(), inside("bob"));
    assert_eq!(refused(verdict).code(), Code::Reserved);
}
