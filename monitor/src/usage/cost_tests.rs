//! The cost of telling the usage, without measuring, which `enforce::cost_tests` has.

use super::{Keeper, Shared};
use crate::crowd_tests::{Crowd, GPUS, JOBS, LOOKS, PROCESSES, each, used};
use crate::enforce::tally::Tally;
use std::fs;

/// `cargo test --release -p softmig-monitor --lib -- --ignored --nocapture telling_costs` prints it.
#[test]
#[ignore = "a measurement, which says nothing on a busy machine"]
fn telling_costs() {
    let crowd = Crowd::new();
    let sample = crowd.sample();
    let (mut keeper, shared) = (Keeper::new(crowd.node.clone()), Shared::default());
    let begin = used();
    for look in 0..LOOKS {
        // Users' files, as often as every five seconds.
        if look % 5 == 0 {
            keeper.written = None;
        }
        keeper.note(&sample, None, &Tally::default(), None, &shared);
    }
    println!("to tell, with users' files every 5 s, {}", each(begin));
    let told = shared.told();
    assert_eq!(told.jobs.len(), JOBS as usize);
    let begin = used();
    let length = serde_json::to_vec(&told).unwrap().len();
    println!("an answer of {length} bytes: {:?}", used() - begin);
}

/// The memory of this process that is in RAM, in KiB.
fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|it| it.split_whitespace().next());
    number.unwrap().parse().unwrap()
}

/// `cargo test --release -p softmig-monitor --lib -- --ignored --nocapture a_week` prints it, in some minutes.
#[test]
#[ignore = "a measurement of the whole process, in which no other test may run"]
fn a_week_of_jobs_needs_no_more_memory_than_its_first_day() {
    /// A sample each ten seconds of the week, and a new job each five minutes.
    const LOOKS_A_DAY: u32 = 24 * 360;
    const LOOKS_A_JOB: u32 = 30;
    let mut crowd = Crowd::new();
    let (mut keeper, shared) = (Keeper::new(crowd.node.clone()), Shared::default());
    let mut days = Vec::new();
    for look in 1..=7 * LOOKS_A_DAY {
        if look % LOOKS_A_JOB == 0 {
            crowd.turn_over();
        }
        keeper.note(&crowd.sample(), None, &Tally::default(), None, &shared);
        if look % LOOKS_A_DAY == 0 {
            days.push(resident_kib());
        }
    }
    println!(
        "{GPUS} GPUs, {JOBS} jobs at a time and {} in all, {PROCESSES} processes: {days:?} KiB at the end of each day",
        crowd.first - 1 + JOBS
    );
    assert!(days[6] <= days[0] * 21 / 20, "{days:?}");
}
