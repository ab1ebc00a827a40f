//! Students, researchers and admins on four GPUs.

use super::{cluster, end, refused, run, running, stay};
use anyhow::Result;
use softmig_tests::{Cluster, Gpus, Slurm, on_each_slurm};

on_each_slurm!(
    seams:
    a_job_that_grows_by_a_change_is_held_to_its_size;
    others:
    a_student_has_two_slices_and_the_third_waits,
    whole_gpus_count_as_their_shards,
    a_class_is_known_by_account_and_by_primary_group,
    the_priority_of_the_class_decides_who_gets_the_freed_slice,
    a_user_cannot_borrow_another_classes_qos,
    a_changed_job_stays_in_its_users_class,
    a_changed_policy_changes_the_limits,
);

const POLICY: &str = "\
default_class = \"student\"
limit_notice = true
[gpu.l40s]
memory_mib = 46068
reserved_mib = 604
shards = 4
[classes.student]
shards = 2
whole_gpus = 0
priority = 10
[classes.researcher]
members = { accounts = [\"research\"] }
shards = 8
whole_gpus = 2
priority = 50
[classes.admin]
members = { users = [\"dave\"] }
shards = \"unlimited\"
whole_gpus = \"unlimited\"
priority = 100
[classes.course]
members = { groups = [3100] }
shards = 1
whole_gpus = 0
priority = 5
";

const QUARTER: &str = "--gres=gpu:l40s.4:1";
const HALF: &str = "--gres=gpu:l40s.2:1";
const WHOLE: &str = "--gres=gpu:l40s:1";

/// Slurm's word for a class that holds all that it may.
const AT_THE_LIMIT: &str = "QOSMaxBillingPerUser";

fn four_gpus(slurm: Slurm) -> Result<Cluster> {
    cluster(slurm, POLICY, "[\"l40s:4\"]", &[Gpus::l40s(4)])
}

fn a_student_has_two_slices_and_the_third_waits(slurm: Slurm) -> Result<()> {
    let cluster = four_gpus(slurm)?;
    let first = run(&cluster, "alice", QUARTER)?;
    assert_eq!(cluster.job_field(first, "QOS")?.as_deref(), Some("student"));
    let second = run(&cluster, "alice", QUARTER)?;
    let third = stay(&cluster, "alice", &[QUARTER])?;
    cluster.wait_reason(third, AT_THE_LIMIT)?;
    // Another student has two shards of their own.
    let others = [run(&cluster, "bob", HALF)?];

    // A CPU job is not held up, and is not in the class's QOS.
    let cpu = cluster.user("alice").sbatch(&["--time=5"], "true")?;
    cluster.wait_job(cpu, "COMPLETED")?;
    assert_ne!(cluster.job_field(cpu, "QOS")?.as_deref(), Some("student"));

    let refusal = refused(&cluster, "alice", &[WHOLE])?;
    assert!(
        refusal.contains("class student may not use whole GPUs [WHOLE_GPU_CLASS]"),
        "{refusal}"
    );
    assert!(
        refusal.contains("use --gres=gpu:l40s.2:1 (22732 MiB"),
        "{refusal}"
    );

    // The freed slice starts the job that waits.
    assert_eq!(running(&cluster, &[first, second, third])?, 2);
    end(&cluster, first)?;
    cluster.wait_job(third, "RUNNING")?;
    assert_eq!(running(&cluster, &others)?, 1);
    // A grant tells what the class may hold.
    let said = cluster
        .user("alice")
        .try_sbatch(&["--hold", QUARTER], "true")?;
    assert!(said.stderr.contains("[LIMIT_NOTICE]"), "{said}");
    Ok(())
}

fn whole_gpus_count_as_their_shards(slurm: Slurm) -> Result<()> {
    let cluster = four_gpus(slurm)?;
    let wholes = [
        run(&cluster, "carol", WHOLE)?,
        run(&cluster, "carol", WHOLE)?,
    ];
    for more in [QUARTER, WHOLE] {
        let job = stay(&cluster, "carol", &[more])?;
        // Slurm looks at its limits in an order of its own.
        cluster.wait_until("it waits for the limit", || {
            let reason = cluster.job_field(job, "Reason")?.unwrap_or_default();
            Ok(reason.starts_with("QOSMax"))
        })?;
        end(&cluster, job)?;
    }
    end(&cluster, wholes[0])?;
    let slices = [run(&cluster, "carol", HALF)?, run(&cluster, "carol", HALF)?];
    let more = stay(&cluster, "carol", &[QUARTER])?;
    cluster.wait_reason(more, AT_THE_LIMIT)?;
    end(&cluster, slices[0])?;
    cluster.wait_job(more, "RUNNING")?;
    for (gres, code) in [
        (
            "--gres=gpu:l40s:3",
            "3 whole GPUs requested, but class researcher may hold at most 2 at once [LIMIT_JOB]",
        ),
        ("--gpus=l40s:4", "[LIMIT_JOB]"),
    ] {
        let refusal = refused(&cluster, "carol", &[gres])?;
        assert!(refusal.contains(code), "{refusal}");
    }
    // Admins are held to nothing but the GPUs that there are.
    let admin = [run(&cluster, "dave", WHOLE)?, run(&cluster, "dave", WHOLE)?];
    assert_eq!(running(&cluster, &admin)?, 2);
    Ok(())
}

fn a_class_is_known_by_account_and_by_primary_group(slurm: Slurm) -> Result<()> {
    let cluster = four_gpus(slurm)?;
    for (user, qos) in [
        ("alice", "student"),
        ("carol", "researcher"),
        ("erin", "course"),
        ("dave", "admin"),
    ] {
        let job = run(&cluster, user, QUARTER)?;
        assert_eq!(
            cluster.job_field(job, "QOS")?.as_deref(),
            Some(qos),
            "{user}"
        );
    }
    let more = stay(&cluster, "erin", &[QUARTER])?;
    cluster.wait_reason(more, AT_THE_LIMIT)?;
    let refusal = refused(&cluster, "erin", &[HALF])?;
    assert!(
        refusal.contains("class course may hold at most 1 at once [LIMIT_JOB]"),
        "{refusal}"
    );
    Ok(())
}

fn the_priority_of_the_class_decides_who_gets_the_freed_slice(slurm: Slurm) -> Result<()> {
    let cluster = four_gpus(slurm)?;
    let mut admin = Vec::new();
    for _ in 0..3 {
        admin.push(run(&cluster, "dave", WHOLE)?);
    }
    for _ in 0..4 {
        admin.push(run(&cluster, "dave", QUARTER)?);
    }
    let student = stay(&cluster, "alice", &[QUARTER])?;
    let researcher = stay(&cluster, "carol", &[QUARTER])?;
    cluster.wait_until("both wait", || {
        Ok(
            cluster.job_field(student, "Reason")?.as_deref() == Some("Priority")
                && cluster.job_field(researcher, "Reason")?.as_deref() == Some("Resources"),
        )
    })?;
    end(&cluster, admin.pop().unwrap_or_default())?;
    cluster.wait_job(researcher, "RUNNING")?;
    assert_eq!(cluster.job_state(student)?.as_deref(), Some("PENDING"));
    end(&cluster, admin.pop().unwrap_or_default())?;
    cluster.wait_job(student, "RUNNING")
}

fn a_user_cannot_borrow_another_classes_qos(slurm: Slurm) -> Result<()> {
    let cluster = four_gpus(slurm)?;
    for options in [
        &["--qos=admin", QUARTER][..],
        &["--qos=researcher", QUARTER],
        &["--qos=normal", QUARTER],
        &["--qos=admin"],
        &["--qos=ADMIN"],
    ] {
        let refusal = refused(&cluster, "alice", options)?;
        assert!(refusal.contains("[LIMIT_QOS]"), "{options:?}: {refusal}");
    }
    let job = stay(&cluster, "alice", &["--hold", QUARTER])?;
    let cpu = stay(&cluster, "alice", &["--hold"])?;
    for (job, qos) in [(job, "admin"), (job, "normal"), (cpu, "admin")] {
        let update = [
            "scontrol",
            "update",
            &format!("jobid={job}"),
            &format!("qos={qos}"),
        ];
        cluster.user("alice").run(&update)?.refused()?;
    }
    // A CPU job that becomes one with a slice comes into its class's QOS.
    let update = [
        "scontrol",
        "update",
        &format!("jobid={cpu}"),
        "gres=gpu:l40s.4:1",
    ];
    cluster.user("alice").run(&update)?.ok()?;
    assert_eq!(cluster.job_field(cpu, "QOS")?.as_deref(), Some("student"));
    let update = [
        "scontrol",
        "update",
        &format!("jobid={job}"),
        "gres=gpu:l40s:1",
    ];
    cluster.user("alice").run(&update)?.refused()?;
    // carol's own account makes her a researcher; she is in no other.
    let update = [
        "scontrol",
        "update",
        &format!("jobid={job}"),
        "account=research",
    ];
    assert!(!cluster.user("alice").run(&update)?.success());
    Ok(())
}

fn a_changed_policy_changes_the_limits(slurm: Slurm) -> Result<()> {
    let cluster = four_gpus(slurm)?;
    run(&cluster, "alice", HALF)?;
    let waits = stay(&cluster, "alice", &[QUARTER])?;
    cluster.wait_reason(waits, AT_THE_LIMIT)?;
    let policy = POLICY.replace("shards = 2\n", "shards = 3\n");
    assert_ne!(policy, POLICY);
    let script = softmig_tests::site::made(slurm, &policy)?;
    cluster.write("/root/again.sh", &script["softmig-qos.sh"])?;
    cluster.run("root", &["sh", "/root/again.sh"])?.ok()?;
    cluster.wait_job(waits, "RUNNING")
}

fn a_changed_job_stays_in_its_users_class(slurm: Slurm) -> Result<()> {
    let cluster = four_gpus(slurm)?;
    let update = |job: u32, change: &str| {
        let update = ["scontrol", "update", &format!("jobid={job}"), change];
        cluster.user("alice").run(&update)
    };
    let qos = |job: u32| cluster.job_field(job, "QOS");
    let hold = |options: &[&str]| stay(&cluster, "alice", &[&["--hold"], options].concat());

    // A whole node is in the class's QOS, in which it can never start, and stays there.
    let node = hold(&["--exclusive"])?;
    assert_eq!(qos(node)?.as_deref(), Some("student"));
    update(node, "qos=normal")?.refused()?;
    // GPUs for tasks are GPUs.
    let refusal = refused(&cluster, "alice", &["--ntasks-per-gpu=1", "-n1"])?;
    assert!(refusal.contains("[WHOLE_GPU_CLASS]"), "{refusal}");

    // An empty name is Slurm's default, or an error, and never another QOS.
    let quarter = hold(&[QUARTER])?;
    update(quarter, "qos=").ok();
    assert_eq!(qos(quarter)?.as_deref(), Some("student"));
    // A job without GPUs may have any QOS that belongs to no class; with GPUs it comes into the class's.
    let cpu = hold(&["--qos=normal"])?;
    update(cpu, "gres=gpu:l40s.4:1")?.ok()?;
    assert_eq!(qos(cpu)?.as_deref(), Some("student"));
    if slurm >= Slurm::V24_11 {
        // Slurm keeps a list when one of its names is set: none that could lead out of the class comes in.
        for qos in [
            "--qos=student,normal",
            "--qos=normal,student",
            "--qos=student,admin",
            "--qos=normal,admin",
        ] {
            let refusal = refused(&cluster, "alice", &[qos])?;
            assert!(refusal.contains("[LIMIT_QOS]"), "{qos}: {refusal}");
        }
    }
    // After a restart slurmctld has forgotten the names of users, but dave's class is still found.
    let admins = stay(&cluster, "dave", &["--hold"])?;
    cluster.restart_slurmctld()?;
    let change = format!("jobid={admins}");
    let update = ["scontrol", "update", &change, "gres=gpu:l40s:2"];
    cluster.user("dave").run(&update)?.ok()?;
    assert_eq!(qos(admins)?.as_deref(), Some("admin"));
    Ok(())
}

fn a_job_that_grows_by_a_change_is_held_to_its_size(slurm: Slurm) -> Result<()> {
    let policy = POLICY.replace(
        "whole_gpus = 2\n",
        "whole_gpus = 2\nmax_shards_per_job = 4\n",
    );
    assert_ne!(policy, POLICY);
    let cluster = cluster(slurm, &policy, "[\"l40s:4\"]", &[Gpus::l40s(4)])?;
    let refusal = refused(&cluster, "carol", &["--gres=gpu:l40s:2"])?;
    assert!(
        refusal.contains("class researcher may use at most 4 in one job [LIMIT_JOB]"),
        "{refusal}"
    );
    // The sum of a job's tasks is not in its record: Slurm counts it.
    let job = stay(&cluster, "carol", &["--hold", "--ntasks=2"])?;
    let mark = match slurm {
        Slurm::V22_05 => "gres:gpu:l40s:1",
        Slurm::V24_11 | Slurm::V26_05 => "gres/gpu:l40s=1",
    };
    let update = [
        "scontrol",
        "update",
        &format!("jobid={job}"),
        &format!("TresPerTask={mark}"),
    ];
    let changed = cluster.user("carol").run(&update)?;
    if changed.success() {
        cluster
            .run("root", &["scontrol", "release", &job.to_string()])?
            .ok()?;
        std::thread::sleep(std::time::Duration::from_secs(3));
        let state = cluster.job_state(job)?;
        let gpus = cluster.job_gpus(job)?;
        assert!(
            state.as_deref() == Some("PENDING") || gpus.len() < 2,
            "{state:?} {gpus:?}"
        );
    }
    Ok(())
}
