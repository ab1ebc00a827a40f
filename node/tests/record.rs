//! What the prolog leaves on disk for a job, in a folder that stands for a node.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside their functions"
)]

use proptest::prelude::*;
use softmig_node::clear::clear;
use softmig_node::job::{GpuList, Job};
use softmig_node::node::Node;
use softmig_node::record::{RecordError, conf_of, record, record_if_missing};
use softmig_node::verdict::{Source, Verdict, decide};
use softmig_policy::node::job_conf::{Gpus, JobConf, Uuid};
use softmig_policy::node::tag::Tag;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const SLICE: &str = "softmig=1:l40s:1/4:11366:hard";
const GPU_0: &str = "GPU-00000000-1111-2222-3333-444444444444";
const GPU_1: &str = "GPU-11111111-1111-2222-3333-444444444444";

struct World {
    folder: tempfile::TempDir,
    node: Node,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        Self { folder, node }
    }

    /// Runs the prolog for a job whose comment is `comment`, with these GPUs.
    fn prolog(&self, job: &Job, gpus: &[&str]) -> Result<(), RecordError> {
        let verdict = decide(job.id, job.tags.comment, None, None, || {
            panic!("asked slurmctld")
        });
        self.prolog_with(job, &verdict, gpus)
    }

    fn prolog_with(&self, job: &Job, verdict: &Verdict, gpus: &[&str]) -> Result<(), RecordError> {
        let mut list = Gpus::default();
        for uuid in gpus {
            list.push(Uuid::parse(uuid).unwrap()).unwrap();
        }
        record(&self.node, job, conf_of(job, verdict, list).as_ref())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.node.run.join(name)
    }

    fn conf(&self, name: &str) -> JobConf {
        JobConf::parse(&fs::read(self.path(name)).unwrap()).unwrap()
    }

    /// All files and folders with mode and content.
    fn all(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let mut all = BTreeMap::new();
        collect(&self.node.run, &mut all);
        all
    }

    /// All files, without the folders that the node keeps.
    fn files(&self) -> Vec<String> {
        let relative = |path: &Path| path.strip_prefix(&self.node.run).unwrap().to_path_buf();
        let all = self.all().into_keys().filter(|path| !path.is_dir());
        let names = all.map(|path| relative(&path).to_string_lossy().into_owned());
        names.filter(|name| name != ".lock").collect()
    }
}

fn collect(folder: &Path, all: &mut BTreeMap<PathBuf, (u32, Vec<u8>)>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for path in entries.map(|entry| entry.unwrap().path()) {
        let mode = fs::symlink_metadata(&path).unwrap().mode();
        let content = fs::read(&path).unwrap_or_default();
        collect(&path, all);
        all.insert(path, (mode, content));
    }
}

/// A job of this user's, with more of its environment.
fn job(id: &str, tag: &str, more: &[(&str, &str)]) -> Job {
    let uid = rustix::process::getuid().as_raw().to_string();
    Job::read(|name| match name {
        "SLURM_JOB_ID" => Some(id.into()),
        "SLURM_JOB_UID" => Some(uid.clone().into()),
        "SLURM_JOB_GID" => Some(rustix::process::getgid().as_raw().to_string().into()),
        "SLURM_JOB_GPUS" => Some("0".into()),
        "SLURM_JOB_COMMENT" => Some(tag.into()),
        _ => more
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.into()),
    })
    .unwrap()
}

/// What `SLURM_JOB_GPUS` gives.
fn with_gpus(list: &str) -> Option<GpuList> {
    let job = Job::read(|name| match name {
        "SLURM_JOB_GPUS" => Some(list.into()),
        _ => Some("7".into()),
    });
    job.unwrap().gpus
}

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

    /// A kill leaves some of the files and perhaps a half-written one.
    #[test]
    fn after_a_kill_at_any_point_the_next_prolog_makes_the_same_files(keep: [bool; 16], half in 0usize..300) {
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
fn the_ledger_of_a_job_whose_gpus_nobody_names_is_for_all_of_the_node() {
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

/// `softmig node enforce` may come to a job that has just begun.
#[test]
fn a_job_that_the_prolog_knows_already_is_left_as_it_is() {
    let world = World::new();
    let job = job("7", SLICE, &[]);
    let Some(Ok(Tag::Slice(limits))) = Tag::find("softmig=1:l40s:2/4:22732:hard") else {
        panic!()
    };
    let verdict = Verdict::Slice(limits, Source::Slurmctld);
    let conf = conf_of(&job, &verdict, Gpus::default()).unwrap();
    assert!(record_if_missing(&world.node, &job, &conf).unwrap());
    assert_eq!(world.conf("7.conf"), conf);
    world.prolog(&job, &[GPU_0]).unwrap();
    let before = world.all();
    assert!(!record_if_missing(&world.node, &job, &conf).unwrap());
    assert_eq!(world.all(), before);
}

#[test]
fn a_job_without_gpus_makes_nothing_and_loses_what_an_older_one_left() {
    let world = World::new();
    let job = job("7", SLICE, &[("SLURM_JOB_SLUID", "sEKNKTV3WPVA00")]);
    record(&world.node, &job, None).unwrap();
    assert!(!world.node.run.exists());
    world.prolog(&job, &[GPU_0]).unwrap();
    record(&world.node, &job, None).unwrap();
    assert_eq!(world.files(), [] as [&str; 0]);
}

#[test]
fn a_job_of_which_nothing_is_known_never_finds_an_older_jobs_conf() {
    for verdict in [Verdict::Unknown, Verdict::Drain] {
        let world = World::new();
        let job = job("7", "softmig=1:whole", &[]);
        world.prolog(&job, &[GPU_0]).unwrap();
        world.prolog_with(&job, &verdict, &[GPU_0]).unwrap();
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

#[test]
fn a_job_has_a_second_name_that_is_the_same_file() {
    let world = World::new();
    let named = job("7", SLICE, &[("SLURM_JOB_SLUID", "sEKNKTV3WPVA00")]);
    world.prolog(&job("7", SLICE, &[]), &[GPU_0]).unwrap();
    world.prolog(&named, &[GPU_0]).unwrap();
    let inode = |name: &str| fs::symlink_metadata(world.path(name)).unwrap().ino();
    assert_eq!(inode("7.conf"), inode("sEKNKTV3WPVA00.conf"));
    // An epilog that is not told the name finds it all the same.
    let run = world.node.open().unwrap().unwrap();
    assert!(clear(&run, &job("7", SLICE, &[])).unwrap());
    drop(run);
    assert_eq!(world.files(), [] as [&str; 0]);
}

#[test]
fn a_second_name_is_never_another_jobs() {
    let world = World::new();
    world.prolog(&job("11", SLICE, &[]), &[GPU_0]).unwrap();
    let before = world.all();
    for name in ["11", "../11", "1 1", "uid/0", ".lock"] {
        let job = job("7", "softmig=1:whole", &[("SLURM_JOB_SLUID", name)]);
        world.prolog(&job, &[GPU_0]).unwrap();
        let run = world.node.open().unwrap().unwrap();
        clear(&run, &job).unwrap();
        drop(run);
        assert_eq!(world.all(), before, "{name}");
    }
}

#[test]
fn clearing_job_1_leaves_job_11_alone() {
    let world = World::new();
    world
        .prolog(
            &job("11", SLICE, &[("SLURM_JOB_SLUID", "s0000000000011")]),
            &[GPU_0],
        )
        .unwrap();
    let before = world.all();
    let one = job("1", SLICE, &[("SLURM_JOB_SLUID", "s0000000000001")]);
    world.prolog(&one, &[GPU_0]).unwrap();
    let run = world.node.open().unwrap().unwrap();
    assert!(clear(&run, &one).unwrap());
    assert!(!clear(&run, &one).unwrap());
    drop(run);
    assert_eq!(world.all(), before);
}

#[test]
fn links_in_the_place_of_files_are_replaced_and_never_followed() {
    let world = World::new();
    let outside = world.folder.path().join("outside");
    fs::write(&outside, "kept").unwrap();
    fs::create_dir_all(world.path("jobs")).unwrap();
    for name in ["7.conf", ".7.conf.new", "sEKNKTV3WPVA00.conf", "jobs/7"] {
        symlink(&outside, world.path(name)).unwrap();
    }
    let job = job("7", SLICE, &[("SLURM_JOB_SLUID", "sEKNKTV3WPVA00")]);
    world.prolog(&job, &[GPU_0]).unwrap();
    assert!(
        fs::symlink_metadata(world.path("7.conf"))
            .unwrap()
            .is_file()
    );
    assert_eq!(world.conf("sEKNKTV3WPVA00.conf"), world.conf("7.conf"));
    assert_eq!(fs::read(&outside).unwrap(), b"kept");
}

#[test]
fn links_in_the_place_of_folders_are_refused() {
    for name in ["", "uid", "gpu"] {
        let world = World::new();
        let outside = world.folder.path().join("outside");
        fs::create_dir(&outside).unwrap();
        if !name.is_empty() {
            fs::create_dir(&world.node.run).unwrap();
        }
        symlink(&outside, world.path(name))
            .unwrap_or_else(|_| symlink(&outside, &world.node.run).unwrap());
        assert!(
            world.prolog(&job("7", SLICE, &[]), &[GPU_0]).is_err(),
            "{name}"
        );
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{name}");
    }
}

#[test]
fn a_run_folder_that_others_can_write_to_is_refused() {
    let world = World::new();
    fs::create_dir(&world.node.run).unwrap();
    fs::set_permissions(&world.node.run, fs::Permissions::from_mode(0o777)).unwrap();
    let error = world.prolog(&job("7", SLICE, &[]), &[GPU_0]).unwrap_err();
    assert!(matches!(error, RecordError::Write(_)));
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
    assert!(Verdict::Slice(limits, Source::Smallest).must_be_recorded());
    assert!(Verdict::Unknown.must_be_recorded());
    assert!(!Verdict::Whole(Source::Tag).must_be_recorded());
}
