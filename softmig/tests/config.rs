//! `softmig config` as an administrator runs it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::path::Path;
use support::softmig;

const POLICY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../conf/policy.toml");

/// Exit status, standard output and standard error.
fn config(words: &[&str]) -> (i32, String, String) {
    softmig(&[&["config"], words].concat())
}

fn write(policy: &str, folder: &Path, more: &[&str]) -> (i32, String) {
    let folder = folder.to_str().unwrap();
    let words = [
        "--slurm-version",
        "24.11",
        "--policy",
        policy,
        "--write",
        folder,
    ];
    let (status, said, error) = config(&[&words, more].concat());
    assert_eq!(error, "");
    (status, said.replace(folder, "DIR"))
}

#[test]
fn without_a_folder_all_is_printed() {
    let (status, text, _) = config(&["--slurm-version", "24.11", "--policy", POLICY]);
    assert_eq!(status, 0);
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("==> ")?.strip_suffix(" <=="))
        .collect();
    assert_eq!(
        names,
        [
            "softmig.conf",
            "gres.conf",
            "cgroup.conf",
            "softmig-qos.sh",
            "softmig-reservations.sh"
        ]
    );
}

#[test]
fn files_that_differ_are_left_and_make_the_status_3() {
    let folder = tempfile::tempdir().unwrap();
    let (status, said) = write(POLICY, folder.path(), &[]);
    assert_eq!(status, 0);
    insta::assert_snapshot!(said, @r"
    DIR/softmig.conf: written
    DIR/gres.conf: written
    DIR/cgroup.conf: written
    DIR/softmig-qos.sh: written
    DIR/softmig-reservations.sh: written
    ");
    std::fs::write(folder.path().join("gres.conf"), "AutoDetect=nvml\n").unwrap();
    let (status, said) = write(POLICY, folder.path(), &[]);
    assert_eq!(status, 3);
    insta::assert_snapshot!(said, @r"
    DIR/softmig.conf: unchanged
    DIR/gres.conf: differs, and is left as it is; see what would change with
      diff -u DIR/gres.conf DIR/gres.conf.new
    and take it over with
      mv DIR/gres.conf.new DIR/gres.conf
    DIR/cgroup.conf: unchanged
    DIR/softmig-qos.sh: unchanged
    DIR/softmig-reservations.sh: unchanged
    ");
    let (status, said) = write(POLICY, folder.path(), &["--force"]);
    assert_eq!(status, 0);
    let replaced = "DIR/gres.conf: written; what was there is DIR/gres.conf.old\n";
    assert!(said.contains(replaced), "{said}");
    assert_eq!(write(POLICY, folder.path(), &[]).0, 0);
}

#[test]
fn a_wrong_policy_is_told_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.toml");
    std::fs::write(&path, "\n[[nodes]]\nnames = \"n1\"\ngpus = [\"l40s:1\"]\n").unwrap();
    let path = path.to_str().unwrap();
    let (status, said, error) = config(&["--slurm-version", "22.05", "--policy", path]);
    assert_eq!((status, said.as_str()), (1, ""));
    assert!(
        error.starts_with(&format!(
            "softmig config: {path}: line 2: [[nodes]]: gpus has l40s"
        )),
        "{error}"
    );
}

#[test]
fn wrong_usage_is_status_2() {
    for words in [
        &["--slurm-version", "24"][..],
        &["--slurm-version", "24.11", "--force"],
    ] {
        assert_eq!(config(words).0, 2, "{words:?}");
    }
}

#[test]
fn a_policy_that_slurmctld_would_not_take_makes_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.toml");
    let told = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let words = [
            "--slurm-version",
            "24.11",
            "--policy",
            path.to_str().unwrap(),
        ];
        let (status, said, error) = config(&words);
        assert_eq!((status, said.as_str()), (1, ""), "{error}");
        error.replace(&format!("softmig config: {}: ", path.display()), "")
    };
    assert_eq!(
        told("# still being written\n"),
        "it has no [gpu.*] table; is it empty, or still being written?\n"
    );
    let gpus = "[gpu.a]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 4\n";
    let nodes = |names: &str| format!("[[nodes]]\nnames = \"{names}\"\ngpus = [\"a:1\"]\n");
    assert_eq!(
        told(&[gpus, &nodes("n[1-4]"), &nodes("m,n2")].concat()),
        "line 8: [[nodes]]: n2 is in names = \"m,n2\" and in names = \"n[1-4]\" of line 5; write it once\n"
    );
    assert_eq!(
        told(&[gpus, &nodes("n[1-999999999]")].concat()),
        "line 5: [[nodes]]: names = \"n[1-999999999]\" means more than 100000 names\n"
    );
}

#[test]
fn a_reservation_of_a_gpu_that_no_node_has_makes_no_files() {
    let gpu = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n";
    let kept = "[[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\nuser = \"alice\"\nstart = 2020-01-01T00:00:00Z\n\
                end = 2199-01-01T00:00:00Z\nreason = \"x\"\n";
    let nodes = |gpus: &str| format!("[[nodes]]\nnames = \"n1\"\ngpus = [{gpus}]\n");
    for (text, status) in [
        (
            format!("{gpu}{kept}{}", nodes("\"l40s:3\", \"l40s_r:1\"")),
            0,
        ),
        (format!("{gpu}{kept}{}", nodes("\"l40s:4\"")), 1),
        (
            format!(
                "{gpu}{}{}",
                kept.replace("2199", "2021"),
                nodes("\"l40s:4\"")
            ),
            0,
        ),
    ] {
        let policy = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(policy.path(), &text).unwrap();
        let path = policy.path().to_str().unwrap();
        let (code, out, error) = softmig(&["config", "--policy", path, "--slurm-version", "24.11"]);
        assert_eq!(code, status, "{text}{error}");
        assert_eq!(
            error.contains("no node in [[nodes]] has a GPU of this type"),
            status == 1,
            "{error}"
        );
        assert_eq!(out.is_empty(), status == 1, "{out}");
    }
}
