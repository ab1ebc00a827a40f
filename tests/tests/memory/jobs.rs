//! Real jobs: the processes and steps of a job share one slice, other jobs have their own, and the job's log gives the
//! reason for a refusal. Each test has a node of its own.

use anyhow::{Context, Result, ensure};
use softmig_fake_node::{Gpu, MIB};
use softmig_tests::programs::{FOLDER, LIBRARY, PRELOAD};
use softmig_tests::softmig::installed;
use softmig_tests::{Gpus, Slurm, on_each_slurm};

use crate::memory::stand::number;
use crate::memory::ways::OUT_OF_MEMORY;
use crate::monitor::ending::escaped;

use self::site::{Job, STEP, site};

mod site;

on_each_slurm!(
    seams:
    two_jobs_on_one_gpu_have_a_slice_each;
    others:
    the_steps_of_a_job_share_its_slice,
    a_jobs_first_refusal_is_one_line_in_its_log_and_for_its_user,
    a_job_learns_that_others_hold_the_memory_of_its_slice,
    unrequested_messages_harm_no_program,
    an_observing_node_refuses_no_memory_and_says_so,
    a_job_with_a_whole_gpu_may_have_all_of_it,
    no_variable_gives_a_process_more,
    memory_of_a_killed_step_is_free_for_the_next_one,
    a_requeued_job_has_its_whole_slice_again,
    a_spoilt_ledger_harms_its_own_job_alone,
    programs_with_other_rights_share_the_slice,
    another_user_in_a_job_gets_no_memory_and_learns_why,
    a_storm_in_a_job_ends_with_its_account_exact,
);

fn the_steps_of_a_job_share_its_slice(slurm: Slurm) -> Result<()> {
    let job = Job::start(slurm, 0, "alice", 1)?;
    let all = job.fill("")?;
    ensure!((job.room() - 1..=job.room()).contains(&all), "{all}");
    let (first, took) = job.hold(100, "/tmp/over")?;
    ensure!(took == 100, "{took}");
    // The second context, and the guess for the first: its real use has not been measured yet.
    let beside = 100 + Gpu::l40s(0).context / STEP;
    let rest = job.fill("")?;
    ensure!(
        (all - beside - 4..=all - beside).contains(&rest),
        "{rest} of {all}"
    );
    // Two processes of one step, and a task of another.
    let both = "./takes cuMemCreate 33554432 until 50 /tmp/over & ./takes cuMemAlloc_v2 33554432 until 50 /tmp/over; wait";
    let second = job.begin(both)?;
    second.hears("holding: ")?;
    job.touch("/tmp/over")?;
    let said = second.end()?;
    ensure!(said.numbers("took", "blocks")? == [50, 50], "{said:#?}");
    first.end()?;
    ensure!(job.fill("")? == all);
    job.check_peak(1)?;
    job.end()
}

fn two_jobs_on_one_gpu_have_a_slice_each(slurm: Slurm) -> Result<()> {
    let alices = Job::start(slurm, 1, "alice", 1)?;
    let bobs = Job::start(slurm, 1, "bob", 1)?;
    let (first, took) = alices.hold(0, "/tmp/over")?;
    let (second, other) = bobs.hold(0, "/tmp/over")?;
    for took in [took, other] {
        ensure!(
            (alices.room() - 1..=alices.room()).contains(&took),
            "{took}"
        );
    }
    // Alice's second process finds no room for a context, and bob's slice is not hers to take.
    let said = alices.run("./takes cuMemAlloc_v2 33554432 fill")?;
    ensure!(said.text("start")? == "2", "{said:#?}");
    alices.touch("/tmp/over")?;
    first.end()?;
    second.end()?;
    for process in alices.driver().history(0)? {
        ensure!(process.peak <= alices.limit, "{process:?}");
    }
    alices.check_peak(2)?;
    alices.end()?;
    bobs.end()
}

fn a_jobs_first_refusal_is_one_line_in_its_log_and_for_its_user(slurm: Slurm) -> Result<()> {
    let job = Job::start(slurm, 2, "alice", 1)?;
    let before = job.run("./takes cuMemAlloc_v2 33554432 hold 10")?;
    ensure!(before.number("took", "blocks")? == 10, "{before:#?}");
    ensure!(job.log()?.is_empty(), "{}", job.log()?);
    let said = job.run("./takes cuMemAlloc_v2 33554432 fill")?;
    let on_stderr = said.stderr.clone();
    ensure!(said.lines.len() == 9, "{said:#?}");
    let log = job.log()?;
    let held = said.number("took", "blocks")? * 32 + Gpu::l40s(0).context / MIB;
    let expected = format!(
        " job {}: out of memory on GPU 0: cuMemAlloc asked for 32 MiB, the job holds {held} MiB (this process {held} MiB) \
         and may hold {} MiB; for more, ask for gpu:l40s.2:1\n",
        job.id,
        job.limit / MIB
    );
    ensure!(log.lines().count() == 1, "{log}");
    ensure!(
        log.split_once(']')
            .is_some_and(|(_, text)| text == expected),
        "{log}{expected}"
    );
    ensure!(on_stderr == log, "{on_stderr}{log}");
    // Once is enough, also for other processes.
    let said =
        job.run("./takes cuMemCreate 33554432 fill; ./takes cuMemAllocAsync 33554432 fill")?;
    ensure!(said.stderr.is_empty(), "{said:#?}");
    ensure!(job.log()? == log, "{}", job.log()?);
    // Users get more if they ask for it: the first refusal of each process, on standard error too.
    let said = job.run("SOFTMIG_LOG_LEVEL=3 ./takes cuMemCreate 33554432 fill")?;
    ensure!(
        said.stderr
            .contains("out of memory on GPU 0: cuMemCreate asked for"),
        "{said:#?}"
    );
    ensure!(said.lines.len() == 9, "{said:#?}");
    ensure!(job.log()?.lines().count() >= 2, "{}", job.log()?);
    job.end()
}

fn a_job_learns_that_others_hold_the_memory_of_its_slice(slurm: Slurm) -> Result<()> {
    let job = Job::start(slurm, 12, "alice", 2)?;
    // Of a program that loads no library, as a container of root's may.
    let holds = escaped("./takes cuMemAlloc_v2 33554432 until 850 /tmp/gone");
    let holder = job.begin_outside(&holds)?;
    holder.hears("holding: ")?;
    for is_first in [true, false] {
        let said = job.run("./takes cuMemAlloc_v2 33554432 fill")?;
        ensure!(said.number("took", "then")? == OUT_OF_MEMORY, "{said:#?}");
        let took = said.number("took", "blocks")?;
        ensure!(took < job.room() - 100, "{said:#?}");
        let is_told = said
            .stderr
            .contains("MiB free: others hold memory beyond their slices");
        ensure!(is_told == is_first, "{said:#?}");
    }
    let log = job.log()?;
    ensure!(
        log.contains(" GPU 0 is full: cuMemAlloc asked for 32 MiB"),
        "{log}"
    );
    // Of a refusal by the driver a larger slice is no way out.
    ensure!(!log.contains("for more, ask for"), "{log}");
    job.touch("/tmp/gone")?;
    holder.end()?;
    let said = job.run("./takes cuMemAlloc_v2 33554432 fill")?;
    ensure!(
        said.number("took", "blocks")? >= job.room() - 1,
        "{said:#?}"
    );
    job.end()
}

fn unrequested_messages_harm_no_program(slurm: Slurm) -> Result<()> {
    let fill = "./takes cuMemAlloc_v2 33554432 fill";
    let full = "mkfifo $HOME/full; exec 7<>$HOME/full; dd if=/dev/zero of=$HOME/full bs=4096 oflag=nonblock 2>/dev/null";
    for (shards, redirect, kept, larger) in [
        // The program's own data, under the number of the standard error that it closed.
        (1, "2>$HOME/data".to_owned(), "", "gpu:l40s.2:1"),
        (1, "2>&-".to_owned(), "", "gpu:l40s.2:1"),
        // A half's next larger is the whole GPU. A file that is only appended to may be a log.
        (2, "2>>$HOME/data".to_owned(), "gpu:l40s:1", "gpu:l40s:1"),
        // A full pipe would stop it.
        (1, "2>&7".to_owned(), "", "gpu:l40s.2:1"),
    ] {
        let job = Job::start(slurm, 2, "alice", shards)?;
        let script = format!(
            "rm -f $HOME/data $HOME/full; touch $HOME/data; {full}; {fill} {redirect}; cat $HOME/data >&2"
        );
        let said = job.run(&script)?;
        ensure!(said.number("took", "then")? == OUT_OF_MEMORY, "{said:#?}");
        let is_as_expected = match kept {
            "" => said.stderr.is_empty(),
            words => said.stderr.contains(words),
        };
        ensure!(is_as_expected, "{redirect}: {said:#?}");
        let log = job.log()?;
        ensure!(
            log.ends_with(&format!("; for more, ask for {larger}\n")),
            "{log}"
        );
        job.end()?;
    }
    Ok(())
}

fn an_observing_node_refuses_no_memory_and_says_so(slurm: Slurm) -> Result<()> {
    // node.conf is one file for all nodes here, so this test has a cluster of its own.
    let cluster = installed(slurm)
        .programs()
        .gpus([Gpus::l40s(1)])
        .file("/etc/softmig/node.conf", "SOFTMIG_NODE=observe\n")
        .file(PRELOAD, format!("{LIBRARY}\n"))
        .start()?;
    let driver = cluster.node(0).start_driver()?;
    let script = format!(
        "{FOLDER}/takes cuMemAlloc_v2 33554432 hold 1000\ncat /var/run/softmig/jobs/$SLURM_JOB_ID/log"
    );
    let srun = ["--gres=gpu:l40s.4:1", "bash", "-c", &script];
    let output = cluster.user("alice").srun(&srun)?;
    ensure!(!output.stderr.contains("out of memory"), "{output}");
    let said = output.ok()?;
    ensure!(said.contains("took: blocks=1000 then=0"), "{said}");
    let words = "would be out of memory on GPU 0: cuMemAlloc asked for 32 MiB, the job holds ";
    ensure!(said.matches(words).count() == 1, "{said}");
    ensure!(driver.peak(0) > 1000 * STEP, "{}", driver.peak(0));
    // An administrator reads this before the node enforces.
    let told = cluster.node(0).run_as_root(&["softmig", "node"])?.ok()?;
    let counted = "1+ times in 1 job: cuMemAlloc: out of memory";
    ensure!(told.contains(counted), "{told}");
    Ok(())
}

fn a_job_with_a_whole_gpu_may_have_all_of_it(slurm: Slurm) -> Result<()> {
    let job = Job::start(slurm, 3, "alice", 4)?;
    let gpu = Gpu::l40s(0);
    let took = job.fill("")?;
    ensure!(took == (gpu.usable() - gpu.context) / STEP, "{took}");
    let ledger = format!("/var/run/softmig/jobs/{}", job.id);
    ensure!(!job.node().exists(ledger)?);
    job.end()
}

fn no_variable_gives_a_process_more(slurm: Slurm) -> Result<()> {
    let job = Job::start(slurm, 4, "alice", 1)?;
    let other = Job::start(slurm, 4, "alice", 2)?;
    let all = job.fill("")?;
    for variables in [
        "env -i",
        "SLURM_JOB_ID=1",
        "SLURM_JOB_ID=",
        &format!("SLURM_JOB_ID={} SLURM_JOBID={}", other.id, other.id),
        "CUDA_DEVICE_MEMORY_LIMIT=40G",
        "CUDA_DEVICE_MEMORY_LIMIT_0=40G CUDA_DEVICE_SM_LIMIT=0",
        "SOFTMIG_RUN=/tmp/none",
        "SOFTMIG_NODE=off SOFTMIG_MODE=whole",
        "LD_PRELOAD= LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu",
    ] {
        let took = job.fill(variables)?;
        ensure!(took == all, "{variables}: {took}, not {all}");
    }
    job.check_peak(1)?;
    job.end()?;
    other.end()
}

fn memory_of_a_killed_step_is_free_for_the_next_one(slurm: Slurm) -> Result<()> {
    let job = Job::start(slurm, 5, "alice", 1)?;
    let all = job.fill("")?;
    for _ in 0..2 {
        let (step, took) = job.hold(0, "/tmp/never")?;
        ensure!(took == all, "{took}");
        // By its number on the node.
        let usage = job.driver().usage()?;
        let pid = usage[0].processes[0].pid.context("no process")?.to_string();
        let killed = std::process::Command::new("kill")
            .args(["-9", &pid])
            .status()?;
        ensure!(killed.success());
        let said = step.end()?;
        ensure!(!said.status.success(), "{said:#?}");
        ensure!(job.fill("")? == all);
    }
    job.check_peak(1)?;
    job.end()
}

fn a_requeued_job_has_its_whole_slice_again(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let node = site.cluster.node(6);
    let script = format!(
        "run=$HOME/requeued.$(ls $HOME/requeued.* 2>/dev/null | wc -l)\n\
         {FOLDER}/takes cuMemAlloc_v2 33554432 until 0 /tmp/never >$run &\nwait"
    );
    let options = [
        "--gres=gpu:l40s.4:1",
        "--requeue",
        "--nodelist",
        node.name(),
        "--output=/dev/null",
    ];
    let job = site.cluster.user("alice").sbatch(&options, &script)?;
    let took = |run: &str| -> Result<String> {
        let path = format!("/home/alice/requeued.{run}");
        site.cluster.wait_for(&path, || {
            let said = site.cluster.read(&path)?.unwrap_or_default();
            let line = said.lines().find(|line| line.starts_with("took: "));
            Ok(line.map(str::to_owned))
        })
    };
    let first = took("0")?;
    let id = job.to_string();
    site.cluster
        .run("root", &["scontrol", "requeue", &id])?
        .ok()?;
    let second = took("1")?;
    ensure!(
        first == second && number(&first, "blocks")? > 300,
        "{first} and then {second}"
    );
    site.cluster.run("root", &["scancel", &id])?.ok()?;
    Ok(())
}

fn a_spoilt_ledger_harms_its_own_job_alone(slurm: Slurm) -> Result<()> {
    let alices = Job::start(slurm, 7, "alice", 1)?;
    let bobs = Job::start(slurm, 7, "bob", 1)?;
    let all = bobs.fill("")?;
    let ledger = "/var/run/softmig/jobs/$SLURM_JOB_ID/ledger";
    for spoil in [
        "head -c 69632 /dev/urandom | dd of=LEDGER conv=notrunc status=none",
        "tr '\\0' '\\377' </dev/zero | head -c 69632 | dd of=LEDGER conv=notrunc status=none",
        "truncate -s 0 LEDGER",
        "truncate -s 5000 LEDGER",
    ] {
        let spoil = spoil.replace("LEDGER", ledger);
        let said = alices.run(&format!("{spoil}; ./takes cuMemAlloc_v2 33554432 fill"))?;
        ensure!(said.text("start")? != "0", "{spoil}: {said:#?}");
        ensure!(bobs.fill("")? == all, "{spoil}");
    }
    // She hears of it.
    let log = alices.log()?;
    ensure!(
        log.contains("the ledger of its job cannot be used"),
        "{log}"
    );
    alices.check_peak(2)?;
    alices.end()?;
    bobs.end()
}

/// Any user can make such a copy: it must not have a slice of its own.
fn programs_with_other_rights_share_the_slice(slurm: Slurm) -> Result<()> {
    let job = Job::start(slurm, 8, "alice", 1)?;
    // Bob's, which alice may run.
    let bobs = format!("cp {FOLDER}/takes /tmp/bobs && chmod 4755 /tmp/bobs");
    let made = job.node().command("bob", &["bash", "-c", &bobs]).output()?;
    ensure!(made.success(), "{made}");
    let script = format!(
        "own=$(mktemp -d)/takes; cp ./takes $own; chgrp project $own; chmod g+s $own\n\
         for takes in $own $own ./takes /tmp/bobs /tmp/bobs; do\n\
         $takes cuMemAlloc_v2 {STEP} until 0 /tmp/over 2>&1 & done\n\
         sleep 2; touch /tmp/over; wait"
    );
    let said = job.run(&script)?;
    let took = said.numbers("took", "blocks")?;
    ensure!(said.stderr.is_empty(), "{said:#?}");
    ensure!(took.iter().sum::<u64>() > 0, "{said:#?}");
    job.check_peak(1).with_context(|| format!("{said:#?}"))?;
    job.end()
}

fn another_user_in_a_job_gets_no_memory_and_learns_why(slurm: Slurm) -> Result<()> {
    let job = Job::start(slurm, 11, "alice", 1)?;
    // As sudo would, which is not on each node.
    let copy = "cp /usr/bin/setpriv /tmp/as && chmod 4755 /tmp/as";
    let made = job.node().command("root", &["sh", "-c", copy]).output()?;
    ensure!(made.success(), "{made}");
    let said = job.run(&format!(
        "/tmp/as --reuid=bob --regid=bob --clear-groups env SOFTMIG_LOG_LEVEL=3 \
         ./takes cuMemAlloc_v2 {STEP} fill"
    ))?;
    // Not even a context.
    ensure!(
        said.text("start")? == OUT_OF_MEMORY.to_string(),
        "{said:#?}"
    );
    ensure!(said.stderr.contains("another user's"), "{said:#?}");
    ensure!(job.driver().peak(0) == 0, "{said:#?}");
    ensure!(job.fill("")? == job.room(), "alice's own slice");
    job.end()
}

fn a_storm_in_a_job_ends_with_its_account_exact(slurm: Slurm) -> Result<()> {
    let job = Job::start(slurm, 9, "alice", 2)?;
    let before = job.fill("")?;
    // 32 contexts are half of the slice.
    let said = job.run("./crowd storm 32 4 7")?;
    ensure!(said.status.success(), "{said:#?}");
    ensure!(said.number("quiet", "odd")? == 0, "{said:#?}");
    job.check_peak(1)?;
    ensure!(job.fill("")? == before, "{said:#?}");
    job.end()
}
