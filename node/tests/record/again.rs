//! A job that is recorded again: after a kill, by a second call, after a requeue, or under the number of an older job.

use proptest::prelude::*;
use softmig_node::allowance::{Allowance, Source};
use softmig_node::job::Job;
use softmig_node::job_files::{JobFiles, conf_of};
use softmig_policy::node::job_conf::{Gpus, JobConf};
use softmig_policy::node::tag::Tag;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use crate::world::{GPU_0, GPU_1, SLICE, World, job};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A kill leaves some of the files and perhaps a half-written one.
    #[test]
    fn after_a_kill_anywhere_the_next_prolog_makes_the_same_files(keep: [bool; 16], half in 0usize..300) {
        let world = World::new();
        let job = job("7", SLICE, &[("SLURM_JOB_SLUID", "sEKNKTV3WPVA00")]);
        world.prolog(&job, &[GPU_0, GPU_1]).unwrap();
        let whole = world.all();
        let text = fs::read(world.path("7.conf")).unwrap();
        // The conf is there only when all else is.
        fs::remove_file(world.path("7.conf")).unwrap();
        for (name, keep) in world.files().iter().zip(keep) {
            if !keep {
                fs::remove_file(world.path(name)).unwrap();
            }
        }
        fs::write(world.path(".7.conf.new"), &text[..half.min(text.len())]).unwrap();
        fs::write(world.path("jobs/7/.ledger.new"), "half").unwrap();
        world.prolog(&job, &[GPU_0, GPU_1]).unwrap();
        prop_assert_eq!(world.all(), whole);
    }
}

#[test]
fn a_second_call_changes_nothing() {
    let world = World::new();
    let job = job("7", SLICE, &[("SLURM_JOB_SLUID", "sEKNKTV3WPVA00")]);
    world.prolog(&job, &[GPU_0]).unwrap();
    fs::write(world.path("jobs/7/log"), "a line").unwrap();
    fs::write(world.path("jobs/7/ledger"), "what they hold").unwrap();
    let inode = |name: &str| fs::metadata(world.path(name)).unwrap().ino();
    let inodes = || ["7.conf", "jobs/7/ledger"].map(inode);
    let (before, inodes_before) = (world.all(), inodes());
    world.prolog(&job, &[GPU_0]).unwrap();
    assert_eq!(world.all(), before);
    assert_eq!(inodes(), inodes_before);
}

/// The driver may have read a card's UUID in between, or softmig been updated.
#[test]
fn a_second_call_that_knows_more_keeps_what_the_job_wrote() {
    let world = World::new();
    let started = |start: &str| job("7", SLICE, &[("SLURM_JOB_START_TIME", start)]);
    world.prolog(&started("17"), &[]).unwrap();
    let written = |name: &str| fs::read_to_string(world.path(name)).unwrap();
    for name in ["jobs/7/ledger", "jobs/7/log"] {
        fs::write(world.path(name), "what they hold").unwrap();
    }
    world.prolog(&started("17"), &[GPU_0]).unwrap();
    assert_eq!(world.conf("7.conf").gpus.iter().count(), 1);
    assert_eq!(written("jobs/7/ledger"), "what they hold");
    assert_eq!(written("jobs/7/log"), "what they hold");
    // The next run of the job, or the next job of this number, is another matter.
    world.prolog(&started("18"), &[GPU_0]).unwrap();
    assert_eq!(written("jobs/7/log"), "");
    assert!(!written("jobs/7/ledger").contains("hold"));
}

/// An older prolog wrote no names, and before 23.02 Slurm does not say when the run began.
#[test]
fn the_names_of_user_and_account_make_no_other_job() {
    let world = World::new();
    let named = job("7", SLICE, &[("SLURM_JOB_USER", "alice")]);
    for (first, then) in [
        (&named, &job("7", SLICE, &[])),
        (&job("7", SLICE, &[]), &named),
    ] {
        world.prolog(first, &[GPU_0]).unwrap();
        let ledger = world.path("jobs/7/ledger");
        fs::write(&ledger, "what they hold").unwrap();
        world.prolog(then, &[GPU_0]).unwrap();
        assert_eq!(fs::read_to_string(&ledger).unwrap(), "what they hold");
        world.clear(first);
    }
}

#[test]
fn only_the_jobs_own_plain_file_is_kept_as_its_ledger() {
    let world = World::new();
    let job = job("7", SLICE, &[]);
    let ledger = world.path("jobs/7/ledger");
    for spoil in [
        |path: &Path| symlink("/dev/null", path).unwrap(),
        |path: &Path| fs::create_dir_all(path.join("deeper")).unwrap(),
    ] {
        world.prolog(&job, &[GPU_0]).unwrap();
        fs::remove_file(&ledger).unwrap();
        spoil(&ledger);
        world.prolog(&job, &[GPU_0]).unwrap();
        let size = softmig_region::size(1) as u64;
        assert_eq!(fs::symlink_metadata(&ledger).unwrap().len(), size);
    }
}

/// The conf of a job to which slurmctld granted half a GPU.
fn conf_of_half(job: &Job) -> Option<JobConf> {
    let Some(Ok(Tag::Slice(limits))) = Tag::find("softmig=1:l40s:2/4:22732:hard") else {
        return None;
    };
    let allowance = Allowance::Slice(limits, Source::Slurmctld);
    conf_of(job, &allowance, Gpus::default(), None)
}

/// `softmig node enforce` may come to a job that has just begun.
#[test]
fn a_job_that_the_prolog_knows_already_is_left_as_it_is() {
    let world = World::new();
    let job = job("7", SLICE, &[]);
    let conf = conf_of_half(&job).unwrap();
    let files = JobFiles::new(&world.node, &job, Some(&conf));
    assert!(files.apply_if_missing(&world.node).unwrap());
    assert_eq!(world.conf("7.conf"), conf);
    world.prolog(&job, &[GPU_0]).unwrap();
    let before = world.all();
    assert!(!files.apply_if_missing(&world.node).unwrap());
    assert_eq!(world.all(), before);
}

#[test]
fn a_conf_of_the_older_prolog_makes_place_for_one_of_ours() {
    let world = World::new();
    let job = job("7", SLICE, &[]);
    drop(world.node.make().unwrap());
    fs::write(
        world.path("7.conf"),
        "CUDA_DEVICE_MEMORY_LIMIT=12288M\nCUDA_DEVICE_SM_LIMIT=25\n",
    )
    .unwrap();
    let conf = conf_of_half(&job).unwrap();
    let files = JobFiles::new(&world.node, &job, Some(&conf));
    assert!(files.apply_if_missing(&world.node).unwrap());
    assert_eq!(world.conf("7.conf"), conf);
    assert!(!files.apply_if_missing(&world.node).unwrap());
}

#[test]
fn a_job_without_gpus_makes_nothing_and_clears_what_is_left() {
    let world = World::new();
    let job = job("7", SLICE, &[("SLURM_JOB_SLUID", "sEKNKTV3WPVA00")]);
    world.clear(&job);
    assert!(!world.node.run.exists());
    world.prolog(&job, &[GPU_0]).unwrap();
    world.clear(&job);
    assert_eq!(world.files(), [] as [&str; 0]);
}

#[test]
fn an_unknown_job_never_finds_an_older_jobs_conf() {
    for allowance in [Allowance::Unknown, Allowance::Drain] {
        let world = World::new();
        let job = job("7", "softmig=1:whole", &[]);
        world.prolog(&job, &[GPU_0]).unwrap();
        world.prolog_with(&job, &allowance, &[GPU_0]).unwrap();
        assert_eq!(world.files(), [] as [&str; 0]);
    }
}

#[test]
fn a_requeued_job_gets_new_files_and_keeps_none_of_the_old() {
    let world = World::new();
    let first = job(
        "7",
        SLICE,
        &[
            ("SLURM_JOB_RESTART_COUNT", "0"),
            ("SLURM_JOB_SLUID", "sEKNKTV3WPVA00"),
        ],
    );
    let second = job(
        "7",
        SLICE,
        &[
            ("SLURM_JOB_RESTART_COUNT", "1"),
            ("SLURM_JOB_SLUID", "sEKNKTV3WPVD00"),
        ],
    );
    world.prolog(&first, &[GPU_0]).unwrap();
    for name in ["jobs/7/ledger", "jobs/7/log"] {
        fs::write(world.path(name), "a line").unwrap();
    }
    world.prolog(&second, &[GPU_1]).unwrap();
    assert_eq!(world.conf("7.conf").run, 1);
    assert_eq!(fs::read(world.path("jobs/7/log")).unwrap(), b"");
    let ledger = fs::read(world.path("jobs/7/ledger")).unwrap();
    assert_eq!(ledger, vec![0; softmig_region::size(1)]);
    assert!(!world.path("sEKNKTV3WPVA00.conf").exists());
    assert!(!world.path(&format!("gpu/{GPU_0}")).exists());
    assert_eq!(world.conf("sEKNKTV3WPVD00.conf").run, 1);
}
