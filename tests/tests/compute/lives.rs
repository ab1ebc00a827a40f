//! The share of a job whose processes and contexts come and go: all have it together, one that dies takes nothing of it
//! along, and lost work was charged.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::compute::stand::{JOB, Running, Stand, in_some_try, number, run};

/// A client that launches kernels of 100 us for ten seconds, or until it is killed.
const GREEDY: [&str; 4] = ["paced", "100000", "10000", "async"];

/// How long a share is watched from outside.
const WINDOW: Duration = Duration::from_millis(500);

/// A quarter, or nearly, and not more.
fn is_quarter(got: f64) -> bool {
    got > 15.0 && got < 26.5
}

/// A quarter at most: what several processes do at the same time may count twice.
fn is_quarter_at_most(got: f64) -> bool {
    got > 25.0 / 3.0 && got < 26.5
}

/// Two processes of a job without an arbiter.
fn two(stand: &Stand) -> Result<(Running, Running)> {
    let start = || Running::start(stand.of_job(JOB, "25", &GREEDY));
    let both = (start()?, start()?);
    stand.wait_for_work(both.0.pid())?;
    stand.wait_for_work(both.1.pid())?;
    Ok(both)
}

#[test]
fn processes_share_their_jobs_share_and_the_last_has_all_of_it() -> Result<()> {
    let stand = Stand::new()?;
    let (mut first, second) = two(&stand)?;
    let share = |pid: Option<u32>| stand.share_in(0, pid, WINDOW);
    let got = in_some_try("two processes", || share(None), is_quarter_at_most)?;
    println!("two processes: {got:.1} of 25 %");
    for client in [&first, &second] {
        let got = || share(Some(client.pid()));
        in_some_try("one of them", got, |got| got > 25.0 / 8.0)?;
    }
    // In the middle of its work.
    first.kill()?;
    let left = || share(Some(second.pid()));
    in_some_try("the one that is left", left, is_quarter)?;
    Ok(())
}

/// Stops a process where all its threads wait: elsewhere it may hold a lock of the fake driver's, as of no real one.
fn stop(pid: u32) -> Result<()> {
    /// nanosleep, futex and clock_nanosleep.
    const WAITS: [&str; 3] = ["35", "202", "230"];
    let process = Pid::from_raw(pid.cast_signed()).context("its number")?;
    for _ in 0..1000 {
        kill_process(process, Signal::STOP)?;
        std::thread::sleep(Duration::from_millis(2));
        let waits = |thread: std::io::Result<std::fs::DirEntry>| {
            let call = std::fs::read_to_string(thread?.path().join("syscall"))?;
            anyhow::Ok(
                WAITS
                    .iter()
                    .any(|wait| call.starts_with(&format!("{wait} "))),
            )
        };
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"))?;
        let waiting: Vec<bool> = threads.map(waits).collect::<Result<_>>()?;
        if waiting.into_iter().all(|waits| waits) {
            return Ok(());
        }
        kill_process(process, Signal::CONT)?;
        std::thread::sleep(Duration::from_millis(1));
    }
    bail!("{pid} never waits")
}

#[test]
fn a_stopped_process_leaves_the_jobs_share_to_the_others() -> Result<()> {
    let stand = Stand::new()?;
    let (first, second) = two(&stand)?;
    stop(first.pid())?;
    let left = || stand.share_in(0, Some(second.pid()), WINDOW);
    in_some_try("the one that goes on", left, is_quarter)?;
    Ok(())
}

#[test]
fn threads_have_a_process_share_together() -> Result<()> {
    let stand = Stand::new()?;
    let words = ["several", "100000", "500", "8", "0"];
    let shares = |command| Ok(number(&run(command)?, "several:")? / 100.0);
    let free = || shares(stand.unlimited(&words));
    in_some_try("eight threads without a limit", free, |got| got > 50.0)?;
    let held = || shares(stand.limited("25", &words));
    in_some_try("eight threads", held, is_quarter)?;
    Ok(())
}

/// A program loses what it launches in after every 5 ms of work, and still has no more than its share.
fn is_held_though_it_loses(what: &str) -> Result<()> {
    is_held_with_kernels_of("100000", what)
}

fn is_held_with_kernels_of(nanoseconds: &str, what: &str) -> Result<()> {
    let stand = Stand::new()?;
    let words = ["renewed", what, nanoseconds, "500"];
    let child = number(&run(stand.unlimited(&words))?, "child")?;
    let held = || {
        let said = run(stand.limited("25", &words))?;
        let same = number(&said, "child")?;
        ensure!(same == child, "{what}: a child heard {same}, not {child}");
        Ok(number(&said, "share")? / 100.0)
    };
    let got = in_some_try(what, held, is_quarter)?;
    println!("{what}: {got:.1} of 25 %");
    Ok(())
}

#[test]
fn streams_that_end_with_work_under_way_are_charged() -> Result<()> {
    is_held_though_it_loses("stream")
}

/// Each in one of its own, so that none is seen to end.
#[test]
fn long_kernels_in_streams_that_end_at_once_are_charged() -> Result<()> {
    is_held_with_kernels_of("5000000", "stream")
}

/// More streams than are told apart, all of which wait.
#[test]
fn long_kernels_beside_hundreds_of_streams_are_charged() -> Result<()> {
    is_held_with_kernels_of("20000000", "crowd")
}

#[test]
fn contexts_that_are_made_anew_are_held() -> Result<()> {
    ["context", "reset", "release"]
        .into_iter()
        .try_for_each(is_held_though_it_loses)
}

/// The children have no GPU, as without a limit, and take no share along.
#[test]
fn a_process_that_forks_is_held() -> Result<()> {
    is_held_though_it_loses("fork")
}

/// One process after the other: what the last one used is not forgotten.
#[test]
fn short_processes_of_a_job_have_its_share_together() -> Result<()> {
    let stand = Stand::new()?;
    let words = ["paced", "1000000", "1", "async"];
    let share = |command: &dyn Fn() -> Command| {
        let (start, before) = (stand.gpus.now(), stand.busy()?);
        (0..8).try_for_each(|_| run(command()).map(drop))?;
        let passed = Duration::from_nanos(stand.gpus.now() - start);
        Ok((stand.busy()? - before).as_secs_f64() / passed.as_secs_f64() * 100.0)
    };
    let free = || share(&|| stand.unlimited(&words));
    in_some_try("one after the other without a limit", free, |got| {
        got > 50.0
    })?;
    let held = || share(&|| stand.of_job(JOB, "25", &words));
    // The first has what the job had saved up.
    let got = in_some_try("one after the other", held, |got| {
        got > 25.0 / 3.0 && got < 30.0
    })?;
    println!("one after the other: {got:.1} of 25 %");
    Ok(())
}
