//! Launches that wait for each other: a launch that is held back may be the one that all others wait for. No program
//! hangs, and if a launch went on that had to wait, the log says so. See `tests/programs/waits.c`.

use anyhow::{Context, Result, ensure};

use crate::compute::stand::{JOB, OTHER_JOB, Running, Stand, end, in_some_try, number, run};

/// The message when a launch went on that had to wait.
pub const OVERRUN: &str = "a launch that had to wait went on: the work before it did not end";

/// How long a case took, in milliseconds.
pub fn took(said: &str, case: &str) -> Result<f64> {
    let start = said.find(&format!("{case} took"));
    number(&said[start.context(case.to_owned())?..], "took")
}

/// Ends with a quarter of its GPUs; what the log says then.
fn ends(gpus: u32, case: &str) -> Result<String> {
    let stand = Stand::with(gpus)?;
    let free = took(&run(stand.unlimited(&["waits", case]))?, case)?;
    let held = took(&run(stand.of_job(JOB, "25", &["waits", case]))?, case)?;
    println!("{case}: {held} ms, {free} ms without a limit");
    Ok(stand.log())
}

/// Ends, because something went on that had to wait; and that is said.
fn goes_on(case: &str) -> Result<()> {
    let log = ends(1, case)?;
    ensure!(log.contains(OVERRUN), "{case}: {log:?}");
    Ok(())
}

#[test]
fn a_kernel_spins_until_a_later_launch_of_its_thread() -> Result<()> {
    goes_on("later_launch")
}

#[test]
fn a_stream_waits_for_a_value_that_a_later_call_writes() -> Result<()> {
    goes_on("wait_value")
}

#[test]
fn a_stream_waits_for_a_value_that_the_host_writes_later() -> Result<()> {
    goes_on("wait_for_host")
}

#[test]
fn a_callback_waits_for_a_lock_that_the_launching_thread_holds() -> Result<()> {
    goes_on("host_callback")
}

#[test]
fn kernels_of_two_streams_wait_for_each_other() -> Result<()> {
    goes_on("both_ways")
}

/// Others end meanwhile, so nothing has to go on out of turn.
#[test]
fn a_kernel_stays_until_a_later_launch_stops_it() -> Result<()> {
    ends(1, "persistent")?;
    Ok(())
}

#[test]
fn kernels_of_one_thread_on_two_gpus_wait_for_each_other() -> Result<()> {
    ends(2, "two_gpus")?;
    Ok(())
}

/// Two processes, each with the number of its GPU and its job, whose kernels wait for each other's.
fn ring(processes: [(&str, &str); 2]) -> Result<()> {
    let stand = Stand::with(2)?;
    let folder = stand.folder()?;
    let mut both = Vec::new();
    for (rank, (device, job)) in processes.into_iter().enumerate() {
        let words = ["waits", "ring", &folder, &rank.to_string(), device];
        both.push(Running::start(stand.of_job(job, "25", &words))?);
    }
    for one in both {
        let held = took(&end(one)?, "ring")?;
        println!("{processes:?}: {held} ms");
    }
    Ok(())
}

#[test]
fn kernels_of_two_processes_on_one_gpu_wait_for_each_other() -> Result<()> {
    ring([("0", JOB), ("0", JOB)])
}

#[test]
fn kernels_of_two_processes_on_two_gpus_wait_for_each_other() -> Result<()> {
    ring([("0", JOB), ("1", JOB)])
}

#[test]
fn kernels_of_two_jobs_wait_for_each_other() -> Result<()> {
    ring([("0", JOB), ("0", OTHER_JOB)])
}

/// The time that a quarter's ring takes on two GPUs, as a multiple of its time without a limit. The ring has `rounds`
/// rounds, and the process of each GPU launches its number of `kernels` in a round. The first one does nothing for
/// `pause`.
fn ring_on_two_gpus(rounds: &str, kernels: [&str; 2], pause: &str) -> Result<f64> {
    let stand = Stand::with(2)?;
    let ring = |name: &str, is_held: bool| {
        let folder = stand.new_folder(name)?;
        let start = |rank: usize| {
            let rank_word = rank.to_string();
            let pause = if rank == 0 { pause } else { "0" };
            let words = [
                "waits",
                "ring",
                &folder,
                &rank_word,
                &rank_word,
                rounds,
                kernels[rank],
                pause,
            ];
            let command = match is_held {
                true => stand.of_job(JOB, "25", &words),
                false => stand.unlimited(&words),
            };
            Running::start(command)
        };
        let both = [start(0)?, start(1)?];
        let mut longest = 0.0_f64;
        for one in both {
            longest = longest.max(took(&end(one)?, "ring")?);
        }
        Ok::<_, anyhow::Error>(longest)
    };
    let free = ring("free", false)?;
    let held = ring("held", true)?;
    println!("{kernels:?}, {pause} ms: {held} ms, {free} ms without a limit");
    Ok(held / free)
}

/// A GPU owes its spinning while the other waits; then that one would wait as long, each time three times as long.
#[test]
fn kernels_that_wait_for_another_gpu_have_their_share() -> Result<()> {
    for kernels in [["20", "20"], ["20", "5"], ["3", "1"]] {
        let ring = || ring_on_two_gpus("100", kernels, "0");
        in_some_try("a ring at 25 %", ring, |times| times < 8.0)?;
    }
    Ok(())
}

/// While the thread waits for one GPU, it alone looks at the other.
#[test]
fn kernels_of_one_thread_wait_for_each_other_again_and_again() -> Result<()> {
    let both = || {
        let stand = Stand::with(2)?;
        let words = ["waits", "100", "two_gpus"];
        let free = took(&run(stand.unlimited(&words))?, "two_gpus")?;
        let held = took(&run(stand.of_job(JOB, "25", &words))?, "two_gpus")?;
        println!("{held} ms, {free} ms without a limit");
        Ok(held / free)
    };
    in_some_try("one thread at 25 %", both, |times| times < 10.0)?;
    Ok(())
}

/// The other one's kernel spins for half a second, which is two of its share.
#[test]
fn a_process_that_pauses_costs_the_others_gpu_once() -> Result<()> {
    let ring = || ring_on_two_gpus("100", ["10", "10"], "500");
    in_some_try("a ring with a pause", ring, |times| times < 8.0)?;
    Ok(())
}
