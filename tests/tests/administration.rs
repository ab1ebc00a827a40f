//! Administrators' changes under a running Slurm: the policy, the scripts, the module.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use softmig_tests::softmig::{installed, record, tag};
use softmig_tests::{Cluster, Slurm, on_each_slurm};

on_each_slurm!(
    seams:
    an_error_in_the_sites_script_lets_no_slice_through,
    a_rest_submission_is_decided_like_any_other;
    others:
    a_broken_policy_leaves_the_last_good_one_in_force,
    a_policy_that_has_changed_is_told_with_what_there_is_in_it,
    a_restart_with_a_broken_policy_keeps_the_last_good_one,
    without_any_policy_slices_are_refused_and_the_rest_passes,
    a_changed_policy_holds_for_the_next_job,
    the_sites_own_line_comes_with_each_refusal,
    the_sites_own_script_runs_first_and_its_answer_counts,
    a_script_that_breaks_leaves_the_old_one_in_force,
    a_missing_module_stops_slurmctld_from_starting,
    the_module_can_be_replaced_under_a_running_slurmctld,
);

const POLICY: &str = "/etc/softmig/policy.toml";
const SCRIPT: &str = "/etc/slurm/job_submit.lua";

fn quarter(cluster: &Cluster) -> Result<u32> {
    cluster
        .user("alice")
        .sbatch(&["--hold", "--gres=gpu:l40s.4:1"], "true")
}

/// sbatch's words when slurmctld refuses a quarter.
fn refused_quarter(cluster: &Cluster) -> Result<String> {
    cluster
        .user("alice")
        .try_sbatch(&["--hold", "--gres=gpu:l40s.4:1"], "true")?
        .refused()
}

fn a_broken_policy_leaves_the_last_good_one_in_force(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).cli_filter(false).start()?;
    let held = quarter(&cluster)?.to_string();
    cluster.write(POLICY, "[gpu.l40s]\nmemory = 1\n")?;
    // Whatever reads it first says so.
    cluster.run("root", &["scontrol", "hold", &held])?.ok()?;
    for _ in 0..3 {
        let job = quarter(&cluster)?;
        assert_eq!(
            tag(&cluster, job)?.as_deref(),
            Some("softmig=1:l40s:1/4:11366:hard")
        );
    }
    let log = cluster.slurmctld_log()?;
    let complaint = "/etc/softmig/policy.toml: line 2: [gpu.l40s]: unknown key memory; did you mean memory_mib?; the last good one stays in force";
    assert_eq!(log.matches(complaint).count(), 1, "{log}");
    Ok(())
}

fn a_policy_that_has_changed_is_told_with_what_there_is_in_it(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).cli_filter(false).start()?;
    let policy = cluster.read(POLICY)?.context("no policy")?;
    let gate = "[[gate]]\nwhat = \"whole\"\nreservation = [\"course\"]\n";
    cluster.write(POLICY, &format!("{policy}\n{gate}"))?;
    quarter(&cluster)?;
    quarter(&cluster)?;
    // Half of it, as an editor may leave it for a moment: a good policy by itself.
    cluster.write(POLICY, &policy)?;
    quarter(&cluster)?;
    let log = cluster.slurmctld_log()?;
    let lines = log.lines().filter(|line| line.contains(" is in force: "));
    let lines: Vec<&str> = lines.collect();
    let lost = "0 [[gate]], 0 [[reservable]], 0 [[route]], 0 [[nodes]]; before: ";
    // The first is of slurmctld's start.
    ensure!(lines.len() == 3, "{log}");
    ensure!(
        lines[0].contains("0 [[gate]]") && !lines[0].contains("before"),
        "{log}"
    );
    let gained = "1 [[gate]], 0 [[reservable]], 0 [[route]], 0 [[nodes]]; before: ";
    ensure!(lines[1].contains(gained), "{log}");
    ensure!(
        lines[2].contains(lost) && lines[2].contains("1 [[gate]]"),
        "{log}"
    );
    Ok(())
}

fn a_restart_with_a_broken_policy_keeps_the_last_good_one(slurm: Slurm) -> Result<()> {
    let gate = "[[gate]]\nwhat = \"whole\"\nreservation = [\"course\"]\n";
    let cluster = installed(slurm).cli_filter(false).start()?;
    let policy = cluster.read(POLICY)?.context("no policy")?;
    cluster.write(POLICY, &format!("{policy}\n{gate}"))?;
    quarter(&cluster)?;
    let whole = || -> Result<String> {
        let alice = cluster.user("alice");
        alice
            .try_sbatch(&["--hold", "--gres=gpu:l40s:1"], "true")?
            .refused()
    };
    // Mistyped, cut off at once, and gone.
    for broken in [Some("[gpu.l40s]\nmemory = 1\n"), Some(""), None] {
        match broken {
            Some(text) => cluster.write(POLICY, text)?,
            None => drop(cluster.run("root", &["rm", POLICY])?.ok()?),
        }
        cluster.restart_slurmctld()?;
        let job = quarter(&cluster)?;
        assert_eq!(
            tag(&cluster, job)?.as_deref(),
            Some("softmig=1:l40s:1/4:11366:hard")
        );
        let refusal = whole()?;
        assert!(refusal.contains("[GATE_NO_RESERVATION]"), "{refusal}");
    }
    let log = cluster.slurmctld_log()?;
    let line = "did you mean memory_mib?; the last good one is in force: /cluster/state/softmig-policy.toml";
    assert_eq!(log.matches(line).count(), 1, "{log}");
    Ok(())
}

fn without_any_policy_slices_are_refused_and_the_rest_passes(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm)
        .cli_filter(false)
        .file(POLICY, "broken")
        .start()?;
    let refusal = refused_quarter(&cluster)?;
    assert!(refusal.contains("[POLICY_UNREADABLE]"), "{refusal}");
    let whole = cluster
        .user("alice")
        .sbatch(&["--hold", "--gres=gpu:l40s:1"], "true")?;
    assert_eq!(tag(&cluster, whole)?.as_deref(), Some("softmig=1:whole"));
    cluster.user("alice").sbatch(&["--hold"], "true")?;
    Ok(())
}

fn a_changed_policy_holds_for_the_next_job(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let before = cluster
        .user("alice")
        .sbatch(&["--hold", "--gres=gpu:l40s.4:1"], "sleep 100")?;
    let policy = cluster.read(POLICY)?.context("no policy")?;
    cluster.write(
        POLICY,
        &policy.replace("reserved_mib = 604", "reserved_mib = 1004"),
    )?;
    let after = quarter(&cluster)?;
    assert_eq!(
        tag(&cluster, before)?.as_deref(),
        Some("softmig=1:l40s:1/4:11366:hard")
    );
    assert_eq!(
        tag(&cluster, after)?.as_deref(),
        Some("softmig=1:l40s:1/4:11266:hard")
    );
    // The job gets what it was promised, not what the policy says by now.
    cluster
        .run("root", &["scontrol", "release", &before.to_string()])?
        .ok()?;
    let node = cluster.node(0);
    let conf = cluster.wait_for("the promised limits", || {
        node.read(format!("/var/run/softmig/{before}.conf"))
    })?;
    assert!(
        conf.starts_with("CUDA_DEVICE_MEMORY_LIMIT=11366M\n"),
        "{conf}"
    );
    Ok(())
}

fn the_sites_own_line_comes_with_each_refusal(slurm: Slurm) -> Result<()> {
    let messages =
        "[messages]\nany = \"Ask gpu-help@example.org\"\nSLICE_SIZE = \"Quarters only, 100%\"\n";
    for cli_filter in [true, false] {
        let cluster = installed(slurm).cli_filter(cli_filter).start()?;
        let policy = cluster.read(POLICY)?.context("no policy")?;
        cluster.write(POLICY, &policy.replace("[messages]\n", messages))?;
        let refused = |option: &str| {
            let alice = cluster.user("alice");
            alice.try_sbatch(&["--hold", option], "true")?.refused()
        };
        let size = refused("--gres=gpu:l40s.3:1")?;
        assert!(size.contains("softmig: Quarters only, 100%"), "{size}");
        let count = refused("--gres=gpu:l40s.4:2")?;
        assert!(
            count.contains("softmig: Ask gpu-help@example.org"),
            "{count}"
        );
        quarter(&cluster)?;
    }
    Ok(())
}

/// Puts a site's own functions before softmig's two lines.
fn with_site_script(cluster: &Cluster, site: &str) -> Result<()> {
    let ours = cluster.read(SCRIPT)?.context("no script")?;
    cluster.write(SCRIPT, &format!("{site}\n{ours}"))?;
    cluster.restart_slurmctld()
}

fn the_sites_own_script_runs_first_and_its_answer_counts(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).cli_filter(false).start()?;
    with_site_script(
        &cluster,
        "function slurm_job_submit(job, parts, uid)\n\
         if job.name == 'refuse' then return 2000 end\n\
         if job.name == 'half' then job.tres_per_node = (string.gsub(job.tres_per_node, 'l40s:1', 'l40s.2:1')) end\n\
         return slurm.SUCCESS\nend\n\
         function slurm_job_modify() return slurm.SUCCESS end",
    )?;
    let user = cluster.user("alice");
    let refusal = user
        .try_sbatch(&["-Jrefuse", "--gres=gpu:l40s.4:1"], "true")?
        .refused()?;
    assert!(refusal.contains("nvalid partition"), "{refusal}");
    let job = user.sbatch(&["--hold", "-Jhalf", "--gres=gpu:l40s:1"], "true")?;
    assert_eq!(
        tag(&cluster, job)?.as_deref(),
        Some("softmig=1:l40s:2/4:22732:hard")
    );
    Ok(())
}

fn an_error_in_the_sites_script_lets_no_slice_through(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).cli_filter(false).start()?;
    with_site_script(
        &cluster,
        "function slurm_job_submit() error('100% broken') end\nfunction slurm_job_modify() return 0 end",
    )?;
    let refusal = refused_quarter(&cluster)?;
    assert!(refusal.contains("softmig could not process"), "{refusal}");
    let shards = cluster
        .user("alice")
        .try_sbatch(&["--gres=shard:l40s:4"], "true")?;
    assert!(!shards.success());
    // Other jobs fare as they would without softmig: only the newest lets none of them pass.
    let other = cluster.user("alice").try_sbatch(&["--hold"], "true")?;
    assert_eq!(other.success(), slurm < Slurm::V26_05, "{other}");
    assert!(cluster.slurmctld_log()?.contains("100% broken"));
    Ok(())
}

fn a_script_that_breaks_leaves_the_old_one_in_force(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    quarter(&cluster)?;
    // Slurm compares times of whole seconds.
    std::thread::sleep(Duration::from_millis(1100));
    cluster.write(SCRIPT, "this is not Lua")?;
    let job = quarter(&cluster)?;
    assert_eq!(cluster.job_field(job, "NumNodes")?.as_deref(), Some("1-1"));
    Ok(())
}

fn a_missing_module_stops_slurmctld_from_starting(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    cluster
        .run("root", &["rm", "-r", "/usr/lib/softmig/lua"])?
        .ok()?;
    cluster.stop_slurmctld()?;
    assert!(cluster.start_slurmctld().is_err());
    assert!(
        cluster
            .slurmctld_log()?
            .contains("cannot create job_submit context")
    );
    Ok(())
}

fn the_module_can_be_replaced_under_a_running_slurmctld(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    quarter(&cluster)?;
    let replace = "cd /usr/lib/softmig/lua/5.1 && cp softmig_job_submit.so new && mv new softmig_job_submit.so && touch /etc/slurm/job_submit.lua";
    std::thread::sleep(Duration::from_millis(1100));
    cluster.run("root", &["bash", "-c", replace])?.ok()?;
    let before = cluster.slurmctld_pid()?;
    quarter(&cluster)?;
    assert_eq!(cluster.slurmctld_pid()?, before);
    cluster.restart_slurmctld()?;
    quarter(&cluster)?;
    Ok(())
}

fn a_rest_submission_is_decided_like_any_other(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let user = cluster.user("alice");
    let (field, mark) = match slurm {
        Slurm::V22_05 => ("gres", "gres:"),
        Slurm::V24_11 | Slurm::V26_05 => ("tres_per_node", "gres/"),
    };
    {
        let job = user
            .rest_submit(
                &json!({ field: format!("{mark}gpu:l40s.4:1") }),
                "sleep 100",
            )?
            .job()?;
        assert_eq!(
            tag(&cluster, job)?.as_deref(),
            Some("softmig=1:l40s:1/4:11366:hard")
        );
        cluster.wait_job(job, "RUNNING")?;
        let held = record(&cluster, job)?;
        assert!(held.contains("shard:l40s:1"), "{held}");
    }
    for request in ["gpu:l40s.3:1", "shard:9", "gpu:l40s.4:1:1", "xgres:shard:9"] {
        let reply = user.rest_submit(&json!({ field: format!("{mark}{request}") }), "true")?;
        assert!(reply.job().is_err(), "{request}: {reply}");
    }
    Ok(())
}
