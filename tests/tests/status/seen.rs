//! The answers on a running cluster.

use super::{cluster, run, stay};
use anyhow::{Context, Result};
use serde_json::Value;
use softmig_tests::{Cluster, Slurm, on_each_slurm};

on_each_slurm!(
    seams:
    status_says_who_has_what_and_why_others_wait;
    others:
    hidden_jobs_count_too,
    free_counts_what_starts_and_offers_what_one_may_have,
    job_says_where_a_job_is_and_that_nothing_is_known_of_it,
);

/// A node's name, as the lists of a cluster have it.
fn node(cluster: &Cluster, at: usize) -> &str {
    cluster.node(at).name()
}

fn drain(cluster: &Cluster, at: usize) -> Result<()> {
    let name = format!("nodename={}", node(cluster, at));
    let drain = [
        "scontrol",
        "update",
        &name,
        "state=drain",
        "reason=fan broken",
    ];
    cluster.run("root", &drain)?.ok().map(drop)
}

fn json(cluster: &Cluster, user: &str, words: &[&str]) -> Result<Value> {
    let said = cluster
        .run(user, &[&["softmig"], words, &["--json"]].concat())?
        .ok()?;
    serde_json::from_str(&said).context(said)
}

/// "TYPE USED/SHARDS", and an exclamation mark if a job has all of it.
fn gpus(status: &Value) -> Vec<String> {
    let nodes = status["nodes"].as_array().into_iter().flatten();
    let gpus = nodes.flat_map(|node| node["gpus"].as_array().into_iter().flatten());
    gpus.map(|gpu| {
        let whole = if gpu["used_whole"] == true { "!" } else { "" };
        let kind = gpu["type"].as_str().unwrap_or_default();
        format!("{kind} {}/{}{whole}", gpu["shards_used"], gpu["shards"])
    })
    .collect()
}

fn status_says_who_has_what_and_why_others_wait(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm, "")?;
    let none = cluster.run("alice", &["softmig", "status"])?.ok()?;
    assert!(
        none.contains("GPU 0-1  l40s    4 of 4 shards free"),
        "{none}"
    );
    drain(&cluster, 1)?;
    let quarter = "--gres=gpu:l40s.4:1";
    let first = run(&cluster, "alice", &[quarter])?;
    run(&cluster, "alice", &[quarter])?;
    run(&cluster, "bob", &["--gres=gpu:l40s.2:1"])?;
    run(&cluster, "carol", &["--gres=gpu:l40s:1"])?;
    run(&cluster, "carol", &["--gres=gpu:l40s_r:1"])?;
    run(&cluster, "carol", &["--gres=gpu:h100_1g.10gb:1"])?;
    let third = stay(&cluster, "alice", &[quarter])?;
    cluster.wait_reason(third, "QOSMaxBillingPerUser")?;
    let held = stay(&cluster, "dave", &["--hold", quarter])?;
    let full = stay(&cluster, "dave", &[quarter])?;
    cluster.wait_reason(full, "Resources")?;

    let own = cluster.run("alice", &["softmig", "status"])?.ok()?;
    println!(
        "{own}\n{}",
        cluster.run("alice", &["softmig", "free"])?.ok()?
    );
    for line in [
        "none of 4 shards free",
        "used as a whole",
        "reserved for user carol, used",
        "drained: fan broken",
        "MIG instance, used",
        "MIG instance, free",
        "student  l40s.4  11366 MiB  25 %",
        "your other jobs hold what class student may hold at once (2 shards, 0",
        "[QOSMaxBillingPerUser]",
        "Not listed: 4 running and 2 waiting jobs of others (--all)",
    ] {
        assert!(own.contains(line), "{line}\n{own}");
    }
    let dave = cluster
        .run("alice", &["softmig", "status", "--user=dave"])?
        .ok()?;
    assert!(
        dave.contains(&format!(
            "'scontrol release {held}' lets it go [JobHeldUser]"
        )),
        "{dave}"
    );
    assert!(dave.contains("[Resources]"), "{dave}");

    let all = json(&cluster, "root", &["status"])?;
    assert_eq!(all["schema_version"], 1);
    let mut expected = vec![
        "l40s 4/4",
        "l40s 0/4!",
        "l40s_r 0/1!",
        "l40s 0/4",
        "h200 0/8",
        "h200 0/8",
    ];
    expected.extend(["h100_1g.10gb 0/1!", "h100_1g.10gb 0/1"]);
    assert_eq!(gpus(&all), expected);
    let jobs = all["jobs"].as_array().context("jobs")?;
    let job = jobs.iter().find(|job| job["job"] == first).context("job")?;
    let figures =
        ["user", "class", "gpus", "memory_mib", "percent"].map(|key| job[key].to_string());
    assert_eq!(
        figures,
        ["\"alice\"", "\"student\"", "\"l40s.4\"", "11366", "25.0"]
    );

    for (words, told) in [
        (
            ["--node=nowhere"],
            "nowhere is not a node with GPUs; Slurm shows you ",
        ),
        (
            ["--node=n[1-"],
            "--node=n[1-: the list has a bracket without its other",
        ),
        (
            ["--user=nobody-here"],
            "the user does not exist, and has no job",
        ),
    ] {
        let said = cluster.run("alice", &[&["softmig", "status"], &words[..]].concat())?;
        assert!(!said.success() && said.stderr.contains(told), "{said}");
    }
    let one = format!("--node={}", node(&cluster, 1));
    let one = cluster.run("alice", &["softmig", "status", &one])?.ok()?;
    assert_eq!(one.lines().count(), 2, "{one}");
    Ok(())
}

fn hidden_jobs_count_too(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm, "PrivateData=jobs")?;
    run(&cluster, "alice", &["--gres=gpu:l40s.4:1"])?;
    run(&cluster, "bob", &["--gres=gpu:l40s.2:1"])?;
    run(&cluster, "carol", &["--gres=gpu:h200.8:1"])?;
    run(&cluster, "carol", &["--gres=gpu:l40s:1"])?;
    let seen = json(&cluster, "alice", &["status", "--all"])?;
    let users = seen["jobs"]
        .as_array()
        .context("jobs")?
        .iter()
        .map(|job| &job["user"]);
    assert_eq!(users.collect::<Vec<_>>(), ["alice"]);
    assert_eq!(gpus(&seen), gpus(&json(&cluster, "root", &["status"])?));
    assert_eq!(gpus(&seen)[..2], ["l40s 3/4", "l40s 0/4!"]);
    Ok(())
}

/// The sizes, and how many of each are free.
fn offers(free: &Value) -> Vec<String> {
    let offers = free["offers"].as_array().into_iter().flatten();
    offers
        .map(|offer| {
            format!(
                "{} {}",
                offer["gres"].as_str().unwrap_or_default(),
                offer["free"]
            )
        })
        .collect()
}

fn free_counts_what_starts_and_offers_what_one_may_have(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm, "")?;
    drain(&cluster, 1)?;
    let slices = |quarters: u32, halves: u32| {
        [
            "gpu:h100_1g.10gb:1 2".into(),
            "gpu:h200.4:1 8".into(),
            "gpu:h200.8:1 16".into(),
            format!("gpu:l40s.2:1 {halves}"),
            format!("gpu:l40s.4:1 {quarters}"),
        ]
    };
    // Two shards are the most that students have, so there are no halves of an H200.
    assert_eq!(offers(&json(&cluster, "alice", &["free"])?), slices(8, 4));
    let carols = offers(&json(&cluster, "carol", &["free", "--account=research"])?);
    for offer in [
        "gpu:l40s:1 2",
        "gpu:l40s_r:1 1",
        "gpu:h200:1 2",
        "gpu:h200.2:1 4",
    ] {
        assert!(carols.contains(&offer.to_string()), "{offer}: {carols:?}");
    }
    run(&cluster, "alice", &["--gres=gpu:l40s.4:1"])?;
    assert_eq!(offers(&json(&cluster, "alice", &["free"])?), slices(7, 3));
    run(&cluster, "alice", &["--gres=gpu:l40s.4:1"])?;
    let text = cluster
        .run("alice", &["softmig", "free", "--when", "--time=30"])?
        .ok()?;
    for line in [
        "--gres=gpu:l40s.4:1",
        "11366 MiB",
        "Slurm expects a start at 20",
        "class student may hold at once: 2 shards, 0 whole GPUs",
        "so another slice waits until one of your jobs has ended",
    ] {
        assert!(
            text.contains(line) || text.replace('\n', " ").contains(line),
            "{line}\n{text}"
        );
    }
    let with_memory = |least| json(&cluster, "alice", &["free", "--memory", least]);
    assert_eq!(
        offers(&with_memory("20g")?),
        ["gpu:h200.4:1 8", "gpu:l40s.2:1 3"]
    );
    assert_eq!(offers(&with_memory("100g")?), [""; 0]);
    let said = cluster.run("alice", &["softmig", "free", "--memory=100g"])?;
    let none =
        "You may have no GPU with so much memory here; 'softmig explain --memory=SIZE' says why";
    assert!(said.stdout.contains(none), "{said}");
    // Two quarters are taken; then one is left.
    for gres in [
        "--gres=gpu:l40s.2:1",
        "--gres=gpu:l40s.2:1",
        "--gres=gpu:l40s.4:1",
    ] {
        run(&cluster, "carol", &[gres])?;
    }
    let half = [
        "softmig",
        "explain",
        "--gres=gpu:l40s.2:1",
        "--account=research",
    ];
    let said = cluster.run("carol", &half)?.ok()?;
    let line =
        "softmig: there is no room for it now, and for --gres=gpu:l40s.4:1 (11366 MiB) there is\n";
    assert!(said.ends_with(line), "{said}");
    let said = cluster
        .run("carol", &["softmig", "free", "--account=research"])?
        .ok()?;
    let said = said.replace('\n', " ");
    assert!(
        said.contains("gpu:l40s.2 now, and for gpu:l40s.4 there is"),
        "{said}"
    );
    let said = cluster.run("alice", &["softmig", "free", "--partition=none"])?;
    assert!(
        said.stderr.contains("--partition=none: no node with GPUs"),
        "{said}"
    );
    Ok(())
}

fn job_says_where_a_job_is_and_that_nothing_is_known_of_it(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm, "")?;
    let job = run(&cluster, "alice", &["--gres=gpu:l40s.4:1"])?;
    let waits = stay(&cluster, "alice", &["--hold", "--gres=gpu:l40s.4:1"])?;
    let told = |words: &[&str]| -> Result<String> {
        let said = cluster.run("alice", &[&["softmig", "job"], words].concat())?;
        assert!(!said.success(), "{said}");
        Ok(said.stderr)
    };
    let elsewhere = told(&[&job.to_string()])?;
    let there = format!("srun --jobid={job} --overlap softmig job");
    assert!(
        elsewhere.contains(node(&cluster, 0)) && elsewhere.contains(&there),
        "{elsewhere}"
    );
    assert!(told(&[&waits.to_string()])?.contains("has not started: it is held;"));
    assert!(told(&["99999"])?.contains("Slurm shows you no job 99999"));
    assert!(told(&["x"])?.contains("x is not the number of a job"));
    assert!(told(&["12_3"])?.contains("Slurm shows you no job 12_3"));
    assert!(told(&["12_"])?.contains("12_ is not the number of a job"));
    assert!(told(&[])?.contains("this is not inside a job"));
    // No monitor runs here.
    let inside = cluster
        .user("alice")
        .srun(&["--gres=gpu:l40s.4:1", "softmig", "job"])?;
    let limits = "has 1/4 of one l40s: 11366 MiB and 25 % of its time; what it used is not known";
    assert!(inside.stderr.contains(limits), "{inside}");
    Ok(())
}
