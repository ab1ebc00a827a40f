//! What becomes of a share when processes come and go: they have it together, and who dies takes nothing of it along.

use std::time::Duration;

use anyhow::Result;

use crate::stand::{JOB, Running, Stand, in_some_try};

/// A client that launches kernels of 100 us for ten seconds, or until it is killed.
const GREEDY: [&str; 4] = ["paced", "100000", "10000", "async"];

/// How long a share is watched from outside.
const WINDOW: Duration = Duration::from_millis(500);

/// Two processes of a job without an arbiter; then one of them is killed in the middle of its work.
#[test]
fn processes_of_a_job_have_its_share_together_and_who_is_left_has_all_of_it() -> Result<()> {
    let stand = Stand::new()?;
    let start = || Running::start(&mut stand.of_job(JOB, "25", &GREEDY));
    let (first, second) = (start()?, start()?);
    for client in [&first, &second] {
        stand.wait_for_work(client.pid())?;
    }
    let share = |pid: Option<u32>| stand.share_in(0, pid, WINDOW);
    let is_share = |got: f64| got > 25.0 / 3.0 && got < 26.5;
    in_some_try("two processes at 25 %", || share(None), is_share)?;
    for client in [&first, &second] {
        let got = || share(Some(client.pid()));
        in_some_try("one of them", got, |got| got > 25.0 / 8.0)?;
    }
    first.kill()?;
    let left = || share(Some(second.pid()));
    in_some_try("the one that is left", left, is_share)?;
    second.kill()?;
    println!("{}", stand.log());
    Ok(())
}
