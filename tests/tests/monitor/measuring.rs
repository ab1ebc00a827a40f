//! Measurements and the reports of them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use softmig_fake_node::{Gpu, MIB, Mig};
use softmig_tests::programs::{FOLDER, LIBRARY, PRELOAD};
use softmig_tests::softmig::{enforced, installed};
use softmig_tests::{Gpus, Slurm, on_each_slurm};

use super::daemon::{Daemon, LOG};
use super::ending::{POLICY, policy};
use super::{MONITOR, NODE_CONF, QUARTER, entry, holds, job, memory, on_node, once, root};

on_each_slurm!(
    each_process_is_its_jobs_or_its_users,
    a_job_that_has_more_than_its_slice_is_told_of,
    jobs_that_share_a_gpu_are_shown,
    in_a_job_nothing_is_measured,
    a_gpu_that_jobs_cannot_share_is_told_of,
);

fn a_gpu_that_jobs_cannot_share_is_told_of(slurm: Slurm) -> Result<()> {
    const EXCLUSIVE_PROCESS: u32 = 3;
    let cluster = enforced(slurm)
        .programs()
        .gpus([Gpus::l40s(1)])
        .file(POLICY, policy("interval_seconds = 1")?)
        .start()?;
    let node = cluster.node(0);
    let _driver = node.start_driver_as(|mut description| {
        description.gpus[0].compute_mode = EXCLUSIVE_PROCESS;
        description
    })?;
    let daemon = Daemon::start(node)?;
    let said = node.run_as_root(&["softmig", "check", "--node"])?.stdout;
    ensure!(said.contains("COMPUTE_MODE"), "{said}");
    ensure!(said.contains("nvidia-smi -i 0 -c DEFAULT"), "{said}");
    let (number, _) = job(&cluster, "alice", "gpu:l40s.4:1", &holds(100))?;
    let told = format!("job={number} cannot share GPU-");
    cluster.wait_until("the monitor's words", || Ok(daemon.log()?.contains(&told)))?;
    let number = number.to_string();
    let events = node
        .run_as_root(&["softmig", "events", "--job", &number])?
        .ok()?;
    ensure!(
        events.contains("setting=its compute mode is exclusive"),
        "{events}"
    );
    daemon.end()?.ok().map(drop)
}

fn each_process_is_its_jobs_or_its_users(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm)
        .programs()
        .gpus([Gpus::l40s(1)])
        .file(NODE_CONF, "SOFTMIG_NODE=enforce\n")
        // The monitor too is a process with the library in it.
        .file(PRELOAD, format!("{LIBRARY}\n"))
        .start()?;
    let node = cluster.node(0);
    let _driver = node.start_driver()?;
    let (idle, _) = once(node)?;
    assert_eq!(idle["error"], Value::Null, "{idle}");
    assert_eq!((&idle["jobs"], &idle["users"]), (&json!([]), &json!([])));

    let script = holds(200) + &holds(100);
    let (alices, hers) = job(&cluster, "alice", "gpu:l40s.4:1", &script)?;
    // Hidden from the library, and from no one else.
    let hidden = format!(
        "unshare --user --map-root-user --cgroup --pid --fork {}",
        holds(50)
    );
    let (bobs, _) = job(&cluster, "bob", "gpu:l40s.2:1", &hidden)?;
    let words = format!("{FOLDER}/views hold 70");
    let outside = node
        .command("root", &["sh", "-c", &format!("exec {words}")])
        .spawn()?;
    cluster.wait_until("its memory", || Ok(outside.stdout()?.contains("holds: ")))?;

    let (report, status) = once(node)?;
    assert_eq!(status, Some(0), "{report}");
    let context = Gpu::l40s(0).context;

    let alice = entry(&report["jobs"], "job", alices)?;
    assert_eq!(
        (&alice["uid"], &alice["conf"]),
        (&json!(2001), &json!("slice"))
    );
    let slice = json!({
        "type": "l40s", "shards": 1, "shards_per_gpu": 4, "mode": "hard",
        "memory_bytes": QUARTER,
    });
    assert_eq!(alice["slice"], slice);
    let held = &alice["gpus"][0];
    assert_eq!(held["limit_bytes"], QUARTER, "{held}");
    assert_eq!(
        (&held["assigned"], &held["finding"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!(memory(held), 2 * context + 300 * MIB, "{held}");
    let mut pids: Vec<u64> = serde_json::from_value(held["pids"].clone())?;
    pids.sort_unstable();
    let mut wanted = hers.clone();
    wanted.sort_unstable();
    assert_eq!(pids, wanted);

    let bob = entry(&report["jobs"], "job", bobs)?;
    assert_eq!(memory(&bob["gpus"][0]), context + 50 * MIB, "{bob}");
    assert_eq!(bob["gpus"][0]["pids"].as_array().map(Vec::len), Some(1));

    let root = entry(&report["users"], "uid", 0)?;
    assert_eq!(memory(&root["gpus"][0]), context + 70 * MIB, "{root}");
    assert_eq!(
        report["users"].as_array().map(Vec::len),
        Some(1),
        "{report}"
    );

    let gpu = &report["gpus"][0];
    assert_eq!(gpu["processes"].as_array().map(Vec::len), Some(4), "{gpu}");
    let first = entry(&gpu["processes"], "pid", hers[0])?;
    assert_eq!(
        (&first["job"], &first["uid"]),
        (&json!(alices), &json!(2001))
    );
    assert_eq!(
        (&first["kinds"], &first["name"]),
        (&json!(["compute"]), &json!("views"))
    );

    // And for people.
    let said = node.run_as_root(&[MONITOR, "--once"])?.ok()?;
    let line = |job: u32| {
        let job = job.to_string();
        let found = said
            .lines()
            .find(|line| line.split_whitespace().nth(1) == Some(&job));
        found.with_context(|| said.clone())
    };
    assert!(line(alices)?.contains("2001  l40s 1/4"), "{said}");
    assert!(line(bobs)?.contains("2002  l40s 2/4"), "{said}");

    // A process that has ended is not in the report.
    node.run_as_root(&["kill", "-9", &hers[0].to_string()])?
        .ok()?;
    cluster.wait_until("its end", || {
        let (report, _) = once(node)?;
        let alice = entry(&report["jobs"], "job", alices)?;
        Ok(alice["gpus"][0]["pids"] == json!([hers[1]]))
    })?;
    drop(outside);
    Ok(())
}

fn a_job_that_has_more_than_its_slice_is_told_of(slurm: Slurm) -> Result<()> {
    // Without the library, as for a program that got round it.
    let policy = include_str!("../../../conf/policy.toml");
    let with_log = format!("[node]\nlog_file = \"{LOG}\"\n");
    let policy = match policy.contains("\n[node]\n") {
        true => policy.replacen("\n[node]\n", &format!("\n{with_log}"), 1),
        false => format!("{policy}\n{with_log}"),
    };
    let cluster = installed(slurm)
        .programs()
        .gpus([Gpus::l40s(1)])
        .file("/etc/softmig/policy.toml", policy)
        .start()?;
    let node = cluster.node(0);
    let _driver = node.start_driver()?;
    let daemon = Daemon::start(node)?;

    let (within, _) = job(&cluster, "alice", "gpu:l40s.4:1", &holds(1000))?;
    let (over, pids) = job(
        &cluster,
        "bob",
        "gpu:l40s.4:1",
        &(holds(11000) + &holds(10)),
    )?;
    let (report, status) = once(node)?;
    assert_eq!(status, Some(3), "{report}");
    let held = &entry(&report["jobs"], "job", over)?["gpus"][0];
    let has = 2 * Gpu::l40s(0).context + 11010 * MIB;
    assert_eq!(held["finding"], "over_limit", "{held}");
    assert_eq!(
        (memory(held), held["excess_bytes"].as_u64()),
        (has, Some(has - QUARTER))
    );
    let hers = entry(&report["jobs"], "job", within)?;
    assert_eq!(hers["gpus"][0]["finding"], Value::Null);

    let start = format!("job={over} uid=2002 gpu=0 ");
    let is_told =
        |line: &&str| line.contains(&start) && line.ends_with("more memory than its slice");
    cluster.wait_until("a line in the log", || {
        Ok(daemon.log()?.lines().any(|line| is_told(&line)))
    })?;
    let killed = pids.iter().map(u64::to_string);
    let words = ["kill".to_owned(), "-9".into()].into_iter().chain(killed);
    node.run_as_root(&words.collect::<Vec<_>>())?.ok()?;
    let right = format!("job={over} has no more than it may have");
    cluster.wait_until("its end in the log", || Ok(daemon.log()?.contains(&right)))?;
    let log = daemon.log()?;
    let warned = |job: u32| {
        let warnings = log.lines().filter(|line| line.contains(" WARN "));
        let of_job = format!(" job={job} ");
        warnings.filter(|line| line.contains(&of_job)).count()
    };
    assert_eq!((warned(over), warned(within)), (1, 0), "{log}");

    let ended = daemon.end()?;
    assert_eq!(ended.status.code(), Some(0), "{ended}");
    Ok(())
}

/// Two jobs that launch all the time, on a GPU that cannot be steered.
fn jobs_that_share_a_gpu_are_shown(slurm: Slurm) -> Result<()> {
    let cluster = enforced(slurm).programs().gpus([Gpus::l40s(1)]).start()?;
    let node = cluster.node(0);
    let _driver = node.start_driver()?;
    let (alone, _) = once(node)?;
    let error = alone["usage_error"].as_str().unwrap_or_default();
    ensure!(error.contains("softmig-monitor does not run"), "{alone}");

    let daemon = Daemon::start(node)?;
    let (idle, status) = cluster.wait_for("its figures", || {
        let told = once(node)?;
        Ok(told.0["usage"].is_object().then_some(told))
    })?;
    let usage = &idle["usage"];
    assert_eq!(usage["jobs"], json!([]), "{usage}");
    assert_eq!(usage["ending"]["end"], "no", "{usage}");
    assert_eq!(status, Some(0), "{idle}");

    let launches = format!("{FOLDER}/paced 1000000 1000000 async & echo \"holds: $!\"\n");
    let (alices, hers) = job(&cluster, "alice", "gpu:l40s.4:1", &launches)?;
    let (bobs, _) = job(&cluster, "bob", "gpu:l40s.2:1", &launches)?;
    let of = |id: u32| -> Result<Option<Value>> {
        let (report, _) = once(node)?;
        let job = entry(&report["usage"]["jobs"], "job", id).ok();
        let gpu = job.map(|job| &job["gpus"][0]);
        let is_it = |gpu: &&Value| gpu["uuid"] == json!(node.gpus()[0].uuid) && gpu["index"] == 0;
        Ok(gpu.filter(is_it).cloned())
    };
    let wait_for = |id: u32, what: &str, is_so: &dyn Fn(&Value) -> bool| {
        cluster.wait_for(what, || Ok(of(id)?.filter(is_so)))
    };
    let works = |job: &Value| job["charged_seconds"].as_f64() > Some(0.1);
    let bob = wait_for(bobs, "work of bob's", &works)?;
    assert_ne!(bob["seats"], json!([]), "{bob}");
    let alice = wait_for(alices, "work of alice's", &works)?;
    let process = &alice["seats"][0];
    assert_eq!(
        (&process["pid"], &process["not_steered"]),
        (&json!(hers[0]), &Value::Null)
    );
    let said = node.run_as_root(&[MONITOR, "--once"])?.ok()?;
    ensure!(said.contains("GPU 0: each job keeps its own cap"), "{said}");

    let ended = daemon.end()?;
    assert_eq!(ended.status.code(), Some(0), "{ended}");
    Ok(())
}

fn in_a_job_nothing_is_measured(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).programs().start()?;
    let refused = |user: &str| cluster.user(user).srun(&[MONITOR, "--once"]);
    let users = refused("alice")?.refused()?;
    assert!(
        users.contains("only root is shown all processes"),
        "{users}"
    );
    let roots = refused("root")?.refused()?;
    assert!(roots.contains("run it outside of jobs"), "{roots}");
    Ok(())
}

#[test]
fn a_node_without_a_driver_has_nothing_to_measure() -> Result<()> {
    let machine = root().start()?;
    let output = on_node(&machine, &format!("{MONITOR} --once"))?;
    assert_eq!(output.status.code(), Some(1), "{output}");
    assert!(
        output
            .stdout
            .starts_with("not measured: NVML is not installed here"),
        "{output}"
    );
    let (report, status) = once(&machine.nodes()[0])?;
    assert_eq!((status, &report["gpus"]), (Some(1), &json!([])));
    Ok(())
}

#[test]
fn on_a_mig_gpu_processes_are_shown_and_no_slice_is_judged() -> Result<()> {
    let machine = root().programs().start()?;
    let node = &machine.nodes()[0];
    let _driver = node.start_driver_as(|mut description| {
        let part = |id: u32| softmig_fake_node::Instance {
            profile: "1g.12gb".into(),
            uuid: format!("MIG-50f7316a-0000-4000-8000-{id:012}"),
            id,
            memory: 10 << 30,
            multiprocessors: 20,
            slices: 1,
        };
        description.gpus[0].mig = Mig::Enabled(vec![part(1), part(2)]);
        description
    })?;
    let words = [&format!("{FOLDER}/views"), "hold", "20"];
    let call = node.command("alice", &words).env(
        "CUDA_VISIBLE_DEVICES",
        "MIG-50f7316a-0000-4000-8000-000000000002",
    );
    let holder = call.spawn()?;
    for _ in 0..3000 {
        if holder.stdout()?.contains("holds: ") {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let (report, status) = once(node)?;
    assert_eq!(status, Some(0), "{report}");
    let gpu = &report["gpus"][0];
    assert_eq!(gpu["mig"], true, "{gpu}");
    assert_eq!(gpu["processes"][0]["uid"], 2001, "{gpu}");
    assert!(gpu["processes"][0]["gpu_instance"].is_u64(), "{gpu}");
    assert_eq!(report["gpus"][1]["mig"], false);
    Ok(())
}

#[test]
fn a_caller_who_would_see_less_is_told_why() -> Result<()> {
    let machine = root().start()?;
    for (line, why) in [
        (
            format!("setpriv --reuid=2001 --clear-groups {MONITOR} --once"),
            "only root",
        ),
        (
            format!("unshare --cgroup {MONITOR} --once"),
            "this is a container",
        ),
        (
            format!("CUDA_DEVICE_MEMORY_LIMIT_1=4g {MONITOR} --once"),
            "CUDA_DEVICE_MEMORY_LIMIT_1 is set",
        ),
    ] {
        let output = on_node(&machine, &line)?;
        assert_eq!(output.status.code(), Some(1), "{output}");
        assert!(output.stderr.contains(why), "{output}");
    }
    let output = on_node(&machine, &format!("{MONITOR} --json"))?;
    assert_eq!(output.status.code(), Some(2), "{output}");
    Ok(())
}
