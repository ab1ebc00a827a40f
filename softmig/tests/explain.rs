//! `softmig explain` as a user runs it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::io::Write;

use support::{softmig, softmig_with};

const POLICY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../conf/policy.toml");

/// Exit status, standard output and standard error.
fn explain(words: &[&str]) -> (i32, String, String) {
    explain_by(POLICY, words)
}

fn explain_by(policy: &str, words: &[&str]) -> (i32, String, String) {
    softmig(&[&["explain", "--policy", policy], words].concat())
}

#[test]
fn a_granted_slice_says_what_the_job_gets() {
    let (status, text, _) = explain(&["--gres=gpu:l40s.4:1"]);
    assert_eq!(status, 0);
    insta::assert_snapshot!(text, @r"
    softmig: granted: gpu:l40s.4:1 is 1 of 4 shards of one l40s
      GPU memory  11366 MiB
      GPU time    25 % (a cap, also while the GPU is idle)
      Slurm gets  gres/shard:l40s:1, on one node
    ");
}

#[test]
fn a_granted_slice_says_its_ceiling_and_what_it_saves_up() {
    let ours = std::fs::read_to_string(POLICY).unwrap();
    for (keys, words) in [
        ("mode = 'soft'", "(more while no other job wants it)"),
        ("ceiling = '2x'", "(up to 50 % while no other job wants it)"),
        (
            "ceiling = 'share'\nburst_ms = 2000",
            "(a cap, also while the GPU is idle; it saves up 2 s)",
        ),
        (
            "pack = 'user'",
            "(a cap, also while the GPU is idle)\n  together    your jobs on one GPU run at the same time, in their shares together",
        ),
    ] {
        let mut policy = tempfile::NamedTempFile::new().unwrap();
        let text = ours.replacen("mode = \"hard\"", keys, 1);
        policy.write_all(text.as_bytes()).unwrap();
        let (_, text, _) = explain_by(policy.path().to_str().unwrap(), &["--gres=gpu:l40s.4:1"]);
        assert!(text.contains(&format!("25 % {words}\n")), "{text}");
    }
}

#[test]
fn a_granted_slice_says_whose_jobs_run_there_at_the_same_time() {
    let ours = std::fs::read_to_string(POLICY).unwrap();
    for (keys, options, jobs) in [
        ("pack = 'account'", &[][..], Some("jobs of one account")),
        ("pack = 'reservation'", &[], None),
        (
            "pack = 'reservation'",
            &["--reservation=course"],
            Some("jobs in one reservation"),
        ),
        (
            "pack = 'user'\npack_partitions = ['course']",
            &["--partition=course"],
            Some("your jobs"),
        ),
        (
            "pack = 'user'\npack_partitions = ['course']",
            &["--partition=gpu"],
            None,
        ),
    ] {
        let mut policy = tempfile::NamedTempFile::new().unwrap();
        let text = ours.replacen("mode = \"hard\"", keys, 1);
        policy.write_all(text.as_bytes()).unwrap();
        let options = [&["--gres=gpu:l40s.4:1"], options].concat();
        let (_, text, _) = explain_by(policy.path().to_str().unwrap(), &options);
        let line = text
            .lines()
            .find_map(|line| line.trim_start().strip_prefix("together"));
        let said = line.map(|line| line.trim_start().split(" on one GPU").next().unwrap());
        assert_eq!(said, jobs, "{keys} {options:?}: {text}");
    }
}

#[test]
fn a_refusal_says_what_to_type_and_exits_3() {
    let (status, text, _) = explain(&["--gpus=l40s.3:1"]);
    assert_eq!(status, 3);
    insta::assert_snapshot!(text, @r"
    softmig: gpu:l40s.3:1: GPUs of type l40s are divided into 2 or 4 slices [SLICE_SIZE]
    softmig: use --gres=gpu:l40s.2:1 (22732 MiB, 50 % of the GPU's time) or --gres=gpu:l40s.4:1 (11366 MiB, 25 % of the GPU's time)
    ");
}

#[test]
fn a_site_adds_its_own_line_to_a_refusal() {
    let mut policy = tempfile::NamedTempFile::new().unwrap();
    let ours = std::fs::read_to_string(POLICY).unwrap();
    let any = "any = \"Questions: gpu-help@example.org\"";
    let site = ours.replace("#any = \"Questions: gpu-help@example.org\"", any);
    assert_ne!(ours, site);
    policy.write_all(site.as_bytes()).unwrap();
    let path = policy.path().to_str().unwrap();
    let (status, text, _) = explain_by(path, &["--gpus=l40s.3:1"]);
    assert_eq!(status, 3);
    assert!(
        text.ends_with("\nsoftmig: Questions: gpu-help@example.org\n"),
        "{text}"
    );
    let (_, json, _) = explain_by(path, &["--json", "--gpus=l40s.3:1"]);
    assert!(
        json.contains("\"site\":\"Questions: gpu-help@example.org\""),
        "{json}"
    );
    let (_, text, _) = explain_by(path, &["--gpus=l40s.4:1"]);
    assert!(!text.contains("example.org"), "{text}");
}

#[test]
fn what_is_not_softmigs_is_unchanged() {
    let (status, text, _) = explain(&["--gres=gpu:l40s:1", "--exclusive"]);
    assert_eq!(
        (status, text.as_str()),
        (
            0,
            "softmig: unchanged: nothing in this request asks for part of a GPU; Slurm gets it as it is\n"
        )
    );
}

#[test]
fn the_json_form_is_public() {
    let (_, json, _) = explain(&["--json", "--gres=gpu:h200.8:1"]);
    insta::assert_snapshot!(json, @r#"{"verdict":"granted","code":null,"message":"gpu:h200.8:1 is 1 of 8 shards of one h200","hint":"","tres_per_node":"gres/shard:h200:1","limits":{"type":"h200","shards":1,"shards_per_gpu":8,"memory_mib":17894,"compute_percent":12.5}}"#);
    let (_, json, _) = explain(&["--json", "--gres=shard:1", "--slurm-version=22.05"]);
    insta::assert_snapshot!(json, @r#"{"verdict":"refused","code":"RAW_SHARD","message":"shard:1: request a slice of a GPU type, not a number of shards","hint":"use --gres=gpu:a100.4:1 or --gres=gpu:h200.8:1 or --gres=gpu:l40s.4:1","tres_per_node":null,"limits":null}"#);
}

#[test]
fn each_release_has_its_own_spelling() {
    for (release, tres) in [
        ("20.11", "\"shard:l40s:2\""),
        ("22.05", "\"gres:shard:l40s:2\""),
        ("24.11", "\"gres/shard:l40s:2\""),
    ] {
        let (_, json, _) = explain(&[
            "--json",
            "--gpus-per-node=l40s.2",
            "--slurm-version",
            release,
        ]);
        assert!(json.contains(tres), "{json}");
    }
}

#[test]
fn a_policy_that_cannot_be_read_exits_1() {
    let (status, _, error) = explain_by("/nonexistent/policy.toml", &["--gres=gpu:l40s.4:1"]);
    assert_eq!(status, 1);
    assert!(error.contains("/nonexistent/policy.toml"), "{error}");
    let bad = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(bad.path(), "[gpu.x]\nmemory = 1\n").unwrap();
    let (status, _, error) = explain_by(bad.path().to_str().unwrap(), &["--gres=gpu:x.2:1"]);
    assert_eq!(status, 1);
    assert!(
        error.contains("line 2: [gpu.x]: unknown key memory; did you mean memory_mib?"),
        "{error}"
    );
}

#[test]
fn a_size_of_memory_is_a_slice_and_lists_what_has_it() {
    let (status, text, _) = explain(&["--gres=gpu:l40s.12g:1"]);
    assert_eq!(status, 0);
    insta::assert_snapshot!(text, @r"
    softmig: granted: gpu:l40s.12g:1 is gpu:l40s.2:1, 2 of 4 shards of one l40s
      GPU memory  22732 MiB
      GPU time    50 % (a cap, also while the GPU is idle)
      Slurm gets  gres/shard:l40s:2, on one node
    ");
    let (status, text, _) = explain(&["--memory", "12g"]);
    assert_eq!(status, 0);
    insta::assert_snapshot!(text, @r"
    softmig: what has 12288 MiB of GPU memory; 'softmig free --memory=12288m' says what is free
      --gres=gpu:a100:1      40336 MiB, a whole GPU
      --gres=gpu:a100.2:1    20168 MiB, 50 % of the GPU's time
      --gres=gpu:h200:1      143155 MiB, a whole GPU
      --gres=gpu:h200.2:1    71577 MiB, 50 % of the GPU's time
      --gres=gpu:h200.4:1    35788 MiB, 25 % of the GPU's time
      --gres=gpu:h200.8:1    17894 MiB, 12.5 % of the GPU's time
      --gres=gpu:l40s:1      45464 MiB, a whole GPU
      --gres=gpu:l40s.2:1    22732 MiB, 50 % of the GPU's time
      --gres=gpu:titanrtx:1  24220 MiB, a whole GPU
    ");
    let (status, text, _) = explain(&["--memory=200g"]);
    assert_eq!(status, 3);
    insta::assert_snapshot!(text, @r"
    softmig: nothing here is known to have 204800 MiB of GPU memory
    softmig: 'softmig explain' lists what there is
    ");
    for words in [
        &["--memory=12g", "--gres=gpu:l40s.4:1"][..],
        &["--memory=12"],
        &["--memory=12x"],
        &["--memory=12g", "--json"],
    ] {
        let (status, _, error) = explain(words);
        assert_eq!(status, 2, "{words:?}: {error}");
    }
}

#[test]
fn wrong_usage_exits_2() {
    for words in [
        ["--nodes=x"],
        ["--slurm-version=24"],
        ["--gress=gpu:1"],
        ["--mem-per-gpu=4X"],
    ] {
        let (status, _, error) = explain(&words);
        assert_eq!(status, 2, "{words:?}: {error}");
    }
    let (_, said, _) = explain(&["--gres=gpu:l40s.4:1", "--array=1-8", "-J", "sweep"]);
    assert_eq!(said, explain(&["--gres=gpu:l40s.4:1"]).1);
}

const BY_ACCOUNT: &str = r#"
[gpu.l40s]
memory_mib = 46068
reserved_mib = 604
shards = 4
[defaults]
shards = 0
whole_gpus = 0
[classes.student]
shards = 2
members = { accounts = ["course_a", "Course_B"] }
[classes.staff]
shards = "unlimited"
whole_gpus = "unlimited"
members = { accounts = ["staff"] }
[[reservable]]
type = "l40s_r"
of = "l40s"
account = "staff"
start = 2199-01-01T00:00:00Z
end = 2199-01-08T00:00:00Z
reason = "paper"
"#;

#[test]
fn what_depends_on_the_account_is_told_for_each() {
    let mut policy = tempfile::NamedTempFile::new().unwrap();
    policy.write_all(BY_ACCOUNT.as_bytes()).unwrap();
    let path = policy.path().to_str().unwrap();
    let (status, text, _) = explain_by(path, &["--gres=gpu:l40s:1"]);
    assert_eq!(status, 4);
    insta::assert_snapshot!(text, @r"
    softmig: it depends on the account; add --account=NAME, the user's default account if the job names none
    softmig: with account course_a or account course_b:
    softmig: gpu:l40s:1: class student may not use whole GPUs [WHOLE_GPU_CLASS]
    softmig: use --gres=gpu:l40s.2:1 (22732 MiB, 50 % of the GPU's time)
    softmig: with account staff:
    softmig: unchanged: nothing in this request asks for part of a GPU; Slurm gets it as it is
    softmig: with any other account:
    softmig: gpu:l40s:1: people in no class may not use whole GPUs [WHOLE_GPU_CLASS]
    softmig: ask your administrator what people in no class may use
    ");
    let (status, json, _) = explain_by(path, &["--gres=gpu:l40s:1", "--json"]);
    assert_eq!(status, 4);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["verdict"], "depends");
    assert_eq!(
        json["accounts"][0]["names"],
        serde_json::json!(["course_a", "course_b"])
    );
    assert_eq!(json["accounts"][0]["answer"]["code"], "WHOLE_GPU_CLASS");
    assert_eq!(json["accounts"][1]["answer"]["verdict"], "unchanged");
    assert_eq!(json["accounts"][2]["any_other"], true);

    // Slurm knows no such name, whoever asks.
    let (status, text, _) = explain_by(path, &["--gres=GPU:l40s.4:1"]);
    assert_eq!(status, 3);
    assert!(!text.contains("depends"), "{text}");
    // The variable that sbatch takes it from.
    let set = |name: &str, words: &[&str]| {
        let words = [&["explain", "--policy", path, "--gres=gpu:l40s:1"], words].concat();
        softmig_with(&[(name, "staff")], &words).0
    };
    assert_eq!(set("SBATCH_ACCOUNT", &[]), 0);
    assert_eq!(set("SALLOC_ACCOUNT", &[]), 4);
    assert_eq!(set("SALLOC_ACCOUNT", &["--interactive"]), 0);
    assert_eq!(set("SBATCH_ACCOUNT", &["--account=course_a"]), 3);
    // That is not another user's.
    assert_eq!(set("SBATCH_ACCOUNT", &["--user=daemon"]), 4);
}

#[test]
fn another_time_is_asked_about() {
    let mut policy = tempfile::NamedTempFile::new().unwrap();
    policy.write_all(BY_ACCOUNT.as_bytes()).unwrap();
    let path = policy.path().to_str().unwrap();
    let at = |time: &str| {
        let words = ["--gres=gpu:l40s_r:1", "--account=staff", "--at", time];
        explain_by(path, &words).0
    };
    assert_eq!(at("2198-12-31T23:59:59Z"), 3);
    assert_eq!(at("2199-01-01T00:00:00Z"), 0);
    assert_eq!(at("2199-01-08T00:30:00+01:00"), 0);
    // From its end on all may use it.
    assert_eq!(at("2199-01-08T00:00:00Z"), 0);
    assert_eq!(at("2199-01-04"), 0);
    assert_eq!(at("2199-01-04 12:00"), 0);
    assert_eq!(at("next week"), 2);
}

#[test]
fn what_is_left_open_is_named() {
    let mut policy = tempfile::NamedTempFile::new().unwrap();
    let route = "[[route]]\npartition = \"quick\"\nmax_time = \"4:00:00\"\n";
    // That knows which nodes --exclusive is to stay off.
    let nodes = "[[nodes]]\nnames = \"n1\"\ngpus = [\"l40s:3\", \"l40s_r:1\"]\n";
    write!(policy, "{BY_ACCOUNT}{route}{nodes}").unwrap();
    let path = policy.path().to_str().unwrap();
    let open = |words: &[&str]| {
        let words = [&["--account=staff"], words].concat();
        let (status, text, _) = explain_by(path, &words);
        assert_eq!(status, 0, "{text}");
        text.matches("not looked at: ").count()
    };
    assert_eq!(open(&["--gres=gpu:l40s.4:1"]), 1);
    assert_eq!(open(&["--gres=gpu:l40s.4:1", "--time=1:00:00"]), 0);
    assert_eq!(open(&["--gres=gpu:l40s.4:1", "--partition=main"]), 0);
    assert_eq!(open(&["--exclusive", "--time=1:00:00"]), 1);
    for wrong in [
        "--account=a,b",
        "--account=",
        "--user=a,b",
        "--user=",
        "--exclusive=foo",
    ] {
        let (status, _, error) = explain_by(path, &[wrong]);
        assert_eq!(status, 2, "{wrong}: {error}");
    }
}

#[test]
fn a_script_and_a_pasted_line_are_read() {
    let mut script = tempfile::NamedTempFile::new().unwrap();
    let lines = "#!/bin/bash\n#SBATCH --job-name=train --gres=gpu:l40s.4:1\n#SBATCH --mail-type=END\npython train.py\n";
    script.write_all(lines.as_bytes()).unwrap();
    let script = script.path().to_str().unwrap();
    let quarter = "softmig: granted: gpu:l40s.4:1 is 1 of 4 shards";
    for words in [
        &[script][..],
        &["sbatch", script],
        &[
            "/usr/bin/sbatch",
            "-J",
            "x",
            "--mail-user",
            "a@b",
            script,
            "--gres=gpu:l40s.3:1",
        ],
        &["srun", "--gres", "gpu:l40s.4:1", "--pty", "bash"],
        &["salloc", "--gres=gpu:l40s.4:1"],
    ] {
        let (status, text, error) = explain(words);
        assert_eq!(status, 0, "{words:?}: {error}{text}");
        assert!(text.starts_with(quarter), "{words:?}: {text}");
    }
    // The line counts before the script, explain's own options before both.
    let half = explain(&["sbatch", "--gres=gpu:l40s.2:1", script]).1;
    assert!(half.starts_with("softmig: granted: gpu:l40s.2:1"), "{half}");
    let own = explain(&[
        "--gres=gpu:l40s.3:1",
        "sbatch",
        "--gres=gpu:l40s.2:1",
        script,
    ]);
    assert_eq!(own.0, 3, "{}", own.1);
    let (status, _, error) = explain(&["/no/such/script"]);
    assert_eq!(status, 2);
    assert!(error.contains("/no/such/script: "), "{error}");
}

#[test]
fn a_list_of_nodes_counts_as_their_number() {
    for (words, place) in [
        (&["--gres=gpu:l40s.4:1", "-w", "n1"][..], "on one node"),
        (
            &["--gres=gpu:l40s.4:1", "-w", "n1,n2"],
            "on each of 2 nodes",
        ),
        (
            &["--gres=gpu:l40s.4:1", "--nodelist=n[1-2]"],
            "on each of 2 nodes",
        ),
        (&["--gpus=l40s.4:1", "-w", "n1,n2"], "[SLICE_NODES]"),
    ] {
        let (_, text, _) = explain(words);
        assert!(text.contains(place), "{words:?}: {text}");
    }
}

#[test]
fn without_a_request_it_lists_what_can_be_asked_for() {
    let mut policy = tempfile::NamedTempFile::new().unwrap();
    let gpu = "default_class = \"student\"\n[classes.student]\nshards = 1\nwhole_gpus = 0\n\
               [gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n";
    policy.write_all(gpu.as_bytes()).unwrap();
    let (status, text, _) = explain_by(policy.path().to_str().unwrap(), &["--account=a"]);
    assert_eq!(status, 0);
    insta::assert_snapshot!(text, @r"
    softmig: what can be asked for here
      --gres=gpu:l40s:1    45464 MiB, a whole GPU (refused: WHOLE_GPU_CLASS)
      --gres=gpu:l40s.2:1  22732 MiB, 50 % of the GPU's time (refused: LIMIT_JOB)
      --gres=gpu:l40s.4:1  11366 MiB, 25 % of the GPU's time
    ");
}

#[test]
fn all_memory_of_a_node_is_called_so() {
    let (_, text, _) = explain(&["--gres=gpu:l40s.4:1", "--mem=0"]);
    assert!(
        text.contains("\n  memory      all of the node's\n"),
        "{text}"
    );
}
