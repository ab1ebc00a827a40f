//! The files of one job, what they say, and when a job may start without them.

use proptest::prelude::*;
use softmig_node::allowance::{Allowance, Source};
use softmig_policy::node::tag::Tag;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::world::{GPU_0, GPU_1, SLICE, World, job, with_gpus};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_limits_of_the_tag_are_those_of_the_conf(
        kind in "[a-z][a-z0-9._-]{0,20}", per_gpu in 1u32..=100, part in 1u32..=100, mib in 1u32.., soft: bool, run: u16,
    ) {
        let shards = part.min(per_gpu);
        let mode = if soft { "soft" } else { "hard" };
        let tag = format!("some words softmig=1:{kind}:{shards}/{per_gpu}:{mib}:{mode}");
        let world = World::new();
        let job = job("7", &tag, &[("SLURM_JOB_RESTART_COUNT", &run.to_string())]);
        world.prolog(&job, &[GPU_0]).unwrap();
        let conf = world.conf("7.conf");
        prop_assert_eq!(Some(Ok(Tag::Slice(conf.limits.unwrap()))), Tag::find(&tag));
        prop_assert_eq!((conf.uid, conf.run), (job.uid, u32::from(run)));
    }
}

#[test]
fn a_slice_job_has_its_conf_its_ledger_its_log_and_its_markers() {
    let world = World::new();
    let job = job("7", SLICE, &[]);
    world.prolog(&job, &[GPU_0]).unwrap();
    let uid_marker = format!("uid/{}/7", job.uid);
    let gpu_marker = format!("gpu/{GPU_0}/7");
    assert_eq!(
        world.files(),
        [
            "7.conf",
            &gpu_marker,
            "jobs/7/ledger",
            "jobs/7/log",
            &uid_marker
        ]
    );
    assert_eq!(world.conf("7.conf").job.unwrap().get(), 7);
    let mode = |name: &str| fs::metadata(world.path(name)).unwrap().mode() & 0o7777;
    assert_eq!(
        [
            mode("7.conf"),
            mode("jobs/7"),
            mode("jobs/7/ledger"),
            mode("jobs/7/log")
        ],
        [0o644, 0o755, 0o600, 0o620]
    );
    assert_eq!(
        [mode(""), mode("jobs"), mode("uid"), mode("gpu")],
        [0o755; 4]
    );
}

#[test]
fn a_ledger_is_all_zeros_and_has_its_room_for_each_gpu() {
    for (gpus, count) in [("0", 1), ("3", 1), ("0,2", 2), ("0-7", 8)] {
        let world = World::new();
        let mut job = job("7", SLICE, &[]);
        job.gpus = with_gpus(gpus);
        world.prolog(&job, &[GPU_0]).unwrap();
        let size = softmig_region::size(count);
        let ledger = fs::metadata(world.path("jobs/7/ledger")).unwrap();
        assert_eq!(ledger.len(), size as u64, "{gpus}");
        assert!(ledger.blocks() * 512 >= size as u64, "{gpus}");
        let bytes = fs::read(world.path("jobs/7/ledger")).unwrap();
        assert_eq!(bytes, vec![0; size], "{gpus}");
    }
}

/// `softmig node enforce` does not know which GPUs a job has.
#[test]
fn a_job_with_unknown_gpus_has_a_ledger_for_all_of_the_node() {
    for (cards, count) in [(0, 1), (1, 1), (3, 3)] {
        let world = World::new();
        for card in 0..cards {
            let folder = world.node.gpus.join(format!("0000:0{card}:00.0"));
            fs::create_dir_all(&folder).unwrap();
            let information = format!("Model: NVIDIA L40S\nDevice Minor: {card}\n");
            fs::write(folder.join("information"), information).unwrap();
        }
        let mut job = job("7", SLICE, &[]);
        job.gpus = with_gpus("?");
        world.prolog(&job, &[]).unwrap();
        let ledger = fs::metadata(world.path("jobs/7/ledger")).unwrap();
        assert_eq!(ledger.len(), softmig_region::size(count) as u64);
    }
}

#[test]
fn a_whole_gpu_job_has_a_conf_and_nothing_to_write_into() {
    let world = World::new();
    world
        .prolog(&job("7", "softmig=1:whole", &[]), &[GPU_0])
        .unwrap();
    assert_eq!(world.files(), ["7.conf"]);
    assert_eq!(world.conf("7.conf").limits, None);
}

#[test]
fn a_job_on_several_gpus_is_marked_on_each() {
    let world = World::new();
    world
        .prolog(&job("7", SLICE, &[]), &[GPU_0, GPU_1])
        .unwrap();
    let uuids: Vec<_> = world
        .conf("7.conf")
        .gpus
        .iter()
        .map(|uuid| uuid.as_str().to_string())
        .collect();
    assert_eq!(uuids, [GPU_0, GPU_1]);
    for uuid in uuids {
        assert!(world.path(&format!("gpu/{uuid}/7")).exists());
    }
}

#[test]
fn gpus_without_a_uuid_still_leave_the_limits() {
    let world = World::new();
    world.prolog(&job("7", SLICE, &[]), &[]).unwrap();
    assert_eq!(world.conf("7.conf").limits.unwrap().memory_mib(), 11366);
}

#[test]
fn without_its_ledger_a_job_with_limits_is_not_recorded() {
    let world = World::new();
    fs::create_dir(&world.node.run).unwrap();
    fs::write(world.path("jobs"), "no folder").unwrap();
    assert!(world.prolog(&job("7", SLICE, &[]), &[GPU_0]).is_err());
    assert!(!world.path("7.conf").exists());
    world
        .prolog(&job("7", "softmig=1:whole", &[]), &[GPU_0])
        .unwrap();
    assert_eq!(world.conf("7.conf").limits, None);
}

#[test]
fn a_missing_log_keeps_no_job_from_its_limits() {
    let world = World::new();
    let job = job("7", SLICE, &[]);
    world.prolog(&job, &[GPU_0]).unwrap();
    let log = world.path("jobs/7/log");
    fs::remove_file(&log).unwrap();
    // Deeper than anything that is removed.
    fs::create_dir_all(log.join("x/".repeat(40))).unwrap();
    world.prolog(&job, &[GPU_0]).unwrap();
    assert!(log.is_dir());
    assert_eq!(world.conf("7.conf").limits.unwrap().memory_mib(), 11366);
}

#[test]
fn only_a_job_with_all_of_its_gpus_may_start_without_its_files() {
    let limits = match Tag::find(SLICE) {
        Some(Ok(Tag::Slice(limits))) => limits,
        other => panic!("{other:?}"),
    };
    assert!(Allowance::Slice(limits, Source::Smallest).must_be_recorded());
    assert!(Allowance::Unknown.must_be_recorded());
    assert!(!Allowance::Whole(Source::Tag).must_be_recorded());
}
