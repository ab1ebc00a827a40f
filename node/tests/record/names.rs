//! Second names of a job, numbers that look alike, and links and folders that others left in the files' places.

use softmig_node::clear::clear;
use softmig_node::job_files::FilesError;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use crate::world::{GPU_0, SLICE, World, job};

#[test]
fn a_job_has_a_second_name_that_is_the_same_file() {
    let world = World::new();
    let named = job("7", SLICE, &[("SLURM_JOB_SLUID", "sEKNKTV3WPVA00")]);
    world.prolog(&job("7", SLICE, &[]), &[GPU_0]).unwrap();
    world.prolog(&named, &[GPU_0]).unwrap();
    let inode = |name: &str| fs::symlink_metadata(world.path(name)).unwrap().ino();
    assert_eq!(inode("7.conf"), inode("sEKNKTV3WPVA00.conf"));
    // An epilog that is not told the name still finds it.
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
    assert!(matches!(error, FilesError::Write(_)));
}
