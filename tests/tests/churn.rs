//! Churn: many slice jobs on three nodes, while jobs are cancelled and requeued, nodes drained and taken down, daemons killed,
//! and file systems full. No job may run without its limits, and nothing may be left at the end.
//!
//! The order of all this is drawn from a seed, which the test prints. `SOFTMIG_CHURN_SEED` gives it again; how jobs and
//! daemons then meet in time is not the same in each run. `SOFTMIG_CHURN_LOGS` names a folder to keep Slurm's logs in.

mod deck;
mod events;
mod jobs;
mod left;
mod report;
mod site;

use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use deck::{Deck, Event};
use report::Report;
use site::Site;
use softmig_tests::{Slurm, on_each_slurm};

on_each_slurm!(forty_jobs_leave_nothing_and_none_runs_without_limits,);

fn forty_jobs_leave_nothing_and_none_runs_without_limits(slurm: Slurm) -> Result<()> {
    churn(slurm, 40)?.check()
}

/// The long form, which writes its result into bench/results.
#[test]
#[ignore = "takes minutes; bench/README.md says how to run it"]
fn a_thousand_jobs_leave_nothing_and_none_runs_without_limits() -> Result<()> {
    let report = churn(Slurm::V24_11, 1000)?;
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/results");
    report.write(&results)?;
    report.check()
}

/// The seed that was asked for, or a new one.
fn seed() -> Result<u64> {
    match std::env::var("SOFTMIG_CHURN_SEED") {
        Ok(seed) => seed.parse().context("SOFTMIG_CHURN_SEED is no number"),
        // Short, because people type it.
        Err(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
            Ok(u64::from(now.subsec_micros()))
        }
    }
}

/// Submits `jobs` jobs and plays the events that belong to them, waits until all is over, and reports.
fn churn(slurm: Slurm, jobs: usize) -> Result<Report> {
    let seed = seed()?;
    println!("churn: {jobs} jobs on Slurm {slurm}, SOFTMIG_CHURN_SEED={seed}");
    let begin = Instant::now();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut deck = Deck::shuffled(jobs, &mut rng);
    let mut site = Site::start(slurm)?;
    for step in 0..jobs {
        site.submit(&mut rng)?;
        site.undo(step)?;
        for event in deck.of_step(step) {
            site.meet(event, step, &mut rng)?;
        }
        site.wait_for_room()?;
    }
    site.calm_down()?;
    if let Ok(folder) = std::env::var("SOFTMIG_CHURN_LOGS") {
        site.keep_logs(&folder)?;
    }
    let report = site.report(seed, jobs, begin)?;
    println!("{}", report.page());
    for (event, name, _) in deck::KINDS {
        // Those need a job, which may just have ended.
        let needs_job = matches!(event, Event::Cancel | Event::Requeue);
        ensure!(
            needs_job || report.events.contains_key(&event),
            "not {name}"
        );
    }
    Ok(report)
}
