//! `softmig node`: what it shows, and the switch, also under running jobs from before softmig came.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use softmig_policy::node::job_conf::JobConf;
use softmig_tests::softmig::{installed, stage};
use softmig_tests::{Cluster, Machine, Node, Output, Root, Slurm, on_each_slurm};

on_each_slurm!(
    jobs_from_before_keep_their_gpus_when_the_node_enforces,
    without_slurmctld_the_switch_waits_for_jobs_without_conf,
);

const CONF: &str = "/etc/softmig/node.conf";

fn machine() -> Result<Machine> {
    Root::new(Slurm::V22_05).stage(stage()).start()
}

fn softmig(machine: &Machine, user: &str, words: &[&str]) -> Result<Output> {
    let words = [&["softmig", "node"], words].concat();
    machine.command(user, &words).output()
}

fn shown(machine: &Machine, user: &str) -> Result<String> {
    softmig(machine, user, &[])?.ok()
}

#[test]
fn the_mode_is_shown_to_all_and_switched_by_root() -> Result<()> {
    let machine = machine()?;
    assert!(
        shown(&machine, "alice")?
            .contains("/etc/softmig/node.conf does not exist, so softmig does nothing here")
    );
    let refused = softmig(&machine, "alice", &["off"])?.refused()?;
    assert!(refused.contains("try it with sudo"), "{refused}");
    for mode in ["enforce", "observe", "off"] {
        let said = softmig(&machine, "root", &[mode])?.ok()?;
        assert!(
            said.contains(&format!(
                "the mode is {mode}, for processes started from now on"
            )),
            "{said}"
        );
        let said = shown(&machine, "alice")?;
        assert!(
            said.contains(&format!("mode:      {mode}, since 20")),
            "{said}"
        );
        assert!(
            said.contains("not loaded; 'softmig install --hook' changes that"),
            "{said}"
        );
    }
    let before = machine.path(CONF)?.metadata()?.modified()?;
    let said = softmig(&machine, "root", &["off"])?.ok()?;
    assert!(said.contains("was off already"), "{said}");
    let after = machine.path(CONF)?.metadata()?.modified()?;
    assert_eq!(after, before);
    assert!(!softmig(&machine, "root", &["Enforce"])?.success());
    assert!(!softmig(&machine, "root", &["--anyway"])?.success());
    Ok(())
}

#[test]
fn own_lines_stay_and_unknown_lines_become_comments() -> Result<()> {
    let machine = machine()?;
    machine.write(
        CONF,
        "# mine\nSOFTMIG_IDENTITY=env\nCONTEXT_MIB=518\nSOFTMIG_NODE=enforce\n",
    )?;
    assert!(shown(&machine, "alice")?.contains("known by their environment"));
    softmig(&machine, "root", &["observe"])?.ok()?;
    assert_eq!(
        machine.read(CONF)?.unwrap_or_default(),
        "# mine\nSOFTMIG_IDENTITY=env\nCONTEXT_MIB=518\nSOFTMIG_NODE=observe\n"
    );
    machine.write(CONF, "SOFTMIG_NODE=enfroce\nrubbish\n")?;
    let refused = softmig(&machine, "alice", &[])?.refused()?;
    assert!(
        refused.contains("mend it by hand, or with 'softmig node MODE': SOFTMIG_NODE is none of"),
        "{refused}"
    );
    let mended = softmig(&machine, "root", &["off"])?;
    assert!(mended.stderr.contains("a comment now: rubbish"), "{mended}");
    assert!(shown(&machine, "alice")?.contains("mode:      off"));
    // A file that others can write to is still switched, and then is root's alone.
    machine
        .command("root", &["chmod", "666", CONF])
        .output()?
        .ok()?;
    softmig(&machine, "root", &["enforce"])?.ok()?;
    assert_eq!(owner(&machine)?, "root 644\n");
    Ok(())
}

fn owner(machine: &Machine) -> Result<String> {
    machine
        .command("root", &["stat", "-c", "%U %a", CONF])
        .output()?
        .ok()
}

#[test]
fn a_file_that_the_library_refuses_is_shown_and_can_be_switched() -> Result<()> {
    let machine = machine()?;
    softmig(&machine, "root", &["off"])?.ok()?;
    let long = format!("yes '# x' | head -c 20000 >> {CONF}");
    for (setup, why) in [
        (&*format!("chmod 664 {CONF}"), "written to by others"),
        (&*format!("chown alice {CONF}"), "another user than root"),
        (
            &*format!("mv {CONF} /root; ln -s /root/node.conf {CONF}"),
            "a link",
        ),
        (&*format!("rm {CONF}; mkfifo {CONF}"), "not a plain file"),
        (&*format!("rm {CONF}; mkdir {CONF}"), "not a plain file"),
        (&*long, "more than 16383 bytes"),
    ] {
        machine
            .command("root", &["sh", "-c", setup])
            .output()?
            .ok()?;
        let refused = softmig(&machine, "root", &[])?.refused()?;
        assert!(refused.contains(why), "{setup}: {refused}");
        // Not the same mode as before, whatever the file says.
        let said = softmig(&machine, "root", &["off"])?.ok()?;
        assert!(said.contains("the mode is off, for"), "{setup}: {said}");
        assert_eq!(owner(&machine)?, "root 644\n", "{setup}");
        assert!(shown(&machine, "alice")?.contains("mode:      off"));
    }
    Ok(())
}

/// Root's way out must not wait for a slurmctld that does not answer.
#[test]
fn off_does_not_wait_for_an_enforce_that_asks_slurmctld() -> Result<()> {
    let machine = machine()?;
    let run = |script: &str| {
        machine
            .command("root", &["sh", "-c", script])
            .output()?
            .ok()
    };
    run("cd /usr/bin; rm -f squeue scontrol
        printf '#!/bin/sh\nprintf \"7|2001|2001|0|\\n8|2001|2001|0|\\n9|2001|2001|0|\\n\"\n' > squeue
        printf '#!/bin/sh\necho >> /root/asked\nexec sleep 60\n' > scontrol
        chmod 755 squeue scontrol")?;
    softmig(&machine, "root", &["observe"])?.ok()?;
    let enforce = machine
        .command("root", &["sh", "-c", "softmig node enforce 2> /root/said"])
        .spawn()?;
    run("for i in $(seq 2000); do test -s /root/asked && exit 0; sleep 0.05; done; exit 1")?;
    let began = Instant::now();
    // The switch does not judge the loader's list.
    run("ln -s /etc/other /etc/ld.so.preload; touch /etc/other")?;
    let off = softmig(&machine, "root", &["off"])?;
    assert!(off.success(), "{off}");
    assert!(
        off.stderr
            .contains("whether the library is loaded is not known"),
        "{off}"
    );
    assert!(began.elapsed() < Duration::from_secs(3), "{off}");
    run("for i in $(seq 2000); do grep -q 7,.8,.9 /root/said && exit 0; sleep 0.05; done; exit 1")?;
    drop(enforce);
    // After one question without an answer, scontrol is not asked again.
    assert_eq!(run("cat /root/asked")?, "\n");
    Ok(())
}

#[test]
fn the_logs_of_jobs_are_counted_and_trusted_in_nothing() -> Result<()> {
    let machine = machine()?;
    softmig(&machine, "root", &["observe"])?.ok()?;
    let line = |pid: u32, what: &str| {
        format!("2099-11-21T06:45:40Z softmig[{pid}] job 7: would refuse {what}\n")
    };
    let setup = "set -e; cd /var/run; mkdir -p softmig/jobs; cd softmig/jobs; mkdir 7 8 9 10 11
        for job in 7 8 9 10 11; do touch $job/log; done; chown alice */log
        rm 8/log 9/log; ln -s /etc/shadow 8/log; mkfifo 9/log; chmod 777 8 9
        printf 'would refuse \\033[2J\\n x would refuse \\033[31mred\\033[0m (5)\\n' > 10/log
        truncate -s 40G 11/log
        mkdir -p /var/log/softmig";
    machine
        .command("root", &["sh", "-c", setup])
        .output()?
        .ok()?;
    machine.write(
        "/var/run/softmig/jobs/7/log",
        &[
            line(1, "cuInit: no conf for this job (1)"),
            line(1, "cuInit: no conf for this job (10)"),
        ]
        .concat(),
    )?;
    machine.write(
        "/var/log/softmig/6.log",
        &line(1, "cuInit: no conf for this job (1)"),
    )?;
    let ran = machine.command("root", &["softmig", "node"]).output()?;
    let said = ran.ok()?;
    assert!(
        said.contains("       11+ times in 2 jobs: cuInit: no conf for this job\n"),
        "{said}"
    );
    assert!(
        said.contains("        5+ times in 1 job: ?[31mred?[0m\n"),
        "{said}"
    );
    assert!(
        said.contains("2 logs could not be read, such as: /var/run/softmig/jobs/"),
        "{said}"
    );
    assert!(!said.contains('\x1b'), "{said}");
    // Others see that there is something they may not read.
    assert!(shown(&machine, "bob")?.contains("logs could not be read"));
    Ok(())
}

/// Limits of a job on the node, or `None` without a conf.
fn conf(node: &Node, job: u32) -> Result<Option<JobConf>> {
    let text = node.read(format!("/var/run/softmig/{job}.conf"))?;
    text.map(|text| {
        JobConf::parse(text.as_bytes()).map_err(|error| anyhow::anyhow!("{error}: {text}"))
    })
    .transpose()
}

fn switch(node: &Node, words: &[&str]) -> Result<Output> {
    node.run_as_root(&[&["softmig", "node"], words].concat())
}

/// A job of alice's that runs when this returns. Its name says what a forger would write.
fn running(cluster: &Cluster, options: &[&str]) -> Result<u32> {
    let name = "--job-name=x UserId=root(0) Nodes=n1 GRES=gpu:4 softmig=1:whole";
    let job = cluster
        .user("alice")
        .sbatch(&[&[name], options].concat(), "sleep 100")?;
    cluster.wait_job(job, "RUNNING")?;
    // Its first step.
    let node = cluster.node(0);
    cluster.wait_until("the job's step", || {
        let steps = node.run_as_root(&["pgrep", "-f", &format!("slurmstepd: .{job}.batch")])?;
        Ok(steps.success())
    })?;
    Ok(job)
}

fn jobs_from_before_keep_their_gpus_when_the_node_enforces(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).prolog(false).epilog(false).start()?;
    let node = cluster.node(0);
    let whole = running(&cluster, &["--gres=gpu:l40s:2"])?;
    let slice = running(&cluster, &["--gres=gpu:l40s.4:1"])?;
    let none = running(&cluster, &[])?;
    for job in [whole, slice, none] {
        assert_eq!(conf(node, job)?, None);
    }
    let said = switch(node, &["enforce"])?.ok()?;
    assert!(
        said.contains(&format!(
            "job {whole} ran without a conf; it has one now: all of its GPUs"
        )),
        "{said}"
    );
    assert!(
        said.contains(&format!(
            "job {slice} ran without a conf; it has one now: 1/4 of one l40s, 11366 MiB"
        )),
        "{said}"
    );
    let of_whole = conf(node, whole)?.context("no conf of the whole GPUs")?;
    assert_eq!((of_whole.uid, of_whole.limits), (2001, None));
    let of_slice = conf(node, slice)?.context("no conf of the slice")?;
    assert_eq!(of_slice.limits.context("no limits")?.memory_mib(), 11366);
    assert!(node.exists(format!("/var/run/softmig/uid/2001/{slice}"))?);
    assert_eq!(conf(node, none)?, None);
    // Once more there is nothing left to do.
    let said = switch(node, &["enforce"])?.ok()?;
    assert!(
        !said.contains("ran without a conf") && said.contains("was enforce already"),
        "{said}"
    );
    Ok(())
}

fn without_slurmctld_the_switch_waits_for_jobs_without_conf(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).prolog(false).epilog(false).start()?;
    let node = cluster.node(0);
    switch(node, &["observe"])?.ok()?;
    let job = running(&cluster, &["--gres=gpu:l40s:1"])?;
    cluster.kill_slurmctld()?;
    let refused = switch(node, &["enforce"])?.refused()?;
    assert!(refused.contains(&format!("): {job}; ")), "{refused}");
    assert!(
        refused.contains("try again when slurmctld answers"),
        "{refused}"
    );
    let conf_text = |node: &Node| node.read(CONF);
    assert!(
        conf_text(node)?
            .context("no node.conf")?
            .contains("SOFTMIG_NODE=observe")
    );
    let said = switch(node, &["enforce", "--anyway"])?;
    assert!(
        said.stderr
            .contains("would see none in the processes that they start"),
        "{said}"
    );
    assert!(
        conf_text(node)?
            .context("no node.conf")?
            .contains("SOFTMIG_NODE=enforce")
    );
    assert_eq!(conf(node, job)?, None);
    // Without it the switch still knows which jobs have a conf, and that there are no others.
    switch(node, &["observe"])?.ok()?;
    node.write(
        format!("/var/run/softmig/{job}.conf"),
        "SOFTMIG_UID=2001\nSOFTMIG_MODE=whole\nSOFTMIG_GPUS=\n",
    )?;
    switch(node, &["enforce"])?.ok()?;
    Ok(())
}

#[test]
fn softmig_node_shows_the_findings_of_the_library() -> Result<()> {
    let cluster = installed(Slurm::V22_05).programs().start()?;
    let node = cluster.node(0);
    node.start_driver()?;
    node.run_as_root(&["softmig", "install", "--hook"])?.ok()?;
    let user = cluster.user("alice");
    let job = user.sbatch(&["--gres=gpu:l40s.4:1"], "sleep 100")?;
    let path = format!("/var/run/softmig/{job}.conf");
    cluster.wait_until("the job's conf", || node.exists(&path))?;
    node.run_as_root(&["rm", &path])?.ok()?;
    let step = format!("--jobid={job}");
    user.srun(&[&step, "--overlap", "/opt/programs/linked"])?
        .ok()?;
    let said = node.run_as_root(&["softmig", "node"])?.ok()?;
    assert!(
        said.contains("would have refused, by the logs of 1 job "),
        "{said}"
    );
    assert!(said.contains("1+ times in 1 job: cuInit: "), "{said}");
    Ok(())
}
