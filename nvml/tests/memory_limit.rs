//! A control group's limit as drivers from 615 on show it, by the fake driver.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use nvml_wrapper::Nvml;
use softmig_fake_node::{Description, Gpu, Node, PLACE_VARIABLE};
use softmig_nvml::memory_limit;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library that cargo built beside this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let name = "libsoftmig_fake_nvml.so";
    let folders = own.ancestors().skip(1).take(2);
    let mut paths = folders.map(|folder| folder.join(name));
    paths.find(|path| path.exists()).unwrap()
}

const GROUP: &str = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_12";

/// Runs in a process that has the driver's node in its environment.
#[test]
fn asks_the_driver() {
    let Ok(wanted) = std::env::var("WANTED") else {
        return;
    };
    let nvml = Nvml::builder()
        .lib_path(library().as_os_str())
        .init()
        .unwrap();
    let uuid = nvml.device_by_index(0).unwrap().uuid().unwrap();
    let limit = memory_limit(&nvml, &uuid, Path::new(GROUP));
    assert_eq!(format!("{limit:?}"), wanted);
    assert_eq!(
        memory_limit(&nvml, &uuid, Path::new("/sys/fs/cgroup")),
        None
    );
    assert_eq!(memory_limit(&nvml, "GPU-none", Path::new(GROUP)), None);
}

#[test]
fn a_groups_limit_is_the_drivers() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("node");
    let gpu = Gpu::l40s(0);
    let uuid = gpu.uuid.clone();
    std::fs::write(folder.path().join("nvidia0"), "").unwrap();
    let description = Description::new(&[gpu]).devices(folder.path());
    let _node = Node::describe(&place, description).unwrap();
    let asks = |wanted: &str| {
        let mut test = Command::new(std::env::current_exe().unwrap());
        test.args(["--exact", "asks_the_driver"]);
        test.env(PLACE_VARIABLE, &place).env("WANTED", wanted);
        assert!(test.status().unwrap().success(), "{wanted}");
    };
    // A driver that knows no limits, one without any here, and one with.
    asks("None");
    let limits = place.with_extension("limits");
    std::fs::write(&limits, "").unwrap();
    asks("None");
    std::fs::write(&limits, format!("{uuid} {GROUP} 11918114816\n")).unwrap();
    asks("Some(11918114816)");
}
