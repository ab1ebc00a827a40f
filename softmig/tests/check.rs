//! `softmig check` on files, as an administrator runs it before Slurm has them. Checks of a running Slurm are tested
//! in tests/.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::softmig;

const POLICIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/policies");
const CONF: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../conf");

/// A site's own files around those that `softmig config` makes.
struct Site {
    folder: tempfile::TempDir,
    policy: PathBuf,
    version: &'static str,
}

impl Site {
    fn new(policy: &Path, version: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let site = Self {
            policy: folder.path().join("policy.toml"),
            version,
            folder,
        };
        // Times that are ahead for as long as this is run.
        let text = fs::read_to_string(policy).unwrap();
        site.write("policy.toml", &text.replace("= 2027-", "= 2199-"));
        let folder = site.folder.path().to_str().unwrap();
        let policy = site.policy.to_str().unwrap();
        let made = softmig(&[
            "config",
            "--policy",
            policy,
            "--slurm-version",
            version,
            "--write",
            folder,
        ]);
        assert_eq!(made.0, 0, "{made:?}");
        let made = fs::read_to_string(site.path("softmig.conf")).unwrap();
        let mut words = made.split_ascii_whitespace();
        let weights = words.find(|word| word.starts_with("TRESBillingWeights="));
        site.write(
            "slurm.conf",
            &format!(
                "ClusterName=c\nSlurmctldHost=ctl\n\
                 PriorityType=priority/multifactor\nPriorityWeightQOS=1000\ninclude softmig.conf\n\
                 PartitionName=gpu Nodes=ALL Default=YES {}\n",
                weights.unwrap_or_default()
            ),
        );
        for name in ["job_submit.lua", "cli_filter.lua"] {
            fs::copy(Path::new(CONF).join(name), site.path(name)).unwrap();
        }
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Puts one text in the place of another, which has to be there.
    fn change(&self, name: &str, old: &str, new: &str) {
        let text = fs::read_to_string(self.path(name)).unwrap();
        assert!(text.contains(old), "{old} is not in {text}");
        self.write(name, &text.replace(old, new));
    }

    fn check(&self, words: &[&str]) -> (i32, String, String) {
        let conf = self.path("slurm.conf");
        let own = [
            "check",
            "--slurm-conf",
            conf.to_str().unwrap(),
            "--slurm-version",
            self.version,
            "--policy",
            self.policy.to_str().unwrap(),
        ];
        softmig(&[&own, words].concat())
    }

    /// The codes of errors and warnings.
    fn codes(&self) -> (i32, Vec<String>) {
        let (status, text, _) = self.check(&[]);
        let lines = text.lines().map(|line| line.split_ascii_whitespace());
        let codes = lines.filter_map(|mut words| match words.next() {
            Some("ERROR" | "WARN") => words.next().map(str::to_string),
            _ => None,
        });
        (status, codes.collect())
    }
}

fn policy(name: &str) -> PathBuf {
    Path::new(POLICIES).join(name)
}

#[test]
fn what_config_makes_is_clean() {
    for name in ["ds01.toml", "surf.toml", "mig.toml"] {
        for version in ["22.05", "24.11", "26.05"] {
            let site = Site::new(&policy(name), version);
            let (status, text, _) = site.check(&[]);
            assert_eq!(status, 0, "{name} {version}: {text}");
            assert!(!text.contains("\nERROR"), "{name} {version}: {text}");
        }
    }
}

#[test]
fn each_finding_is_one_line_and_the_worst_comes_first() {
    let site = Site::new(&policy("ds01.toml"), "24.11");
    site.change("softmig.conf", "shard:l40s:12", "shard:l40s:16");
    site.change("cgroup.conf", "ConstrainDevices=yes", "ConstrainDevices=no");
    site.change("slurm.conf", "PriorityWeightQOS=1000\n", "");
    let (status, text, _) = site.check(&[]);
    assert_eq!(status, 3);
    insta::assert_snapshot!(text.replace(site.folder.path().to_str().unwrap(), "[folder]"));
    let (status, json, _) = site.check(&["--json"]);
    assert_eq!(status, 3);
    insta::assert_snapshot!(json.replace(site.folder.path().to_str().unwrap(), "[folder]"));
}

#[test]
fn a_file_that_was_changed_by_hand_is_found() {
    for (file, old, new, code) in [
        (
            "softmig.conf",
            "GresTypes=gpu,shard",
            "GresTypes=gpu",
            "GRES_TYPES",
        ),
        ("softmig.conf", "PrologFlags=Contain", "", "PROLOG_FLAGS"),
        (
            "softmig.conf",
            "Prolog=/usr/libexec/softmig-prolog",
            "",
            "PROLOG",
        ),
        ("softmig.conf", "JobSubmitPlugins=lua", "", "JOB_SUBMIT"),
        (
            "softmig.conf",
            "shard:l40s:12,",
            "shard:12,",
            "SHARDS_UNTYPED",
        ),
        (
            "softmig.conf",
            "shard:l40s_r:1",
            "shard:l40s_r:4",
            "RESERVABLE_SHARED",
        ),
        (
            "softmig.conf",
            "AccountingStorageEnforce=",
            "#",
            "ACCOUNTING_ENFORCE",
        ),
        (
            "slurm.conf",
            "TRESBillingWeights=\"GRES/gpu=4,",
            "TRESBillingWeights=\"GRES/gpu=2,",
            "BILLING_WEIGHTS",
        ),
        (
            "softmig.conf",
            "AccountingStorageType=accounting_storage/slurmdbd\n",
            "",
            "ACCOUNTING",
        ),
        (
            "job_submit.lua",
            "softmig_job_submit",
            "other",
            "JOB_SUBMIT",
        ),
        ("gres.conf", "Name=shard", "Name=mps", "GRES_CONF"),
    ] {
        let site = Site::new(&policy("ds01.toml"), "24.11");
        site.change(file, old, new);
        let (status, codes) = site.codes();
        assert_eq!(status, 3, "{file} {old}: {codes:?}");
        assert!(
            codes.iter().any(|own| own == code),
            "{file} {old}: {codes:?}"
        );
    }
}

#[test]
fn a_node_or_partition_in_both_files_is_found_with_its_lines() {
    let site = Site::new(&policy("surf.toml"), "24.11");
    let both = |line: &str| {
        site.change(
            "slurm.conf",
            "include softmig.conf\n",
            &format!("include softmig.conf\n{line}\n"),
        );
        let (status, text, _) = site.check(&[]);
        site.change("slurm.conf", &format!("{line}\n"), "");
        let found: Vec<String> = text
            .lines()
            .filter(|line| line.contains("_TWICE "))
            .map(|line| line.replace(&format!("{}/", site.folder.path().display()), ""))
            .collect();
        (status, found)
    };
    let lines = fs::read_to_string(site.path("softmig.conf")).unwrap();
    let line_of = |start: &str| {
        lines
            .lines()
            .position(|line| line.starts_with(start))
            .unwrap()
            + 1
    };
    assert_eq!(
        both("NodeName=r28n[3-9] CPUs=24 State=UNKNOWN"),
        (
            3,
            vec![format!(
                "ERROR NODE_TWICE r28n[3-4]: softmig.conf line {} and slurm.conf line 6 both have NodeName= for it; the node is \
                 defined twice, so slurmctld will not start; take it out of slurm.conf line 6; what else that line says goes into slurm \
                 of [[nodes]] in policy.toml",
                line_of("NodeName=r28n")
            )]
        )
    );
    assert_eq!(
        both("PartitionName=gpu_course Nodes=r28n[1-4]"),
        (
            3,
            vec![format!(
                "ERROR PARTITION_TWICE partition gpu_course: softmig.conf line {} and slurm.conf line 6 both have PartitionName= for \
                 it; the partition is defined twice, so slurmctld will not start; take it out of slurm.conf line 6; what else that \
                 line says goes into slurm of [[route]] in policy.toml",
                line_of("PartitionName=gpu_course")
            )]
        )
    );
    for harmless in [
        "NodeName=DEFAULT State=UNKNOWN\nNodeName=default Weight=1",
        "PartitionName=DEFAULT State=UP\nPartitionName=DEFAULT MaxTime=60",
        "NodeName=login1 CPUs=4\nNodeName=login2 CPUs=4\nPartitionName=cpu Nodes=login1",
    ] {
        assert_eq!(both(harmless), (0, vec![]), "{harmless}");
    }
}

#[test]
fn a_gate_that_others_of_the_same_class_pass_is_found() {
    let site = Site::new(&policy("surf.toml"), "24.11");
    let text = fs::read_to_string(&site.policy).unwrap();
    let classes = "[defaults]\nshards = \"unlimited\"\nwhole_gpus = \"unlimited\"\n\
         [classes.student]\nmembers = { users = [\"kim\"], accounts = [\"course\"] }\n";
    let gate = "reservation = [\"jhl_homework_.*\"]\n";
    let for_accounts = text.replace(gate, &format!("{gate}accounts = [\"course\"]\n"));
    site.write("policy.toml", &format!("{for_accounts}{classes}"));
    let (status, text, _) = site.check(&[]);
    assert_eq!(status, 0, "{text}");
    let told = "WARN  GATE_CLASS [[gate]] for slice: it lists accounts [\"course\"] of class student; these members of the \
                class pass it: user kim under another account; leave accounts out, and name the classes that may pass in exempt_classes";
    assert!(text.lines().any(|line| line == told), "{text}");
}

#[test]
fn what_is_no_slurm_conf_is_told() {
    let site = Site::new(&policy("surf.toml"), "24.11");
    let told = |conf: &Path| {
        let words = [
            "check",
            "--slurm-conf",
            conf.to_str().unwrap(),
            "--policy",
            site.policy.to_str().unwrap(),
        ];
        let (status, said, error) = softmig(&words);
        assert_eq!((status, said.as_str()), (1, ""), "{error}");
        error.replace(site.folder.path().to_str().unwrap(), "[folder]")
    };
    assert_eq!(
        told(&site.path("softmig.conf")),
        "softmig check: [folder]/softmig.conf: this is not a slurm.conf: it has neither ClusterName nor SlurmctldHost; give \
         the slurm.conf that includes it\n"
    );
    assert_eq!(
        told(site.folder.path()),
        "softmig check: [folder]: this is a folder; give the file, as [folder]/slurm.conf\n"
    );
}

#[test]
fn without_a_release_and_files_that_is_said() {
    let site = Site::new(&policy("surf.toml"), "24.11");
    fs::remove_file(site.path("cgroup.conf")).unwrap();
    fs::remove_file(site.path("cli_filter.lua")).unwrap();
    let conf = site.path("slurm.conf");
    let words = [
        "check",
        "--slurm-conf",
        conf.to_str().unwrap(),
        "--policy",
        site.policy.to_str().unwrap(),
    ];
    let (status, text, _) = softmig(&words);
    assert_eq!(status, 0, "{text}");
    for place in [
        "Slurm's release",
        "cgroup.conf",
        "cli_filter.lua",
        "reservations",
    ] {
        assert!(
            text.contains(&format!("SKIP  NOT_LOOKED_AT {place}: ")),
            "{place}: {text}"
        );
    }
}

#[test]
fn what_cannot_be_looked_at_ends_with_1() {
    let (status, _, error) = softmig(&["check", "--policy", "/nonexistent/policy.toml"]);
    assert_eq!(status, 1);
    assert_eq!(
        error,
        "softmig check: /nonexistent/policy.toml: the file does not exist; use --policy FILE, or run this where softmig is installed\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("policy.toml");
    fs::write(&empty, "").unwrap();
    let (status, _, error) = softmig(&["check", "--policy", empty.to_str().unwrap()]);
    assert_eq!(status, 1);
    assert!(
        error.ends_with(": it has no [gpu.*] table; is it empty, or still being written?\n"),
        "{error}"
    );
    let surf = policy("surf.toml");
    let own = surf.to_str().unwrap();
    let (status, _, error) = softmig(&[
        "check",
        "--policy",
        own,
        "--slurm-conf",
        "/nonexistent/slurm.conf",
    ]);
    assert_eq!(status, 1);
    assert!(error.contains("/nonexistent/slurm.conf"), "{error}");
}

#[test]
fn another_policy_is_reported_with_its_line() {
    let own = policy("surf.toml");
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.toml");
    let text = fs::read_to_string(&own).unwrap();
    fs::write(&other, text.replacen('\n', "\n# new\n", 1)).unwrap();
    for (same_as, status, says) in [(&own, 0, false), (&other, 3, true)] {
        let words = [
            "check",
            "--node",
            "--policy",
            own.to_str().unwrap(),
            "--same-as",
            same_as.to_str().unwrap(),
        ];
        let (_, text, _) = softmig(&words);
        let line = text
            .lines()
            .find(|line| line.starts_with("ERROR POLICY_DIFFERS"));
        assert_eq!(line.is_some(), says, "{status}: {text}");
        assert!(
            line.is_none_or(|line| line.contains("from line 2 on")),
            "{text}"
        );
    }
}

#[test]
fn wrong_usage_ends_with_2() {
    for words in [
        &["check", "--what"][..],
        &["check", "--slurm-version", "24.11"],
        &["check", "--node", "--nodes"],
        &["check", "--node", "--slurm-conf", "x"],
    ] {
        assert_eq!(softmig(words).0, 2, "{words:?}");
    }
}
