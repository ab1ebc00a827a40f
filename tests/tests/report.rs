//! The report of a job: a line in its output, and a summary in Slurm's accounting.

mod ended;
mod facts;
mod site;

use anyhow::{Context, Result};
use site::{FIGURES, Site};
use softmig_tests::softmig::stage;
use softmig_tests::units::{allowed, called};
use softmig_tests::{Node, Slurm, on_each_slurm, reportseff};

const UNIT: &str = "usr/lib/systemd/system/softmig-notices.service";

on_each_slurm!(
    seams:
    a_comment_in_the_accounting_stays,
    the_accounting_gets_a_summary_that_reportseff_reads,
    the_output_of_sacct_is_read;
    others:
    a_job_says_at_its_end_what_it_used,
    without_a_monitor_the_job_ends_as_ever,
    a_user_sees_the_jobs_of_others_only_by_an_option,
    a_user_is_told_of_an_idle_gpu_in_the_jobs_output,
);

fn a_job_says_at_its_end_what_it_used(slurm: Slurm) -> Result<()> {
    let site = Site::new(slurm, "end_line = true\n")?;
    let job = site.start("srun --overlap true 2>&1; echo words")?;
    let monitor = site.monitor(job, FIGURES)?;
    site.finish(job)?;
    let said = site.cluster.user("alice").job_output(job)?;
    let line = "softmig: this job used 7.9 of 11.1 GiB, 61 % of its quarter, waited 4 %\n";
    // Neither after the step, whose job goes on, nor twice.
    assert_eq!(said, format!("words\n{line}"));
    drop(monitor);
    Ok(())
}

fn the_accounting_gets_a_summary_that_reportseff_reads(slurm: Slurm) -> Result<()> {
    let site = Site::new(slurm, "admin_comment = true\n")?;
    let job = site.start("true")?;
    let monitor = site.monitor(job, FIGURES)?;
    site.finish(job)?;
    if slurm == Slurm::V22_05 {
        let told = "sacctmgr of Slurm 22.05.8 makes an AdminComment lower case";
        site.wait_for_log(told)?;
        assert_eq!(site.admin_comment(job)?, "");
        return Ok(());
    }
    site.wait_for_comment(job, "JS1:")?;
    drop(monitor);
    // 7.9 of 11.1 GiB, and 61 % of the share.
    assert_eq!(reportseff::of(&site.cluster, job)?, [61.0, 71.3]);
    Ok(())
}

fn a_user_is_told_of_an_idle_gpu_in_the_jobs_output(slurm: Slurm) -> Result<()> {
    notices(slurm, "").map(drop)
}

#[test]
fn the_unit_allows_all_that_notices_need() -> Result<()> {
    let site = notices(Slurm::V22_05, "strace -f -qq -o /run/calls ")?;
    let node = site.cluster.node(0);
    its_unit_allows(node, &node.read("/run/calls")?.context("no trace")?)
}

/// Tells a user, with these words before the command. The events are the test's: the monitor's own are tested with it.
fn notices(slurm: Slurm, words: &str) -> Result<Site> {
    let site = Site::new(slurm, "notices = [\"idle\"]\n")?;
    let job = site.start("echo words")?;
    let (node, alice) = (site.cluster.node(0), site.cluster.user("alice"));
    let event = |kind: &str, gpu: u32, details: &str| {
        let line = format!(
            "{{\"schema_version\":1,\"time\":9e9,\"node\":\"n1\",\"event\":\"{kind}\",\"job\":{job},\"gpu\":\"GPU-{gpu}\",\"details\":{details}}}"
        );
        let file = "/var/log/softmig/events.jsonl";
        let append = format!("echo '{line}' >> {file}");
        node.command("root", &["sh", "-c", &append]).output()?.ok()
    };
    let command = format!("{words}softmig events --follow --tell-users");
    let argv: Vec<&str> = command.split(' ').collect();
    let follower = node.command("root", &argv).spawn()?;
    // Slurm throws away a notice to a job that is still starting. Each GPU has notices of its own.
    let mut gpu = 0;
    site.cluster.wait_until("the notice", || {
        gpu += 1;
        // The policy does not name the first.
        event("memory", gpu, "{\"memory_bytes\":99,\"limit_bytes\":100}")?;
        event("idle", gpu, "{\"idle_seconds\":1815.2}")?;
        let said = alice.job_output(job)?;
        Ok(said.contains(" on n1 for 30 min; end the job"))
    })?;
    site.finish(job)?;
    let said = alice.job_output(job)?;
    assert!(!said.contains("holds"), "{said}");
    drop(follower);
    Ok(site)
}

/// Checks that softmig-notices.service allows what was called, also by Slurm's command.
fn its_unit_allows(node: &Node, trace: &str) -> Result<()> {
    let list = node.run_as_root(&["systemd-analyze", "--no-pager", "syscall-filter"])?;
    let list = list.ok()?;
    let mut refused = called(trace);
    assert!(refused.contains("socket"), "{refused:?}");
    let without: Vec<_> = ["@privileged", "@resources"]
        .iter()
        .flat_map(|word| allowed(&list, word))
        .collect();
    let allowed = allowed(&list, "@system-service");
    refused.retain(|call| without.contains(call) || !allowed.contains(call));
    assert!(refused.is_empty(), "{refused:?}");
    let sockets = trace.lines().filter(|line| line.contains(" socket("));
    for socket in sockets {
        let is_allowed = ["(AF_UNIX,", "(AF_INET,", "(AF_INET6,", "(AF_NETLINK,"];
        assert!(
            is_allowed.iter().any(|family| socket.contains(family)),
            "{socket}"
        );
    }
    let unit = std::fs::read_to_string(stage().join(UNIT))?;
    for line in [
        "SystemCallFilter=@system-service",
        "SystemCallFilter=~@privileged @resources",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    ] {
        assert!(unit.lines().any(|own| own == line), "{line}");
    }
    Ok(())
}

fn a_comment_in_the_accounting_stays(slurm: Slurm) -> Result<()> {
    let site = Site::new(slurm, "admin_comment = true\n")?;
    let job = site.start("true")?;
    let comment = ["admincomment=ticket 4711", &format!("jobid={job}")].map(str::to_string);
    let update = ["scontrol", "update", &comment[1], &comment[0]];
    site.cluster.run("root", &update)?.ok()?;
    let monitor = site.monitor(job, FIGURES)?;
    site.finish(job)?;
    site.wait_for_comment(job, "ticket 4711")?;
    // The time that a summary takes.
    std::thread::sleep(std::time::Duration::from_secs(22));
    assert_eq!(site.admin_comment(job)?, "ticket 4711");
    drop(monitor);
    Ok(())
}

fn without_a_monitor_the_job_ends_as_ever(slurm: Slurm) -> Result<()> {
    let site = Site::new(slurm, "end_line = true\nadmin_comment = true\n")?;
    let job = site.start("echo words")?;
    site.finish(job)?;
    site.wait_for_log("the monitor gives no figures")?;
    assert_eq!(site.cluster.user("alice").job_output(job)?, "words\n");
    let states = site.cluster.sinfo_states()?;
    assert_eq!(states, ["idle"]);
    Ok(())
}

fn a_user_sees_the_jobs_of_others_only_by_an_option(slurm: Slurm) -> Result<()> {
    let site = Site::new(slurm, "")?;
    let cluster = &site.cluster;
    for user in ["alice", "bob"] {
        let job = cluster
            .user(user)
            .sbatch(&["--gres=shard:l40s:1"], "sleep 1.5")?;
        cluster.wait_job(job, "COMPLETED")?;
    }
    let users = |viewer: &str, option: &[&str]| -> Result<Vec<String>> {
        let words = [&["softmig", "report", "--by=user", "--csv"], option].concat();
        let said = cluster.run(viewer, &words)?.ok()?;
        let users = said.lines().skip(1).map(|row| row.split(',').next());
        let mut users: Vec<String> = users.flatten().map(str::to_string).collect();
        users.sort();
        Ok(users)
    };
    cluster.wait_until("the accounting has both", || {
        Ok(users("root", &[])? == ["alice", "bob"])
    })?;
    assert_eq!(users("alice", &[])?, ["alice"]);
    assert_eq!(users("alice", &["--user=bob"])?, ["bob"]);
    assert_eq!(users("alice", &["--all"])?, ["alice", "bob"]);
    assert_eq!(users("root", &["--user=alice"])?, ["alice"]);
    Ok(())
}

fn the_output_of_sacct_is_read(slurm: Slurm) -> Result<()> {
    let site = Site::new(slurm, "")?;
    let alice = site.cluster.user("alice");
    for gres in ["--gres=gpu:l40s:1", "--gres=shard:l40s:1"] {
        let job = alice.sbatch(&[gres], "sleep 1.5")?;
        site.cluster.wait_job(job, "COMPLETED")?;
    }
    let mut said = String::new();
    site.cluster.wait_until("the accounting has both", || {
        said = alice.run(&["softmig", "report", "--csv"])?.ok()?;
        let advice = alice.run(&["softmig", "advise", "--csv"])?.ok()?;
        Ok(said.contains("alice,science,normal,1,") && advice.contains(",no_memory,,1,"))
    })?;
    // Without a summary nothing is known but the hours of a quarter.
    let row = said.lines().last().unwrap_or_default();
    let cells: Vec<&str> = row.split(',').collect();
    let hours: f64 = cells[4].parse()?;
    assert!((0.25 / 3600.0..2.0 / 3600.0).contains(&hours), "{row}");
    assert_eq!(
        (cells[5], &cells[7..10]),
        ("1", ["", "", ""].as_slice()),
        "{row}"
    );
    Ok(())
}
