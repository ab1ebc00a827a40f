//! Several GPUs at a time: each has a share of its own, whatever number a process knows it by.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::compute::stand::{JOB, Running, Stand, busy, in_some_try, run};

/// A client that works on two GPUs at the same time.
const BOTH: [&str; 6] = ["several", "100000", "500", "1", "0", "1"];

/// The shares that it had, in percent.
fn shares(command: Command) -> Result<[f64; 2]> {
    let said = run(command)?;
    let numbers = said.split_whitespace().filter_map(|word| word.parse().ok());
    let numbers: Vec<f64> = numbers.map(|number: f64| number / 100.0).collect();
    ensure!(numbers.len() == 3, "{said}");
    Ok([numbers[0], numbers[1]])
}

/// Of its share a GPU has more than this, or another's were counted too.
const MOST: f64 = 0.7;
/// The same beside one with a smaller share.
const BESIDE_LESS: f64 = 0.5;
/// Of its share a GPU has more than this, also where both have to wait for either.
const SOME: f64 = 0.3;

/// How much more than its share a GPU may have, in points: what is in flight while a launch waits on the other one is not charged.
const ABOVE: f64 = 5.0;

fn is_share(got: f64, percent: f64, least: f64) -> bool {
    got < percent + ABOVE && got > percent * least
}

/// Measures both at the same time until each has its share.
fn have(
    what: &str,
    percent: [f64; 2],
    least: f64,
    measure: impl Fn() -> Result<[f64; 2]>,
) -> Result<()> {
    // The worse of the two, as a part of what it may have.
    let worst = || {
        let got = measure()?;
        println!("{what}: {got:.1?} of {percent:?} %");
        let mut parts = got.into_iter().zip(percent);
        let wrong = parts.find(|(got, percent)| !is_share(*got, *percent, least));
        Ok(wrong.map_or(1.0, |(got, percent)| got / percent))
    };
    in_some_try(what, worst, |part| part == 1.0)?;
    Ok(())
}

#[test]
fn each_gpu_has_a_share_at_the_same_time() -> Result<()> {
    let stand = Stand::with(2)?;
    let free = || shares(stand.unlimited(&BOTH));
    have("two GPUs without a limit", [100.0; 2], MOST, free)?;
    let held = || shares(stand.of_job(JOB, "25", &BOTH));
    have("two GPUs", [25.0; 2], MOST, held)
}

#[test]
fn kernels_launched_on_two_gpus_at_once_are_held_on_each() -> Result<()> {
    let stand = Stand::with(2)?;
    let words = ["several", "100000", "500", "0", "0", "1"];
    let free = || shares(stand.unlimited(&words));
    have("both at once without a limit", [100.0; 2], MOST, free)?;
    let held = || shares(stand.of_job(JOB, "25", &words));
    have("both at once", [25.0; 2], SOME, held)
}

/// The numbers are CUDA's, in whatever order the program wants its GPUs. While a launch waits on one nothing is launched on the other,
/// so the one with more has less than its share.
#[test]
fn each_gpu_has_the_share_of_its_number() -> Result<()> {
    let stand = Stand::with(2)?;
    let busy =
        || Ok::<_, anyhow::Error>([busy(&stand.gpus, 0, None)?, busy(&stand.gpus, 1, None)?]);
    let uuids: Vec<String> = stand
        .gpus
        .description()
        .gpus
        .iter()
        .map(|gpu| gpu.uuid.clone())
        .collect();
    let turned = format!("{},{}", uuids[1], uuids[0]);
    for (visible, first) in [("0,1", 0), ("1,0", 1), (&turned, 1)] {
        let before = busy()?;
        let held = || {
            let mut command = stand.limited("100", &BOTH);
            command
                .env("CUDA_DEVICE_SM_LIMIT_0", "20")
                .env("CUDA_DEVICE_SM_LIMIT_1", "50")
                .env("CUDA_VISIBLE_DEVICES", visible);
            shares(command)
        };
        have(visible, [20.0, 50.0], BESIDE_LESS, held)?;
        let after = busy()?;
        let worked = |gpu: usize| after[gpu] - before[gpu];
        ensure!(
            worked(first) < worked(1 - first),
            "{visible}: {before:?} {after:?}"
        );
    }
    Ok(())
}

/// Two processes on one GPU, which each of them counts differently, and one on another.
#[test]
fn a_gpu_has_one_share_under_all_its_numbers() -> Result<()> {
    let stand = Stand::with(2)?;
    let start = |visible: &str, gpu: &str| {
        let mut command = stand.of_job(JOB, "25", &["several", "100000", "10000", "1", gpu]);
        command.env("CUDA_VISIBLE_DEVICES", visible);
        Running::start(command)
    };
    let _clients = [start("1", "0")?, start("0,1", "1")?, start("1,0", "1")?];
    std::thread::sleep(Duration::from_millis(500));
    let share = |gpu: usize| stand.share_in(gpu, None, Duration::from_millis(500));
    let second = in_some_try(
        "two processes",
        || share(1),
        |got| is_share(got, 25.0, SOME),
    )?;
    let first = in_some_try("one", || share(0), |got| is_share(got, 25.0, MOST))?;
    println!("{second:.1} and {first:.1} of 25 %");
    Ok(())
}
