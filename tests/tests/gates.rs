//! Resources that only jobs inside certain reservations may have, and GPUs that are reserved for one user: one verdict
//! for every form of a request.

use anyhow::{Context, Result};
use serde_json::json;
use softmig_tests::softmig::{installed, tag};
use softmig_tests::{Builder, Gpus, Output, Slurm, User, on_each_slurm};

on_each_slurm!(
    seams:
    outside_a_reservation_no_form_of_a_slice_passes,
    units_of_mps_are_slices_in_every_form;
    others:
    inside_a_reservation_every_form_passes,
    a_name_that_almost_fits_does_not_fit,
    every_reservation_of_a_list_has_to_fit,
    a_change_meets_the_same_gate,
    a_gate_holds_only_in_its_partition_also_the_default_one,
    a_job_without_a_partition_takes_its_route,
    a_reserved_gpu_is_never_another_users,
    a_slice_job_gets_its_part_of_the_host,
);

const POLICY: &str = "/etc/softmig/policy.toml";

/// The policy of the example file, with more.
fn with_policy(slurm: Slurm, more: &str) -> Builder {
    let text = format!("{}\n{more}", include_str!("../../conf/policy.toml"));
    installed(slurm).file(POLICY, text)
}

const GATE: &str =
    "[[gate]]\nwhat = \"slice\"\nreservation = [\"jhl_homework_gpu_.*\", \"course_[0-9]+\"]\n";

/// A quarter in every form that a user can give a request.
fn forms(user: User<'_>, reservation: Option<&str>) -> Vec<(&'static str, Result<Output>)> {
    let reservation = reservation.map(|name| format!("--reservation={name}"));
    let inside: Vec<&str> = reservation.iter().map(String::as_str).collect();
    let option = |gres: &str| user.try_sbatch(&[&["--hold", gres], &inside[..]].concat(), "true");
    let line = format!(
        "#!/bin/bash\n#SBATCH --hold --gres=gpu:l40s.4:1 {}\ntrue\n",
        inside.join(" ")
    );
    let variable = user
        .command(&[&["sbatch", "--parsable", "--hold"], &inside[..]].concat())
        .env("SBATCH_GRES", "gpu:l40s.4:1")
        .stdin("#!/bin/bash\ntrue\n")
        .output();
    vec![
        ("--gres", option("--gres=gpu:l40s.4:1")),
        ("--gpus", option("--gpus=l40s.4:1")),
        ("shards", option("--gres=shard:l40s:1")),
        ("#SBATCH", user.try_sbatch(&[], &line)),
        ("SBATCH_GRES", variable),
        (
            "srun",
            user.srun(&[&["--gres=gpu:l40s.4:1"], &inside[..], &["true"]].concat()),
        ),
        (
            "salloc",
            user.run(&[&["salloc", "--gres=gpu:l40s.4:1"], &inside[..], &["true"]].concat()),
        ),
    ]
}

fn outside_a_reservation_no_form_of_a_slice_passes(slurm: Slurm) -> Result<()> {
    for filter in [true, false] {
        let cluster = with_policy(slurm, GATE).cli_filter(filter).start()?;
        let user = cluster.user("alice");
        for (form, output) in forms(user, None) {
            let refusal = output?.refused().context(form)?;
            assert!(
                refusal.contains("[GATE_NO_RESERVATION]"),
                "{form}: {refusal}"
            );
        }
        user.sbatch(&["--hold", "--gres=gpu:l40s:1"], "true")?;
        user.sbatch(&["--hold"], "true")?;
        let (field, mark) = match slurm {
            Slurm::V22_05 => ("gres", "gres:"),
            Slurm::V24_11 | Slurm::V26_05 => ("tres_per_node", "gres/"),
        };
        let gres = format!("{mark}gpu:l40s.4:1");
        let reply = user.rest_submit(&json!({ field: gres }), "true")?;
        assert!(reply.job().is_err(), "{reply}");
        let log = cluster.slurmctld_log()?;
        assert!(log.contains("[GATE_NO_RESERVATION]"), "{log}");
    }
    Ok(())
}

fn inside_a_reservation_every_form_passes(slurm: Slurm) -> Result<()> {
    let cluster = with_policy(slurm, GATE).start()?;
    cluster.reserve_nodes("course_7", "alice,root")?;
    for (form, output) in forms(cluster.user("alice"), Some("course_7")) {
        output?.ok().context(form)?;
    }
    Ok(())
}

fn a_name_that_almost_fits_does_not_fit(slurm: Slurm) -> Result<()> {
    let cluster = with_policy(slurm, GATE).cli_filter(false).start()?;
    for name in [
        "evil_jhl_homework_gpu_x",
        "course_7x",
        "xcourse_7",
        "course_",
    ] {
        cluster.reserve_nodes(name, "alice,root")?;
        for (form, output) in forms(cluster.user("alice"), Some(name)) {
            let refusal = output?.refused().context(form)?;
            assert!(refusal.contains("[GATE_RESERVATION]"), "{form}: {refusal}");
            assert!(
                refusal.contains(&format!("may not be used inside reservation {name} ")),
                "{refusal}"
            );
        }
    }
    Ok(())
}

fn every_reservation_of_a_list_has_to_fit(slurm: Slurm) -> Result<()> {
    let cluster = with_policy(slurm, GATE).cli_filter(false).start()?;
    for name in ["course_7", "course_8", "other"] {
        cluster.reserve_nodes(name, "alice,root")?;
    }
    let ask = |list: &str| {
        let reservation = format!("--reservation={list}");
        let options = ["--hold", "--gres=gpu:l40s.4:1", &reservation];
        cluster.user("alice").try_sbatch(&options, "true")
    };
    ask("course_7,course_8")?.ok()?;
    for list in ["course_7,other", "other,course_7"] {
        let refusal = ask(list)?.refused()?;
        assert!(refusal.contains("[GATE_RESERVATION]"), "{refusal}");
    }
    Ok(())
}

fn a_change_meets_the_same_gate(slurm: Slurm) -> Result<()> {
    let cluster = with_policy(slurm, GATE).start()?;
    for name in ["course_7", "course_8", "other"] {
        cluster.reserve_nodes(name, "alice,root")?;
    }
    let user = cluster.user("alice");
    let update = |by: &str, job: u32, change: &str| {
        cluster.run(by, &["scontrol", "update", &format!("jobid={job}"), change])
    };
    let inside = ["--hold", "--gres=gpu:l40s.4:1", "--reservation=course_7"];
    let job = user.sbatch(&inside, "true")?;
    update("alice", job, "reservation=course_8")?.ok()?;
    for (change, code) in [
        ("reservation=other", "GATE_RESERVATION"),
        ("reservation=", "GATE_NO_RESERVATION"),
    ] {
        let refusal = update("alice", job, change)?.refused().context(change)?;
        if slurm >= Slurm::V24_11 {
            assert!(refusal.contains(code), "{refusal}");
        }
        assert!(cluster.slurmctld_log()?.contains(code), "{change}");
    }
    assert_eq!(
        cluster.job_field(job, "Reservation")?.as_deref(),
        Some("course_8")
    );
    // The user may still change other fields.
    update("alice", job, "timelimit=5")?.ok()?;
    update("alice", job, "name=mine")?.ok()?;

    let whole = user.sbatch(&["--hold", "--gres=gpu:l40s:1"], "true")?;
    update("alice", whole, "gres=gpu:l40s.4:1")?.refused()?;
    assert_eq!(tag(&cluster, whole)?.as_deref(), Some("softmig=1:whole"));
    // An administrator may.
    update("root", job, "reservation=other")?.ok()?;
    Ok(())
}

const TWO_PARTITIONS: &str = "PartitionName=course Nodes=ALL MaxTime=INFINITE State=UP";

fn a_gate_holds_only_in_its_partition_also_the_default_one(slurm: Slurm) -> Result<()> {
    for (gated, open) in [("main", "course"), ("course", "main")] {
        let cluster = with_policy(slurm, &format!("{GATE}partitions = [\"{gated}\"]\n"))
            .cli_filter(false)
            .slurm_conf(TWO_PARTITIONS)
            .start()?;
        let ask = |partition: Option<&str>| {
            let partition = partition.map(|name| format!("--partition={name}"));
            let mut options = vec!["--hold", "--gres=gpu:l40s.4:1"];
            options.extend(partition.as_deref());
            cluster.user("alice").try_sbatch(&options, "true")
        };
        let refusal = ask(Some(gated))?.refused()?;
        assert!(
            refusal.contains(&format!("in partition {gated}")),
            "{refusal}"
        );
        ask(Some(&format!("{open},{gated}")))?.refused()?;
        let job: u32 = ask(Some(open))?.ok()?.trim().parse()?;
        // main is Slurm's default.
        match gated {
            "main" => drop(ask(None)?.refused()?),
            _ => drop(ask(None)?.ok()?),
        }
        let moved = format!("partition={gated}");
        let update = ["scontrol", "update", &format!("jobid={job}"), &moved];
        cluster.user("alice").run(&update)?.refused()?;
    }
    Ok(())
}

fn a_job_without_a_partition_takes_its_route(slurm: Slurm) -> Result<()> {
    let routes = "[[route]]\npartition = \"course\"\nmax_time = \"1:00:00\"\njobs = \"batch\"\n";
    let cluster = with_policy(slurm, routes)
        .slurm_conf(TWO_PARTITIONS)
        .start()?;
    let user = cluster.user("alice");
    let partition = |options: &[&str]| -> Result<Option<String>> {
        let job = user.sbatch(&[&["--hold"], options].concat(), "true")?;
        cluster.job_field(job, "Partition")
    };
    let slice = "--gres=gpu:l40s.4:1";
    assert_eq!(partition(&[slice, "--time=60"])?.as_deref(), Some("course"));
    assert_eq!(partition(&[slice, "--time=61"])?.as_deref(), Some("main"));
    assert_eq!(partition(&[slice])?.as_deref(), Some("main"));
    assert_eq!(
        partition(&[slice, "--time=60", "--partition=main"])?.as_deref(),
        Some("main")
    );
    assert_eq!(
        partition(&["--gres=gpu:l40s:1", "--time=60"])?.as_deref(),
        Some("main")
    );
    assert_eq!(partition(&["--time=60"])?.as_deref(), Some("main"));
    let salloc = [
        "salloc",
        slice,
        "--time=60",
        "bash",
        "-c",
        "echo $SLURM_JOB_PARTITION",
    ];
    assert_eq!(user.run(&salloc)?.ok()?, "main\n");
    Ok(())
}

fn units_of_mps_are_slices_in_every_form(slurm: Slurm) -> Result<()> {
    let legacy = "[legacy.mps]\ntype = \"titanrtx\"\nunits_per_gpu = 320\n";
    let gpus = Gpus::new("titanrtx", "NVIDIA TITAN RTX", 2).shards(80);
    let cluster = with_policy(slurm, legacy)
        .gpus([gpus])
        .slurm_conf("GresTypes=gpu,mps,shard")
        .start()?;
    let user = cluster.user("alice");
    for (units, shards) in [(80, 20), (40, 10), (32, 8), (20, 5), (16, 4)] {
        let option = format!("--gres=mps:{units}");
        let job = user.sbatch(&["--hold", &option], "true")?;
        let tres = cluster.job_field(job, "TresPerNode")?.unwrap_or_default();
        assert!(
            tres.ends_with(&format!("shard:titanrtx:{shards}")),
            "{option}: {tres}"
        );
    }
    let refusal = user.try_sbatch(&["--gres=mps:50"], "true")?.refused()?;
    assert!(
        refusal.contains("[SLICE_SIZE]") && refusal.contains("--gres=mps:40"),
        "{refusal}"
    );
    let says = user.srun(&["--gres=mps:80", "bash", "-c", "echo $SLURM_SHARDS_ON_NODE"])?;
    assert_eq!(says.ok()?, "20\n");
    let job = user.sbatch(
        &["--gres=mps:80"],
        "srun --gres=mps:80 bash -c 'echo $SLURM_SHARDS_ON_NODE'",
    )?;
    cluster.wait_job(job, "COMPLETED")?;
    assert_eq!(user.job_output(job)?, "20\n");
    Ok(())
}

fn a_reserved_gpu_is_never_another_users(slurm: Slurm) -> Result<()> {
    let kept = |start: &str, end: &str| {
        format!(
            "[[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\nuser = \"alice\"\nstart = {start}\nend = {end}\nreason = \"paper\"\n"
        )
    };
    // As `softmig config` writes it: the reserved type has shards, since Slurm wants some, and every request for them
    // is refused.
    let gpus = [Gpus::l40s(2), Gpus::new("l40s_r", "NVIDIA L40S", 1)];
    let cluster = with_policy(slurm, &kept("2020-01-01", "2999-01-01"))
        .gpus(gpus)
        .cli_filter(false)
        .start()?;
    let (alice, bob) = (cluster.user("alice"), cluster.user("bob"));
    // All else is full. With time limits: Slurm starts nothing on a node where another job is expected in that time.
    let mut jobs = Vec::new();
    for _ in 0..8 {
        jobs.push(bob.sbatch(&["--gres=gpu:l40s.4:1", "--time=20"], "sleep 100")?);
    }
    for job in &jobs {
        cluster.wait_job(job, "RUNNING")?;
    }
    for waiting in ["--gres=gpu:l40s.4:1", "--gres=gpu:l40s:1"] {
        let job = bob.sbatch(&[waiting, "--time=20"], "sleep 100")?;
        cluster.wait_until("it waits", || {
            Ok(
                cluster.job_field(job, "Reason")?.as_deref() == Some("Resources")
                    || cluster.job_field(job, "Reason")?.as_deref() == Some("Priority"),
            )
        })?;
    }
    for (who, gres) in [
        (bob, "gpu:l40s_r:1"),
        (bob, "gpu:1"),
        (bob, "gpu:l40s_r.4:1"),
        (bob, "shard:l40s_r:1"),
        (bob, "shard:1"),
        (alice, "shard:l40s_r:1"),
        (alice, "gpu:1"),
    ] {
        let refusal = who
            .try_sbatch(&[&format!("--gres={gres}")], "true")?
            .refused()?;
        let code = if gres.starts_with("gpu:l40s_r:") || gres == "gpu:1" {
            "RESERVED"
        } else {
            "softmig"
        };
        assert!(refusal.contains(code), "{gres}: {refusal}");
    }
    let hers = alice.sbatch(&["--gres=gpu:l40s_r:1", "--time=10"], "sleep 100")?;
    cluster.wait_job(hers, "RUNNING")?;
    let second = alice.sbatch(&["--gres=gpu:l40s_r:1", "--time=5"], "true")?;
    cluster.wait_until("her second job waits for her first", || {
        Ok(cluster
            .job_field(second, "Reason")?
            .is_some_and(|reason| reason != "None"))
    })?;
    cluster
        .run("alice", &["scancel", &hers.to_string()])?
        .ok()?;
    cluster.wait_job(second, "COMPLETED")?;
    // Before its time it is not even hers.
    let policy = include_str!("../../conf/policy.toml");
    let have =
        |start: &str, end: &str| cluster.write(POLICY, &format!("{policy}\n{}", kept(start, end)));
    have("2998-01-01", "2999-01-01")?;
    let refusal = alice
        .try_sbatch(&["--gres=gpu:l40s_r:1"], "true")?
        .refused()?;
    let words = "reserved for user alice from 2998-01-01T00:00:00";
    assert!(refusal.contains(words), "{refusal}");
    // After it, it is a whole GPU for all.
    have("2020-01-01", "2020-01-02")?;
    for who in [alice, bob] {
        let job = who.sbatch(&["--gres=gpu:l40s_r:1", "--time=1"], "true")?;
        cluster.wait_job(job, "COMPLETED")?;
    }
    Ok(())
}

fn a_slice_job_gets_its_part_of_the_host(slurm: Slurm) -> Result<()> {
    let host = "[defaults]\ncpus_per_shard = 2\nmax_cpus_per_shard = 3\nhost_memory_mib_per_shard = 300\nmax_host_memory_mib_per_shard = 400\n";
    for filter in [true, false] {
        let cluster = with_policy(slurm, host).cli_filter(filter).start()?;
        let user = cluster.user("alice");
        let got = |options: &[&str]| -> Result<(String, String)> {
            let job = user.sbatch(&[options, &["--gres=gpu:l40s.2:1"]].concat(), "true")?;
            cluster.wait_job(job, "COMPLETED")?;
            let cpus = cluster.job_field(job, "NumCPUs")?.unwrap_or_default();
            let tres = match cluster.job_field(job, "AllocTRES")? {
                Some(tres) => tres,
                None => cluster.job_field(job, "TRES")?.unwrap_or_default(),
            };
            let memory = tres.split(',').find_map(|part| part.strip_prefix("mem="));
            Ok((cpus, memory.unwrap_or_default().to_string()))
        };
        let pair = |cpus: &str, memory: &str| (cpus.to_string(), memory.to_string());
        assert_eq!(got(&[])?, pair("4", "600M"));
        assert_eq!(
            got(&["--cpus-per-task=6", "--mem=800M"])?,
            pair("6", "800M")
        );
        assert_eq!(
            got(&["--ntasks=2", "--mem-per-cpu=100"])?,
            pair("2", "200M")
        );
        for options in [
            ["--cpus-per-task=7"],
            ["--ntasks=7"],
            ["--mem=801M"],
            ["--mem=0"],
            ["--mem-per-cpu=1G"],
            ["--mincpus=7"],
        ] {
            let options = [&["--gres=gpu:l40s.2:1"], &options[..]].concat();
            let refusal = user.try_sbatch(&options, "true")?.refused()?;
            assert!(refusal.contains("[LIMIT_JOB]"), "{options:?}: {refusal}");
        }
        let job = user.sbatch(&["--hold", "--gres=gpu:l40s.2:1"], "true")?;
        let update = [
            "scontrol",
            "update",
            &format!("jobid={job}"),
            "gres=gpu:l40s.4:1",
        ];
        let refusal = user.run(&update)?.refused();
        refusal.context("600 MiB are too much for a quarter")?;
    }
    Ok(())
}
