//! The ledger of each job with limits, from its first process to its last.

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_setaffinity};
use softmig_tests::softmig::installed;
use softmig_tests::{Cluster, Node, Slurm, on_each_slurm};

use crate::lifecycle::files::{
    as_slurmd, cancel, conf, environment, left_over, mounts, wait_for_start, wait_until_clean,
};

on_each_slurm!(
    a_limited_jobs_ledger_is_its_users_a_whole_job_has_none,
    the_ledger_has_room_for_each_gpu,
    a_user_who_fills_his_folder_keeps_no_job_from_starting,
    a_requeued_job_begins_with_an_empty_ledger,
    a_second_prolog_keeps_what_running_processes_wrote,
    files_that_users_hold_open_stay_mounted_nowhere,
    a_job_in_a_mount_namespace_of_its_own_has_its_ledger,
    an_epilog_killed_at_any_moment_leaves_nothing_for_good,
);

/// Where a job's ledger is.
fn ledger(job: u32) -> String {
    format!("/var/run/softmig/jobs/{job}/ledger")
}

/// The `stat` of a file on a node.
fn stat(node: &Node, form: &str, path: &str) -> Result<String> {
    let said = node.run_as_root(&["stat", "--format", form, path])?.ok()?;
    Ok(said.trim().to_owned())
}

/// How many bytes of the ledger are not zero.
const USED: &str = "tr -d '\\0' < /var/run/softmig/jobs/$SLURM_JOB_ID/ledger | wc -c";

/// Waits until a job of this user has said something.
fn wait_for_word(cluster: &Cluster, user: &str, job: u32, word: &str) -> Result<()> {
    cluster.wait_for(word, || {
        let said = cluster.user(user).job_output(job)?;
        Ok(said.contains(word).then_some(()))
    })
}

fn a_limited_jobs_ledger_is_its_users_a_whole_job_has_none(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    let script = "cd /var/run/softmig/jobs/$SLURM_JOB_ID\n\
         stat --format '%n %U %g %a %s %b' ledger log\n\
         printf x | dd of=ledger conv=notrunc status=none && echo wrote\n\
         for spoil in 'touch x' 'rm -f ledger' 'mv log ledger' 'ln ledger y' 'mkdir z'; do\n\
         $spoil 2>&1 | grep -o 'Permission denied'\ndone\necho end; sleep 100";
    let job = cluster
        .user("alice")
        .sbatch(&["--gres=gpu:l40s.4:1"], script)?;
    wait_for_word(&cluster, "alice", job, "end")?;
    let said = cluster.user("alice").job_output(job)?;
    let expected = format!(
        "ledger alice 2001 600 69632 136\nlog alice 0 620 0 0\nwrote\n{}end\n",
        "Permission denied\n".repeat(5)
    );
    // Before 23.11 Slurm does not name the group.
    assert_eq!(said.replace("alice root", "alice alice"), expected);
    assert_eq!(conf(node, job)?.job.map(|job| job.get()), Some(job));
    let bob = node.command("bob", &["cat", &ledger(job)]).output()?;
    assert!(bob.refused()?.contains("Permission denied"));
    let whole = cluster
        .user("alice")
        .sbatch(&["--gres=gpu:l40s:1"], "sleep 100")?;
    wait_for_start(&cluster, node, whole)?;
    assert_eq!(mounts(node)?, [format!("/run/softmig/jobs/{job}")]);
    assert!(!node.exists(format!("/var/run/softmig/jobs/{whole}"))?);
    cancel(&cluster, job)?;
    cancel(&cluster, whole)?;
    wait_until_clean(&cluster, node)
}

fn the_ledger_has_room_for_each_gpu(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    for (gpus, size) in [("2", 69632), ("0,2", 135_168), ("0-3", 266_240)] {
        as_slurmd(node, "prolog", &environment(gpus))?;
        let said = stat(node, "%s %b %U", &ledger(500))?;
        assert_eq!(said, format!("{size} {} alice", size / 512));
        as_slurmd(node, "epilog", &environment(gpus))?;
        wait_until_clean(&cluster, node)?;
    }
    Ok(())
}

fn a_user_who_fills_his_folder_keeps_no_job_from_starting(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    let fill = "cd /var/run/softmig/jobs/$SLURM_JOB_ID\n\
         cat /dev/zero >> log 2>/dev/null; cat /dev/zero >> ledger 2>/dev/null\n\
         truncate --size 1T ledger; echo full; sleep 100";
    let mut jobs = Vec::new();
    for _ in 0..3 {
        let job = cluster.user("bob").sbatch(&["--gres=gpu:l40s.4:1"], fill)?;
        wait_for_word(&cluster, "bob", job, "full")?;
        let log = stat(node, "%s", &format!("/var/run/softmig/jobs/{job}/log"))?;
        assert_eq!(log, (2 << 20).to_string());
        jobs.push(job);
    }
    let job = cluster
        .user("alice")
        .sbatch(&["--gres=gpu:l40s.4:1"], "sleep 100")?;
    wait_for_start(&cluster, node, job)?;
    assert_eq!(stat(node, "%s %b", &ledger(job))?, "69632 136");
    let log = format!("/var/run/softmig/jobs/{job}/log");
    node.command("alice", &["sh", "-c", &format!("echo words > {log}")])
        .output()?
        .ok()?;
    jobs.push(job);
    jobs.iter().try_for_each(|job| cancel(&cluster, *job))?;
    wait_until_clean(&cluster, node)?;
    let kept = stat(
        node,
        "%s",
        &format!("/var/log/softmig/{}.log", jobs.first().context("a job")?),
    )?;
    assert_eq!(kept, (64 << 10).to_string());
    Ok(())
}

fn a_requeued_job_begins_with_an_empty_ledger(slurm: Slurm) -> Result<()> {
    // As in `a_requeued_job_has_its_limits_again`.
    let cluster = installed(slurm)
        .slurm_conf("AuthInfo=socket=/cluster/munge/munge.socket,cred_expire=5")
        .start()?;
    let node = cluster.node(0);
    let script = format!(
        "echo run $SLURM_RESTART_COUNT: $({USED})\n\
         printf held | dd of=/var/run/softmig/jobs/$SLURM_JOB_ID/ledger conv=notrunc status=none\n\
         echo then $SLURM_RESTART_COUNT: $({USED})\nsleep 100"
    );
    let options = ["--gres=gpu:l40s.4:1", "--open-mode=append"];
    let job = cluster.user("alice").sbatch(&options, &script)?;
    wait_for_word(&cluster, "alice", job, "then : 4\n")?;
    cluster
        .run("root", &["scontrol", "requeue", &job.to_string()])?
        .ok()?;
    wait_for_word(&cluster, "alice", job, "then 1: 4\n")?;
    let said = cluster.user("alice").job_output(job)?;
    assert!(said.contains("run : 0\n"), "{said}");
    assert!(said.contains("run 1: 0\n"), "{said}");
    cancel(&cluster, job)?;
    wait_until_clean(&cluster, node)
}

fn a_second_prolog_keeps_what_running_processes_wrote(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    let job = cluster
        .user("alice")
        .sbatch(&["--gres=gpu:l40s.4:1"], "sleep 100")?;
    let before = wait_for_start(&cluster, node, job)?;
    let ledger = ledger(job);
    let write = format!("printf held | dd of={ledger} conv=notrunc status=none");
    node.command("alice", &["sh", "-c", &write])
        .output()?
        .ok()?;
    let inode = stat(node, "%d %i", &ledger)?;
    let start = before.start.map_or(String::new(), |start| {
        format!("SLURM_JOB_START_TIME={start}")
    });
    let again = format!(
        "SLURM_JOB_ID={job} SLURM_JOB_UID=2001 SLURM_JOB_GID=2001 SLURM_JOB_GPUS=0 {start} \
         SLURM_JOB_RESTART_COUNT={} SLURM_JOB_COMMENT=softmig=1:l40s:1/4:11366:hard",
        before.run
    );
    as_slurmd(node, "prolog", &again)?;
    assert_eq!(conf(node, job)?, before);
    assert_eq!(stat(node, "%d %i", &ledger)?, inode);
    let held = node.read(&ledger)?.context("no ledger")?;
    assert!(held.starts_with("held"));
    assert_eq!(mounts(node)?.len(), 1);
    cancel(&cluster, job)?;
    wait_until_clean(&cluster, node)
}

fn files_that_users_hold_open_stay_mounted_nowhere(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    let job = cluster
        .user("alice")
        .sbatch(&["--gres=gpu:l40s.4:1"], "sleep 100")?;
    wait_for_start(&cluster, node, job)?;
    // A process of hers outside the job.
    let hold =
        format!("cd /var/run/softmig/jobs/{job}; exec 3>>log 4<>ledger; echo holds; sleep 100");
    let holder = node.command("alice", &["sh", "-c", &hold]).spawn()?;
    cluster.wait_for("the holder", || {
        Ok(holder.stdout()?.contains("holds").then_some(()))
    })?;
    cancel(&cluster, job)?;
    wait_until_clean(&cluster, node)?;
    drop(holder);
    Ok(())
}

/// For this test and all that it starts. Linux 6.18 numbers namespaces from a batch of each processor, and refuses to
/// bind one to a file that has a lower number than the one it is done in: `job_container/tmpfs` does just that.
fn stay_on_one_processor() -> Result<()> {
    let mut first = CpuSet::new();
    first.set(0);
    sched_setaffinity(None, &first).context("staying on one processor")
}

/// `job_container/tmpfs` gives each job a copy of the node's mounts, which later ones do not reach.
fn a_job_in_a_mount_namespace_of_its_own_has_its_ledger(slurm: Slurm) -> Result<()> {
    stay_on_one_processor()?;
    let cluster = installed(slurm)
        .slurm_conf("JobContainerType=job_container/tmpfs")
        .file(
            "/etc/slurm/job_container.conf",
            "AutoBasePath=true\nBasePath=/var/lib/softmig/containers\n",
        )
        .start()?;
    let node = cluster.node(0);
    // As systemd has it.
    node.run_as_root(&["mount", "--make-rshared", "/"])?.ok()?;
    let script = format!(
        "readlink /proc/self/ns/mnt\nstat --format '%d %i %s' {}\necho end; sleep 100",
        ledger(0).replace("/0/", "/$SLURM_JOB_ID/")
    );
    let user = cluster.user("alice");
    let first = user.sbatch(&["--gres=gpu:l40s.4:1"], &script)?;
    wait_for_word(&cluster, "alice", first, "end")?;
    // It starts with the first one's file system among its mounts.
    let second = user.sbatch(&["--gres=gpu:l40s.4:1"], &script)?;
    wait_for_word(&cluster, "alice", second, "end")?;
    let outside = node.run_as_root(&["readlink", "/proc/self/ns/mnt"])?.ok()?;
    for job in [first, second] {
        let said = user.job_output(job)?;
        let inside = stat(node, "%d %i %s", &ledger(job))?;
        assert!(said.ends_with(&format!("\n{inside}\nend\n")), "{said}");
        assert!(inside.ends_with(" 69632"), "{inside}");
        assert!(!said.starts_with(&outside), "{said}");
    }
    cancel(&cluster, first)?;
    cluster.wait_until("the first one's end", || {
        Ok(mounts(node)? == [format!("/run/softmig/jobs/{second}")])
    })?;
    cancel(&cluster, second)?;
    wait_until_clean(&cluster, node)
}

fn an_epilog_killed_at_any_moment_leaves_nothing_for_good(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    let storm = format!(
        "export {}\nfor i in $(seq 1001 1150); do\nexport SLURM_JOB_ID=$i\n/usr/libexec/softmig-prolog || exit 1\n\
         /usr/libexec/softmig-epilog & p=$!\nsleep 0.00$((i % 3))$((i % 7))\nkill -9 $p 2>/dev/null\nwait $p 2>/dev/null\ndone; true",
        environment("0")
    );
    // How fast an epilog is depends on what else the machine does.
    for _ in 0..20 {
        node.run_as_root(&["bash", "-c", &storm])?.ok()?;
        if !left_over(node)?.is_empty() {
            break;
        }
    }
    assert!(!left_over(node)?.is_empty(), "the storm killed no epilog");
    let mop = "for i in $(seq 1001 1150); do SLURM_JOB_ID=$i SLURM_JOB_UID=2001 /usr/libexec/softmig-epilog; done";
    node.run_as_root(&["bash", "-c", mop])?.ok()?;
    wait_until_clean(&cluster, node)
}
