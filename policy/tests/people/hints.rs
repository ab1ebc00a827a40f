//! Hints lead to what the person may have.

use super::*;

/// A student with one shard and no whole GPU.
const ONE_SHARD: &str = "default_class = \"student\"\n[classes.student]\nmembers = { users = [\"alice\"] }\nshards = 1\nwhole_gpus = 0\nmig = {}\n";

fn one_type(text: &str) -> Policy {
    let gpu = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n";
    Policy::parse_at(&format!("{text}{gpu}"), "UTC").unwrap()
}

#[test]
fn a_hint_offers_nothing_that_the_class_may_not_have() {
    let policy = policy(ONE_SHARD);
    let quarter = "--gres=gpu:l40s.4:1";
    let beyond = ["gpu:l40s:", "gpu:l40s.2:"];
    for gres in [
        "gpu:l40s.1:1",
        "gpu:l40s.1:4",
        "gpu:l40s.3:1",
        "gpu:l40s.4:2",
        "gpu:l40s.4:3",
        "gpu:l40s.2:3",
        "gpu:l40s.4:1,gpu:l40s:1",
        "gpu:l40s.4:1,gpu:l40s.4:1",
        "shard:l40s:3",
        "shard:l40s:9",
        "gpu:l40.2:1",
        "gpu:l40s.12g:1",
        "gpu:l40s.30g:1",
    ] {
        let refusal = refused(ask(&policy, gres, alice()));
        let hint = refusal.hint();
        assert!(hint.contains(quarter), "{gres}: {refusal}");
        assert!(
            !beyond.iter().any(|more| hint.contains(more)),
            "{gres}: {refusal}"
        );
    }
    let on = |change: fn(&mut Request)| {
        let mut request = Request {
            tres_per_node: Some("gpu:l40s.4:1".into()),
            ..Request::default()
        };
        change(&mut request);
        refused(ask_for(&policy, &request, alice())).hint()
    };
    assert_eq!(on(|request| request.exclusive = true), "omit --exclusive");
    let two_in_all = |request: &mut Request| {
        request.tres_per_node = None;
        request.tres_per_job = Some("gpu:l40s.2:1".into());
        request.min_nodes = Some(2);
    };
    assert_eq!(on(two_in_all), "use --gres=gpu:l40s.4:1 --nodes=1");
    assert_eq!(
        on(|request| request.min_nodes = Some(2)),
        "use --gres=gpu:l40s.4:1 --nodes=1"
    );
    // Without limits all of it is offered, as before.
    let free = self::policy("");
    insta::assert_snapshot!(refused(ask(&free, "gpu:l40s.1:4", alice())).hint(), @"use --gres=gpu:l40s:4 for whole GPUs, or --gres=gpu:l40s.2:1 (22732 MiB, 50 % of the GPU's time)");
}

#[test]
fn a_gate_before_whole_gpus_leaves_them_out_of_hints() {
    let policy = policy(&GATE.replace("slice", "whole"));
    let hint = refused(ask(&policy, "gpu:l40s.1:1", alice())).hint();
    assert_eq!(
        hint,
        "use --gres=gpu:l40s.2:1 (22732 MiB, 50 % of the GPU's time)"
    );
}

#[test]
fn who_may_have_nothing_is_sent_to_the_administrator() {
    let none = policy(
        "default_class = \"guest\"\n[classes.guest]\nmembers = { users = [\"alice\"] }\njobs = 0\nshards = 0\nwhole_gpus = 0\nmig = {}\n",
    );
    let hint = refused(ask(&none, "gpu:l40s.1:1", alice())).hint();
    assert_eq!(hint, "ask your administrator what class guest may use");
}

#[test]
fn a_reserved_gpu_is_answered_with_what_the_class_may_have() {
    let bob = Submitter {
        user: Some("bob".into()),
        ..alice()
    };
    let students = policy(&format!("{}{RESERVED}", ONE_SHARD.replace("alice", "bob")));
    let hint = refused(ask(&students, "gpu:l40s_r:1", bob.clone())).hint();
    assert_eq!(
        hint,
        "use part of another GPU, --gres=gpu:l40s.4:1 (11366 MiB, 25 % of the GPU's time)"
    );
    let free = policy(RESERVED);
    // The count is kept, and the holder reads of the GPU that is reserved for them.
    let two = refused(ask(&free, "gpu:2", bob)).hint();
    assert_eq!(
        two,
        "use --gres=gpu:h200:2 or --gres=gpu:l40s:2 or --gres=gpu:titanrtx:2"
    );
    let own = refused(ask(&free, "gpu:1", alice())).hint();
    assert!(own.starts_with("use --gres=gpu:l40s_r:1 or "), "{own}");
}

#[test]
fn too_many_gpus_of_any_type_are_answered_with_fewer() {
    let two = one_type(
        "default_class = \"lab\"\n[classes.lab]\nwhole_gpus = 2\nshards = \"unlimited\"\n",
    );
    let request = Request {
        tres_per_job: Some("gpu:3".into()),
        ..Request::default()
    };
    let hint = refused(ask_for(&two, &request, alice())).hint();
    assert_eq!(hint, "use --gres=gpu:2");
    let named = refused(ask(&two, "gpu:l40s:3", alice())).hint();
    assert_eq!(named, "use --gres=gpu:l40s:2");
}

#[test]
fn the_notice_counts_slices() {
    let notice = |keys: &str| {
        let text = format!(
            "limit_notice = true\ndefault_class = \"student\"\n[classes.student]\n{keys}\n"
        );
        passed(ask(&one_type(&text), "gpu:l40s.4:1", alice())).notice
    };
    for (keys, words) in [
        (
            "shards = 2\nwhole_gpus = 0",
            "2 quarters or 1 half, 0 whole GPUs",
        ),
        ("shards = 1\nwhole_gpus = \"unlimited\"", "1 quarter"),
        (
            "shards = 8\nwhole_gpus = 2",
            "8 quarters or 4 halves, 2 whole GPUs",
        ),
        (
            "shards = \"unlimited\"\nwhole_gpus = \"unlimited\"\nshards_of = { l40s = 4 }",
            "4 quarters or 2 halves of type l40s",
        ),
        (
            "shards = \"unlimited\"\nwhole_gpus = \"unlimited\"\njobs = 3",
            "3 GPU jobs",
        ),
    ] {
        let expected = format!(
            "softmig: class student may hold at once: {words}; jobs beyond that stay pending [LIMIT_NOTICE]"
        );
        assert_eq!(notice(keys), Some(expected));
    }
    // Types that are divided in different ways have only shards in common.
    let several = policy(
        "limit_notice = true\ndefault_class = \"student\"\n[classes.student]\nshards = 2\nwhole_gpus = \"unlimited\"\nmig = {}\n",
    );
    let text = passed(ask(&several, "gpu:l40s.4:1", alice()))
        .notice
        .unwrap();
    assert!(text.contains("hold at once: 2 shards;"), "{text}");
}

#[test]
fn no_class_is_named_by_an_account_that_slurm_has_yet_to_check() {
    let policy = policy(&format!("limit_notice = true\n{CLASSES}"));
    let notice = |submitter: Submitter| passed(ask(&policy, "gpu:h200.8:1", submitter)).notice;
    let typed = |submitter: Submitter| Submitter {
        is_account_unchecked: true,
        ..submitter
    };
    assert!(notice(researcher()).is_some());
    assert_eq!(notice(typed(researcher())), None);
    // Her class is by her name, whatever she types.
    assert!(notice(typed(alice())).is_some());
}
