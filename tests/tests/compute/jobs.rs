//! Jobs on a GPU that is not steered: each has its share beside another that wants all there is. A job does not hang when its
//! launches wait for each other while they wait for a turn.

use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};

use crate::compute::liveness::{OVERRUN, took};
use crate::compute::site::{MONITOR, QUARTER, Site};
use crate::compute::stand::{in_some_try, share_in};

/// A node for each test.
const NODES: usize = 4;

fn site() -> Result<&'static Site> {
    static SITE: LazyLock<Result<Site>> =
        LazyLock::new(|| Site::start(NODES, |it| it, |_, it| it, &[MONITOR]));
    SITE.as_ref().map_err(|error| anyhow!("{error:#}"))
}

#[test]
fn two_jobs_have_their_shares_beside_each_other() -> Result<()> {
    let site = site()?;
    let jobs = [("alice", 25.0, QUARTER), ("bob", 50.0, "gpu:l40s.2:1")];
    let mut begun = Vec::new();
    for (user, share, gres) in jobs {
        begun.push((share, site.start_greedy(user, 0, gres)?));
    }
    for (share, (job, pid)) in &begun {
        let measure = || share_in(&site.drivers[0], 0, Some(*pid), Duration::from_millis(500));
        let is_right = |got: f64| got > share / 2.0 && got < share + 2.0;
        let got = in_some_try(&format!("job {job} of {share} %"), measure, is_right)?;
        println!("job {job}: {got:.1} of {share} %");
    }
    begun.iter().try_for_each(|(_, (job, _))| site.cancel(*job))
}

/// The cases end beside a job that wants all there is, in a job of a quarter.
fn end_beside_a_greedy_job(node: usize, cases: &str) -> Result<()> {
    let site = site()?;
    let (greedy, _) = site.start_greedy("alice", node, QUARTER)?;
    let script = format!("./waits {cases} && cat /var/run/softmig/jobs/$SLURM_JOB_ID/log");
    let job = site.start_job("bob", node, QUARTER, &script)?;
    let said = site.end_of("bob", job)?;
    for case in cases.split(' ') {
        took(&said, case)?;
    }
    ensure!(said.contains(OVERRUN), "{said}");
    site.cancel(greedy)
}

#[test]
fn waiting_launches_end_beside_a_job_that_wants_all_there_is() -> Result<()> {
    end_beside_a_greedy_job(
        1,
        "later_launch wait_value wait_for_host host_callback persistent",
    )
}

#[test]
fn kernels_of_two_streams_wait_for_each_other_beside_a_busy_job() -> Result<()> {
    end_beside_a_greedy_job(2, "both_ways")
}

#[test]
fn kernels_of_processes_wait_for_each_other_beside_a_busy_job() -> Result<()> {
    let site = site()?;
    let (greedy, _) = site.start_greedy("alice", 3, QUARTER)?;
    let ring = |rank: u32| format!("./waits ring $HOME {rank}");
    let both = format!("{} &\n{} && wait $!\nrm $HOME/ring.*", ring(0), ring(1));
    let job = site.start_job("bob", 3, QUARTER, &both)?;
    let said = site.end_of("bob", job)?;
    ensure!(said.matches("ring took").count() == 2, "{said}");
    // Of two jobs.
    let start = |rank| site.start_job("bob", 3, QUARTER, &ring(rank));
    let jobs = [start(0)?, start(1)?];
    for job in jobs {
        took(&site.end_of("bob", job)?, "ring")?;
    }
    site.cancel(greedy)
}
