//! The output of `softmig config`, on a real Slurm as it is: only ports, paths and the like are the cluster's own.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use softmig_tests::builder::unique_tag;
use softmig_tests::config::{FIRST_NODE_PORT, cgroups_usable};
use softmig_tests::site::{made, site};
use softmig_tests::softmig::installed;
use softmig_tests::{Accounting, Builder, Cluster, Gpus, Slurm, on_each_slurm};

on_each_slurm!(
    seams:
    a_cluster_comes_up_from_what_config_prints,
    slices_are_spread_where_slurm_can,
    a_kept_gpu_is_reserved_where_slurm_can,
    which_of_two_prologs_runs_is_told;
    others:
    units_of_mps_reach_slurm,
    mig_instances_of_one_type_are_shared,
    beside_mig_instances_gpus_are_had_whole,
    classes_are_held_to_their_limits,
    the_qos_script_changes_what_changed,
    a_partition_of_a_node_that_no_line_defines_is_found,
);

/// A policy for one node with four L40S.
fn policy(tag: &str, gpus: &str, more: &str) -> String {
    // As many CPUs as there are: control groups cannot give out others.
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    format!(
        "{more}\n[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n\
         [[nodes]]\nnames = \"{tag}n1\"\ngpus = {gpus}\n\
         slurm = \"NodeHostname=softmig NodeAddr=127.0.0.1 Port={FIRST_NODE_PORT} CPUs={cpus} CoresPerSocket={cpus} RealMemory=2000\"\n"
    )
}

/// A cluster of softmig with nothing but what `softmig config` prints, besides what is the cluster's own.
fn whole_site(slurm: Slurm, tag: &str, policy: &str) -> Result<Builder> {
    let builder = site(slurm, tag, policy)?;
    if !cgroups_usable() {
        return Ok(builder);
    }
    let own = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n";
    let cgroup = made(slurm, policy)?.remove("cgroup.conf");
    let cgroup = cgroup.context("no cgroup.conf")?;
    Ok(builder.file("/etc/slurm/cgroup.conf", format!("{cgroup}{own}")))
}

/// Fails when Slurm complains of a line.
fn takes_every_line(cluster: &Cluster) -> Result<()> {
    let mut logs = cluster.slurmctld_log()?;
    logs += &cluster.slurmd_log(cluster.node(0))?;
    let complaints = [
        "specified more than once",
        "Parsing error",
        "unrecognized",
        "Ignoring",
        "INVAL",
        "low gres",
    ];
    for line in logs.lines() {
        ensure!(
            !complaints.iter().any(|words| line.contains(words)),
            "{line}"
        );
    }
    Ok(())
}

const KEPT: &str = "[[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\nuser = \"alice\"\nend = 2099-01-01T00:00:00Z\n\
                    reason = \"a deadline\"\n\
                    [[route]]\npartition = \"quick\"\ntypes = [\"l40s\"]\nmax_time = \"1:00:00\"\nslurm = \"PriorityTier=10\"\n";

fn a_cluster_comes_up_from_what_config_prints(slurm: Slurm) -> Result<()> {
    let tag = unique_tag();
    let policy = policy(&tag, "[\"l40s_r:1\", \"l40s:3\"]", KEPT) + "slice_features = true\n";
    let gpus = [Gpus::new("l40s_r", "NVIDIA L40S", 1), Gpus::l40s(3)];
    let cluster = whole_site(slurm, &tag, &policy)?.gpus(gpus).start()?;
    takes_every_line(&cluster)?;
    let features = cluster.run(
        "alice",
        &["sinfo", "--noheader", "--partition=main", "-o", "%f"],
    )?;
    assert_eq!(features.ok()?.trim(), "l40s.2,l40s.4");
    let (alice, bob) = (cluster.user("alice"), cluster.user("bob"));

    // A slice, with its own conf, where the route leads.
    let show = "cat /var/run/softmig/$SLURM_JOB_ID.conf; echo $SLURM_JOB_PARTITION; srun true && echo step";
    let slice = bob.sbatch(&["--gres=gpu:l40s.4:1", "--time=10"], show)?;
    cluster.wait_job(slice, "COMPLETED")?;
    let said = bob.job_output(slice)?;
    assert!(said.contains("CUDA_DEVICE_MEMORY_LIMIT=11366M\n"), "{said}");
    assert!(said.ends_with("\nquick\nstep\n"), "{said}");

    // Whole GPUs.
    let whole = bob.sbatch(&["--gres=gpu:l40s:2"], show)?;
    cluster.wait_job(whole, "COMPLETED")?;
    let said = bob.job_output(whole)?;
    assert!(said.contains("SOFTMIG_MODE=whole\n"), "{said}");
    assert!(said.ends_with("\nmain\nstep\n"), "{said}");

    // The reserved GPU: the first device, which only its holder can open.
    let devices = "echo $SLURM_JOB_GPUS $(head -c0 /dev/nvidia0 2>&1 | grep -q permitted || echo allowed); sleep 60";
    let kept = alice.sbatch(&["--gres=gpu:l40s_r:1"], devices)?;
    cluster.wait_job(kept, "RUNNING")?;
    cluster.wait_until("the job has said its device", || {
        Ok(alice.job_output(kept)? == "0 allowed\n")
    })?;
    let refused = bob
        .try_sbatch(&["--gres=gpu:l40s_r:1"], "true")?
        .refused()?;
    assert!(refused.contains("[RESERVED]"), "{refused}");
    for count in ["shard:l40s_r:1", "shard:1"] {
        let refused = bob
            .try_sbatch(&[&format!("--gres={count}")], "true")?
            .refused();
        assert!(refused.is_ok(), "{count}: {refused:?}");
    }
    let node = cluster
        .run("root", &["scontrol", "show", "partition", "quick"])?
        .ok()?;
    assert!(
        node.contains("MaxTime=01:00:00") && node.contains("PriorityTier=10"),
        "{node}"
    );
    takes_every_line(&cluster)
}

fn slices_are_spread_where_slurm_can(slurm: Slurm) -> Result<()> {
    let tag = unique_tag();
    let policy = policy(&tag, "[\"l40s:4\"]", "[placement]\nshards = \"spread\"\n");
    let cluster = whole_site(slurm, &tag, &policy)?.start()?;
    takes_every_line(&cluster)?;
    let alice = cluster.user("alice");
    let mut devices = Vec::new();
    for _ in 0..2 {
        let job = alice.sbatch(&["--gres=gpu:l40s.4:1"], "echo $SLURM_JOB_GPUS; sleep 60")?;
        cluster.wait_job(job, "RUNNING")?;
        cluster.wait_until("the job has said its device", || {
            Ok(!alice.job_output(job)?.is_empty())
        })?;
        devices.push(alice.job_output(job)?.trim().to_string());
    }
    match slurm {
        Slurm::V22_05 => assert_eq!(devices, ["0", "0"]),
        Slurm::V24_11 | Slurm::V26_05 => assert_eq!(devices, ["0", "1"]),
    }
    Ok(())
}

fn units_of_mps_reach_slurm(slurm: Slurm) -> Result<()> {
    let tag = unique_tag();
    let mps = "[legacy.mps]\ntype = \"l40s\"\nunits_per_gpu = 320\n";
    let policy = policy(&tag, "[\"l40s:4\"]", mps);
    // Only what every submission passes.
    let functions = ["setup_defaults", "pre_submit", "post_submit"];
    let filter: String = functions
        .iter()
        .map(|name| format!("function slurm_cli_{name}() return slurm.SUCCESS end\n"))
        .collect();
    let cluster = whole_site(slurm, &tag, &policy)?
        .file("/etc/slurm/cli_filter.lua", filter)
        .start()?;
    takes_every_line(&cluster)?;
    let alice = cluster.user("alice");
    let job = alice.sbatch(
        &["--gres=mps:80"],
        "cat /var/run/softmig/$SLURM_JOB_ID.conf",
    )?;
    cluster.wait_job(job, "COMPLETED")?;
    let said = alice.job_output(job)?;
    assert!(said.contains("SOFTMIG_SHARDS=1/4\n"), "{said}");
    Ok(())
}

/// Slurm cannot ask NVML here, so gres.conf names the devices of the instances.
fn mig_site(slurm: Slurm, gpus: &str, kinds: [Gpus; 2], found: &[&str]) -> Result<Cluster> {
    let tag = unique_tag();
    let types = "[gpu.\"l40s_1g\"]\nmemory_mib = 9856\nreserved_mib = 4\nshards = 1\nmig = true\n\
                 [gpu.\"l40s_2g\"]\nmemory_mib = 19712\nreserved_mib = 8\nshards = 2\nmig = true\n";
    let policy = policy(&tag, gpus, types);
    let found = found
        .iter()
        .map(|gpu| format!("NodeName={tag}n1 Name=gpu {gpu}\n"));
    let gres = made(slurm, &policy)?.remove("gres.conf");
    let asks = format!("NodeName={tag}n1 AutoDetect=nvml\n");
    let gres = gres.filter(|gres| gres.contains(&asks));
    let gres = gres
        .context("NVML is not asked")?
        .replace(&asks, &found.collect::<String>());
    let cluster = whole_site(slurm, &tag, &policy)?
        .gpus(kinds)
        .file("/etc/slurm/gres.conf", gres)
        .start()?;
    takes_every_line(&cluster)?;
    Ok(cluster)
}

fn mig_instances_of_one_type_are_shared(slurm: Slurm) -> Result<()> {
    let kinds = [
        Gpus::new("l40s_2g", "NVIDIA L40S", 1),
        Gpus::new("l40s_2g", "NVIDIA L40S", 1),
    ];
    let found = ["Type=l40s_2g File=/dev/nvidia[0-1]"];
    let cluster = mig_site(slurm, "[\"l40s_2g:2\"]", kinds, &found)?;
    let alice = cluster.user("alice");
    let slice = ["--gres=gpu:l40s_2g.2:1", "--mem=10"];
    let jobs: Vec<u32> = (0..2)
        .map(|_| alice.sbatch(&slice, "srun sleep 60"))
        .collect::<Result<_>>()?;
    for job in jobs {
        cluster.wait_job(job, "RUNNING")?;
        // One after the other.
        assert_eq!(cluster.job_gpus(job)?, [0]);
    }
    Ok(())
}

fn beside_mig_instances_gpus_are_had_whole(slurm: Slurm) -> Result<()> {
    let kinds = [Gpus::l40s(1), Gpus::new("l40s_1g", "NVIDIA L40S", 3)];
    let found = [
        "Type=l40s File=/dev/nvidia0",
        "Type=l40s_1g File=/dev/nvidia[1-3]",
    ];
    let cluster = mig_site(slurm, "[\"l40s:1\", \"l40s_1g:3\"]", kinds, &found)?;
    let alice = cluster.user("alice");
    for (gres, gpu) in [("gpu:l40s:1", 0), ("gpu:l40s_1g:1", 1)] {
        let job = alice.sbatch(&[&format!("--gres={gres}"), "--mem=10"], "srun sleep 60")?;
        cluster.wait_job(job, "RUNNING")?;
        assert_eq!(cluster.job_gpus(job)?, [gpu]);
    }
    Ok(())
}

const CLASSES: &str = "default_class = \"student\"\n\
                       [classes.student]\nshards = 2\nwhole_gpus = 0\njobs = 3\nwall_time = \"1-00:00:00\"\npriority = 10\n\
                       [classes.researcher]\nmembers = { users = [\"bob\"] }\nshards = 6\nshards_of = { l40s = 5 }\n\
                       max_shards_per_job = 4\nwhole_gpus = 1\ncpus = 32\nhost_memory_mib = 131072\npriority = 50\n";

/// All of softmig's QOS: name, limits per user and job, jobs, time, priority, flags.
fn qos(cluster: &Cluster) -> Result<String> {
    let words = "show qos where name=student,researcher \
                 format=name,maxtrespu,maxtres,maxjobspu,maxwall,priority,flags";
    cluster.sacctmgr(words)
}

/// Slurm shows the memory in a larger unit.
const BEFORE: &str = "researcher|billing=6,cpu=32,gres/gpu:l40s=1,gres/gpu=1,gres/shard:l40s=5,mem=128G|gres/gpu=1,gres/shard=4|||50|DenyOnLimit\n\
                      student|billing=2,gres/gpu=0||3|1-00:00:00|10|DenyOnLimit\n";
const AFTER: &str = "researcher|billing=6,gres/gpu=1,mem=128G||||50|DenyOnLimit\n\
                     student|billing=2,cpu=3,gres/gpu=0||||0|DenyOnLimit\n";

fn run(cluster: &Cluster, script: &str) -> Result<()> {
    cluster.run("root", &["sh", script])?.ok()?;
    cluster.settle_accounts()
}

fn classes_are_held_to_their_limits(slurm: Slurm) -> Result<()> {
    let tag = unique_tag();
    let policy = policy(&tag, "[\"l40s:4\"]", CLASSES);
    let cluster = whole_site(slurm, &tag, &policy)?
        .accounting(Accounting::new())
        .start()?;
    takes_every_line(&cluster)?;
    run(&cluster, "/root/softmig-qos.sh")?;
    let (alice, bob) = (cluster.user("alice"), cluster.user("bob"));
    let small = "--mem=10";

    // A student has two quarters, and the third waits.
    let student: Vec<u32> = (0..3)
        .map(|_| alice.sbatch(&[small, "--gres=gpu:l40s.4:1"], "sleep 60"))
        .collect::<Result<_>>()?;
    cluster.wait_job(student[0], "RUNNING")?;
    // Two CPUs at least are everywhere.
    cluster.wait_job(student[1], "RUNNING")?;
    cluster.wait_until("the third waits for the first two", || {
        let reason = cluster.job_field(student[2], "Reason")?;
        Ok(reason.as_deref() == Some("QOSMaxBillingPerUser"))
    })?;
    assert_eq!(
        cluster.job_field(student[0], "QOS")?.as_deref(),
        Some("student")
    );
    cluster.run("root", &["scancel", "-u", "alice"])?.ok()?;

    // A whole GPU counts as its four shards, so that of six only one more is left beside a quarter.
    let whole = bob.sbatch(&[small, "--gres=gpu:l40s:1"], "sleep 60")?;
    cluster.wait_job(whole, "RUNNING")?;
    let quarter = bob.sbatch(&[small, "--gres=gpu:l40s.4:1"], "sleep 60")?;
    cluster.wait_job(quarter, "RUNNING")?;
    let half = bob.sbatch(&[small, "--gres=gpu:l40s.2:1"], "sleep 60")?;
    cluster.wait_until("the half waits for the others", || {
        let reason = cluster.job_field(half, "Reason")?;
        Ok(reason.as_deref() == Some("QOSMaxBillingPerUser"))
    })?;
    assert_eq!(
        cluster.job_field(whole, "QOS")?.as_deref(),
        Some("researcher")
    );
    Ok(())
}

fn the_qos_script_changes_what_changed(slurm: Slurm) -> Result<()> {
    let tag = unique_tag();
    let before = policy(&tag, "[\"l40s:4\"]", CLASSES);
    let cluster = whole_site(slurm, &tag, &before)?
        .accounting(Accounting::new())
        .start()?;
    // A list of her own, which lacks softmig's.
    cluster.sacctmgr("add qos own")?;
    cluster.sacctmgr("modify user alice set qos=own")?;
    let script = "/root/softmig-qos.sh";
    for _ in 0..2 {
        run(&cluster, script)?;
        assert_eq!(qos(&cluster)?, BEFORE);
        let held = cluster.sacctmgr("show assoc where user=alice,bob format=user,qos")?;
        assert_eq!(
            held,
            "alice|own,researcher,student\nbob|normal,researcher,student\n"
        );
    }
    // Limits that are gone, and others that have come.
    let after = CLASSES
        .replace("shards_of = { l40s = 5 }", "")
        .replace("cpus = 32", "")
        .replace("max_shards_per_job = 4", "")
        .replace("jobs = 3", "")
        .replace("wall_time = \"1-00:00:00\"", "")
        .replace("priority = 10", "cpus = 3");
    let files = made(slurm, &policy(&tag, "[\"l40s:4\"]", &after))?;
    cluster.write(script, &files["softmig-qos.sh"])?;
    for _ in 0..2 {
        run(&cluster, script)?;
        assert_eq!(qos(&cluster)?, AFTER);
    }
    // One of the same name that the site has made keeps its limits, unless the administrator says otherwise.
    let theirs = "modify qos where name=student set Description=ours MaxJobsPerUser=7";
    cluster.sacctmgr(theirs)?;
    let refused = cluster.run("root", &["sh", script])?;
    assert!(refused.ok().is_err());
    assert!(qos(&cluster)?.contains("student|billing=2,cpu=3,gres/gpu=0||7|"));
    cluster.run("root", &["sh", script, "--take-over"])?.ok()?;
    run(&cluster, script)?;
    // Removal takes away what softmig made, from users' lists too, and leaves what is the site's.
    cluster.sacctmgr(theirs)?;
    for _ in 0..2 {
        cluster.run("root", &["sh", script, "--remove"])?.ok()?;
        cluster.settle_accounts()?;
        let left = cluster.sacctmgr("show qos format=name")?;
        let left: BTreeSet<&str> = left.lines().collect();
        assert_eq!(left, BTreeSet::from(["normal", "own", "student"]));
        let held = cluster.sacctmgr("show assoc where user=alice,bob format=user,qos")?;
        assert_eq!(held, "alice|own,student\nbob|normal,student\n");
    }
    Ok(())
}

fn a_kept_gpu_is_reserved_where_slurm_can(slurm: Slurm) -> Result<()> {
    let tag = unique_tag();
    let gpus = "[\"l40s:3\", \"l40s_r:1\"]";
    let kept = policy(&tag, gpus, &format!("{CLASSES}{KEPT}"));
    let cluster = whole_site(slurm, &tag, &kept)?
        .gpus([Gpus::l40s(3), Gpus::new("l40s_r", "NVIDIA L40S", 1)])
        .accounting(Accounting::new())
        .start()?;
    run(&cluster, "/root/softmig-qos.sh")?;
    let script = "/root/softmig-reservations.sh";
    let show = ["scontrol", "-o", "show", "reservation"];
    for _ in 0..2 {
        run(&cluster, script)?;
        let shown = cluster.run("root", &show)?.ok()?;
        if slurm < Slurm::V24_11 {
            assert!(shown.contains("No reservations"), "{shown}");
            continue;
        }
        for word in [
            "ReservationName=softmig_l40s_r_ ",
            " Users=alice ",
            "EndTime=2099-01-01T00:00:00 ",
            " CoreCnt=1 ",
            "STATIC",
            "gres/gpu:l40s_r=1",
            &format!(" Nodes={tag}n1 "),
        ] {
            assert!(shown.contains(word), "{word}: {shown}");
        }
        // One that has lost its GPU, as it does when Slurm moves it: it is found, and made anew.
        let lose = "scontrol delete ReservationName=softmig_l40s_r_ && scontrol create reservation \
                    ReservationName=softmig_l40s_r_ Users=alice StartTime=now EndTime=2099-01-01T00:00:00 TRES=cpu=1 \
                    Flags=IGNORE_JOBS";
        cluster.run("root", &["sh", "-c", lose])?.ok()?;
        let said = cluster.run("root", &["softmig", "check", "--slurm"])?;
        assert!(said.stdout.contains("RESERVABLE_MOVED"), "{said}");
    }
    run(&cluster, script)?;
    let said = cluster.run("root", &["softmig", "check", "--slurm"])?;
    assert!(!said.stdout.contains("RESERVABLE_MOVED"), "{said}");
    // Its holder has it, by no other words than on a release without reservations, and slices beside it.
    let (alice, bob) = (cluster.user("alice"), cluster.user("bob"));
    let small = "--mem=10";
    let whole = alice.sbatch(&[small, "--gres=gpu:l40s_r:1"], "sleep 60")?;
    cluster.wait_job(whole, "RUNNING")?;
    let slice = alice.sbatch(&[small, "--gres=gpu:l40s.4:1"], "sleep 60")?;
    cluster.wait_job(slice, "RUNNING")?;
    // All users may have what is not reserved.
    cluster
        .run("root", &["scancel", &slice.to_string()])?
        .ok()?;
    let slice = bob.sbatch(&[small, "--gres=gpu:l40s.4:1"], "sleep 60")?;
    cluster.wait_job(slice, "RUNNING")?;
    // When no job has the GPU any longer, the reservation goes.
    cluster
        .run("root", &["scancel", &whole.to_string()])?
        .ok()?;
    cluster.wait_job(whole, "CANCELLED")?;
    let over = made(
        slurm,
        &policy(
            &tag,
            gpus,
            &format!("{CLASSES}{}", KEPT.replace("2099", "2020")),
        ),
    )?;
    cluster.write(script, &over["softmig-reservations.sh"])?;
    cluster.wait_until("the job has left the reservation", || {
        Ok(cluster.run("root", &["sh", script])?.success())
    })?;
    let shown = cluster.run("root", &show)?.ok()?;
    assert!(shown.contains("No reservations"), "{shown}");
    Ok(())
}

/// One in softmig.conf, and one of the site's own, before or after it.
fn which_of_two_prologs_runs_is_told(slurm: Slurm) -> Result<()> {
    let prolog = |name: &str| format!("#!/bin/sh\necho {name} >>/ran\n");
    for (first, second, last) in [
        ("include softmig.conf", "Prolog=/opt/own", "/opt/own"),
        ("Prolog=/opt/own", "include softmig.conf", "/opt/softmig"),
    ] {
        let cluster = installed(slurm)
            .prolog(false)
            .file("/etc/slurm/softmig.conf", "Prolog=/opt/softmig\n")
            .file("/opt/softmig", prolog("/opt/softmig"))
            .file("/opt/own", prolog("/opt/own"))
            .slurm_conf(first)
            .slurm_conf(second)
            .start()?;
        let job = cluster.user("alice").sbatch(&[], "true")?;
        cluster.wait_job(job, "COMPLETED")?;
        let ran = cluster.node(0).read("/ran")?.context("no prolog ran")?;
        let mut ran: Vec<&str> = ran.lines().collect();
        ran.sort_unstable();
        let said = cluster.run("root", &["softmig", "check", "--slurm"])?;
        let told = said.stdout.contains(" SETTING_TWICE Prolog: ");
        if slurm >= Slurm::V24_11 {
            assert_eq!(
                (ran, told),
                (vec!["/opt/own", "/opt/softmig"], false),
                "{said}"
            );
            continue;
        }
        assert_eq!(ran, [last], "{said}");
        let counts = format!(": the last one counts, {last}; ");
        assert!(told && said.stdout.contains(&counts), "{said}");
    }
    Ok(())
}

fn a_partition_of_a_node_that_no_line_defines_is_found(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let own = cluster
        .read("/etc/slurm/slurm.conf")?
        .context("slurm.conf")?;
    let release = slurm.to_string();
    let check = |text: &str| -> Result<String> {
        cluster.write("/etc/slurm/draft.conf", text)?;
        let files = ["--slurm-conf", "/etc/slurm/draft.conf"];
        let words = [
            &["softmig", "check", "--slurm-version", &release][..],
            &files,
        ]
        .concat();
        Ok(cluster.run("root", &words)?.stdout)
    };
    let said = check(&own)?;
    ensure!(!said.contains("PARTITION_NODES"), "{said}");
    let more = format!("{own}PartitionName=old Nodes=gone[1-2]\n");
    let said = check(&more)?;
    ensure!(said.contains("ERROR PARTITION_NODES gone[1-2]: "), "{said}");
    // With such a line slurmctld does not start.
    cluster.write("/etc/slurm/slurm.conf", &more)?;
    ensure!(cluster.restart_slurmctld().is_err(), "slurmctld started");
    let log = cluster.slurmctld_log()?;
    ensure!(log.contains("Invalid node name"), "{log}");
    Ok(())
}
