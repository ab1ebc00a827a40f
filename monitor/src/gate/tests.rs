use super::*;

const SLICE: &str = "CUDA_DEVICE_MEMORY_LIMIT=11366M\nCUDA_DEVICE_SM_LIMIT=25\nSOFTMIG_JOB=7\nSOFTMIG_UID=2001\n\
    SOFTMIG_TYPE=l40s\nSOFTMIG_SHARDS=1/4\nSOFTMIG_MODE=hard\nSOFTMIG_GPUS=\nSOFTMIG_DEVICE_GATE=1\n";

/// A node in a folder, whose gate cannot be set up: the folder is not a bpf file system.
fn keeper(policy: &str, node_conf: &str) -> (tempfile::TempDir, Keeper) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let node = Node::in_folder(path, rustix::process::getuid().as_raw());
    std::fs::create_dir_all(node.run.join("jobs/7")).unwrap();
    std::fs::write(node.run.join("jobs/7/log"), "").unwrap();
    std::fs::write(node.run.join("7.conf"), SLICE).unwrap();
    std::fs::write(&node.policy, policy).unwrap();
    std::fs::write(path.join("node.conf"), node_conf).unwrap();
    std::fs::write(
        path.join("ld.so.preload"),
        "/usr/lib/softmig/libsoftmig.so\n",
    )
    .unwrap();
    let settings = Settings::of_node(&node.gate);
    let (conf, preload) = (path.join("node.conf"), path.join("ld.so.preload"));
    let keeper = Keeper::with(node, conf, preload, settings);
    (folder, keeper)
}

const WANTED: &str = "[node]\ndevice_gate = true\n";
const ENFORCE: &str = "SOFTMIG_NODE=enforce\n";

#[test]
fn a_gate_is_wanted_where_the_policy_says_so_and_limits_hold() {
    let wanted = |policy: &str, conf: &str| keeper(policy, conf).1.0.is_wanted();
    assert_eq!(wanted(WANTED, ENFORCE), Some(true));
    assert_eq!(wanted("", ENFORCE), Some(false));
    assert_eq!(
        wanted("[node]\ndevice_gate = false\n", ENFORCE),
        Some(false)
    );
    for mode in ["observe", "off"] {
        assert_eq!(
            wanted(WANTED, &format!("SOFTMIG_NODE={mode}\n")),
            Some(false)
        );
    }
    assert_eq!(
        wanted(WANTED, "SOFTMIG_NODE=enforce\nSOFTMIG_IDENTITY=env\n"),
        Some(false)
    );
    // A file that cannot be read changes nothing.
    assert_eq!(wanted("[node", ENFORCE), None);
    assert_eq!(wanted(WANTED, "garbage"), None);
    let (folder, keeper) = keeper(WANTED, ENFORCE);
    std::fs::write(folder.path().join("ld.so.preload"), "/usr/lib/a.so\n").unwrap();
    assert_eq!(keeper.0.is_wanted(), Some(false));
    std::fs::remove_file(folder.path().join("ld.so.preload")).unwrap();
    assert_eq!(keeper.0.is_wanted(), Some(false));
    std::fs::remove_file(folder.path().join("node.conf")).unwrap();
    assert_eq!(keeper.0.is_wanted(), Some(false));
}

#[test]
fn without_a_gate_all_are_admitted_and_the_reason_is_kept() {
    let (_folder, keeper) = keeper(WANTED, ENFORCE);
    keeper.round();
    assert_eq!(keeper.admit(std::process::id(), 2001), Ok(()));
    let trouble = keeper.0.state().trouble.clone().unwrap();
    assert!(trouble.contains("mount -t bpf"), "{trouble}");
}

#[test]
fn a_jobs_log_has_one_line_for_many_refusals() {
    let (folder, keeper) = keeper(WANTED, ENFORCE);
    let refusal = |group: &str, pid| Refusal {
        group: group.into(),
        uid: 2001,
        pid,
        minor: 0,
    };
    let all = [
        refusal("job_7", 11),
        refusal("job_7", 12),
        refusal("session-3.scope", 13),
    ];
    keeper.0.tell(&all);
    keeper.0.tell(&all);
    let log = std::fs::read_to_string(folder.path().join("run/jobs/7/log")).unwrap();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(
        log.contains(" softmig[11] job 7: refused /dev/nvidia0: "),
        "{log}"
    );
    assert!(
        log.contains("/var/run/softmig/jobs/7, bound writable\n"),
        "{log}"
    );
}

#[test]
fn a_group_named_like_anothers_job_gets_no_lines_into_its_log() {
    let (folder, keeper) = keeper(WANTED, ENFORCE);
    let refusal = |pid| Refusal {
        group: "job_7".into(),
        uid: 2002,
        pid,
        minor: 0,
    };
    // One that is there and in no job, and one that has ended.
    keeper
        .0
        .tell(&[refusal(std::process::id()), refusal(u32::MAX)]);
    let log = std::fs::read_to_string(folder.path().join("run/jobs/7/log")).unwrap();
    assert_eq!(log, "");
}

#[test]
fn who_is_whose_is_not_guessed_while_a_conf_cannot_be_read() {
    let (folder, keeper) = keeper(WANTED, ENFORCE);
    std::os::unix::fs::symlink("other", folder.path().join("run/9.conf")).unwrap();
    let refusal = Refusal {
        group: "job_7".into(),
        uid: 2002,
        pid: u32::MAX,
        minor: 0,
    };
    keeper.0.tell(&[refusal]);
    let log = std::fs::read_to_string(folder.path().join("run/jobs/7/log")).unwrap();
    assert_eq!(log, "");
}

#[test]
fn a_log_that_is_a_link_is_left_alone() {
    let (folder, keeper) = keeper(WANTED, ENFORCE);
    let (log, other) = (
        folder.path().join("run/jobs/7/log"),
        folder.path().join("other"),
    );
    std::fs::write(&other, "").unwrap();
    std::fs::remove_file(&log).unwrap();
    std::os::unix::fs::symlink(&other, &log).unwrap();
    log::tell(&keeper.0.node, 7, 11, &refused(7, 0));
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "");
}

#[test]
fn jobs_are_known_by_both_of_their_names() {
    let confs = Confs {
        sluids: [("sEKNKTV3WPV500".to_string(), 7)].into(),
        ..Confs::default()
    };
    assert_eq!(job_of(&confs, "sEKNKTV3WPV500"), Some(7));
    assert_eq!(job_of(&confs, "job_12"), Some(12));
    assert_eq!(job_of(&confs, "step_0"), None);
}

#[test]
fn the_library_is_found_in_the_loaders_list() {
    let list = "/usr/lib/a.so # /x/libsoftmig.so\n/usr/lib/softmig/libsoftmig.so:/opt/libsoftmig.so\tlibsoftmig.so\n";
    let paths = ["/usr/lib/softmig/libsoftmig.so", "/opt/libsoftmig.so"];
    assert_eq!(libraries(list), paths.map(PathBuf::from));
    assert_eq!(libraries(""), [] as [PathBuf; 0]);
}
