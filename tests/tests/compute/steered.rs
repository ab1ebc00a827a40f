//! Jobs that share a GPU by its own scheduler: the library, the monitor and its calls of the kernel driver as they are
//! shipped, on the fake driver's scheduler (`tests/fake-driver/node/src/runlist.rs`).

use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use softmig_fake_node::{Found, KERNEL_DRIVER};

use crate::compute::site::{MONITOR, QUARTER, Site};
use crate::compute::stand::{has_share, in_some_try, share_in};

/// A node for each test. The last ones' GPUs cannot be steered: one has no scheduler, one no firmware that holds channels, and one
/// an old driver.
const NODES: usize = 17;
const WITHOUT_SCHEDULER: usize = NODES - 1;
const WITHOUT_FIRMWARE: usize = NODES - 2;
const OLD_DRIVER: usize = NODES - 3;

const HALF: &str = "gpu:l40s.2:1";
const THREE_QUARTERS: &str = "shard:l40s:3";

/// Kernels of a millisecond, always some waiting; the same, one at a time; kernels of 200 ms.
const BUSY: &str = "1000000 1000000 async";
const WAITING: &str = "1000000 1000000 sync";
const LONG: &str = "200000000 1000000 async";
/// A kernel of a millisecond, then 9 ms of nothing.
const PAUSING: &str = "1000000 1000000 idle";

/// The words of a steering monitor.
const STEERED: &str = "by its own scheduler";
/// Those of one that cannot, for a process or for all.
const NOT_STEERED: [&str; 2] = ["cannot be held", "keeps its own cap"];

/// The time slice of a group for which none was set, in microseconds.
const DRIVERS_SLICE: u64 = 2048;

/// How long shares are watched.
const WINDOW: Duration = Duration::from_secs(1);

/// The policy as it is shipped, with a log, and shards for all who ask.
const POLICY: &str = include_str!("../../../conf/policy.toml");
const LOG: &str = "/var/log/softmig/node.log";

fn site() -> Result<&'static Site> {
    static SITE: LazyLock<Result<Site>> = LazyLock::new(|| {
        // Its number first, by which it can be stopped.
        let start = format!("echo $$; LD_PRELOAD={KERNEL_DRIVER} exec {MONITOR}");
        let policy = POLICY
            .replace("raw_shards = \"refuse\"", "raw_shards = \"allow\"")
            .replace("#log_file =", "log_file =");
        Site::start(
            NODES,
            |builder| builder.file("/etc/softmig/policy.toml", policy),
            |node, description| match node {
                WITHOUT_SCHEDULER => description,
                WITHOUT_FIRMWARE => description.scheduler().without_firmware(),
                OLD_DRIVER => description.driver("530.30.02"),
                _ => description.scheduler(),
            },
            &["sh", "-c", &start],
        )
    });
    SITE.as_ref().map_err(|error| anyhow!("{error:#}"))
}

/// A job that launches until it is cancelled, on one of the nodes.
struct Job {
    site: &'static Site,
    node: usize,
    number: u32,
    pid: u32,
}

impl Job {
    fn start(user: &str, node: usize, gres: &str, words: &str) -> Result<Job> {
        Job::run(user, node, gres, &format!("./paced {words}"))
    }

    /// The same with any command.
    fn run(user: &str, node: usize, gres: &str, command: &str) -> Result<Job> {
        let site = site()?;
        let (number, pid) = site.start_launching(user, node, gres, command)?;
        Ok(Job {
            site,
            node,
            number,
            pid,
        })
    }

    /// Its share of the GPU in the time to come, in percent.
    fn share_in(&self, time: Duration) -> Result<f64> {
        share_in(&self.site.drivers[self.node], 0, Some(self.pid), time)
    }

    /// Its share once that is right.
    fn has(&self, least: f64, most: f64) -> Result<()> {
        has_share(&self.site.drivers[self.node], self.pid, least, most)
    }

    /// Its channel group.
    fn group(&self) -> Result<Found> {
        let groups = self.site.drivers[self.node].groups(0);
        let own = groups.into_iter().find(|it| it.own_pid == self.pid);
        own.context("it has no channel group")
    }

    fn is_held(&self) -> Result<bool> {
        Ok(self.site.drivers[self.node].is_held(self.group()?))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Where it has ended that fails, which is as well.
        let _ = self.site.cancel(self.number);
    }
}

/// The log of a node's monitor.
fn log_of(node: usize) -> Result<String> {
    let said = site()?.cluster.node(node).read(LOG)?;
    Ok(said.unwrap_or_default())
}

/// The monitor of a node says that it steers, and has not given that up; and it has set time slices.
fn is_steered(job: &Job) -> Result<()> {
    let said = log_of(job.node)?;
    ensure!(said.contains(STEERED), "{said}");
    ensure!(
        !NOT_STEERED.iter().any(|words| said.contains(words)),
        "{said}"
    );
    let slice = job.site.drivers[job.node].time_slice(job.group()?);
    ensure!(slice != Some(DRIVERS_SLICE), "{slice:?}");
    Ok(())
}

#[test]
fn busy_jobs_have_their_shares() -> Result<()> {
    let quarter = Job::start("alice", 0, QUARTER, BUSY)?;
    let rest = Job::start("bob", 0, THREE_QUARTERS, BUSY)?;
    quarter.has(23.0, 27.0)?;
    // The changes are its.
    rest.has(70.0, 77.0)?;
    is_steered(&quarter)?;
    is_steered(&rest)
}

#[test]
fn a_job_that_waits_for_each_kernel_has_its_share() -> Result<()> {
    let waits = Job::start("alice", 1, QUARTER, WAITING)?;
    let quarter = Job::start("bob", 1, QUARTER, BUSY)?;
    let half = Job::start("carol", 1, HALF, BUSY)?;
    waits.has(18.0, 27.0)?;
    quarter.has(20.0, 27.0)?;
    half.has(40.0, 52.0)?;
    is_steered(&waits)
}

#[test]
fn a_job_that_needs_less_than_its_share_keeps_its_pace() -> Result<()> {
    let pauses = Job::start("alice", 5, QUARTER, PAUSING)?;
    let _quarter = Job::start("bob", 5, QUARTER, BUSY)?;
    let half = Job::start("carol", 5, HALF, BUSY)?;
    // A tenth alone; a kernel waits for a slice of each other at most.
    pauses.has(4.5, 10.5)?;
    // The others have its rest, as far as they may.
    half.has(45.0, 65.0)?;
    is_steered(&pauses)
}

#[test]
fn a_job_alone_has_its_hard_quarter() -> Result<()> {
    const NODE: usize = 2;
    let idle = "sleep infinity | ./takes cuMemAlloc 1048576 hold 1";
    let command = format!("{idle} & ./paced {BUSY}");
    let quarter = Job::run("alice", NODE, QUARTER, &command)?;
    quarter.has(20.0, 27.0)?;
    // Its idle process is held with it, and needs no time slice.
    let driver = &quarter.site.drivers[NODE];
    let groups = driver.groups(0);
    let idle = groups.iter().find(|it| it.own_pid != quarter.pid);
    let idle = *idle.context("one group alone")?;
    ensure!(driver.time_slice(idle) == Some(DRIVERS_SLICE));
    let are_held = || Ok(quarter.is_held()? && driver.is_held(idle));
    quarter.site.cluster.wait_until("both held", are_held)?;
    // A slice that the job sets itself lasts until its channels are held.
    let group = quarter.group()?;
    let slice = driver.time_slice(group);
    driver.set_time_slice(group, 1_000_000);
    let is_as_before = || Ok(driver.time_slice(group) == slice);
    let what = "the slice of before";
    quarter.site.cluster.wait_until(what, is_as_before)?;
    is_steered(&quarter)
}

#[test]
fn what_a_job_did_alone_does_not_count_later() -> Result<()> {
    const NODE: usize = 9;
    const ALONE: Duration = Duration::from_secs(6);
    /// While it is there, the first job rests.
    const RESTS: &str = "/etc/softmig/rests";
    let command = format!("RESTS={RESTS} ./paced {BUSY}");
    let first = Job::run("alice", NODE, QUARTER, &command)?;
    std::thread::sleep(ALONE);
    let node = first.site.cluster.node(NODE);
    node.write(RESTS, "")?;
    let rests = || Ok(first.share_in(Duration::from_millis(200))? == 0.0);
    first.site.cluster.wait_until("its rest", rests)?;
    let _others = [
        Job::start("bob", NODE, QUARTER, BUSY)?,
        Job::start("carol", NODE, HALF, BUSY)?,
    ];
    node.run_as_root(&["rm", RESTS])?.ok()?;
    // It had nothing for as long as it had been alone.
    let got = first.share_in(Duration::from_secs(2))?;
    ensure!(got > 8.0, "{got:.1} %");
    first.has(20.0, 27.0)?;
    is_steered(&first)
}

#[test]
fn long_kernels_hold_up_a_neighbour_for_a_slice_at_most() -> Result<()> {
    const LONGEST: Duration = Duration::from_millis(25);
    let waits = Job::start("alice", 3, HALF, WAITING)?;
    let long = Job::start("bob", 3, HALF, LONG)?;
    let driver = &long.site.drivers[3];
    let waited = || {
        let _ = driver.take_longest_wait(waits.group()?);
        let got = waits.share_in(WINDOW)?;
        let waited = Duration::from_nanos(driver.take_longest_wait(waits.group()?));
        println!("{got:.1} %, {waited:?}");
        Ok(waited.as_secs_f64())
    };
    let most = LONGEST.as_secs_f64();
    in_some_try("the longest wait", waited, |it| it > 0.0 && it < most)?;
    // Its kernels still end.
    long.has(30.0, 52.0)?;
    is_steered(&long)
}

/// Something other than the monitor interrupts a job each second, so that one call ends it, and then three.
#[test]
fn work_that_something_else_keeps_off_the_gpu_goes_on() -> Result<()> {
    const NODE: usize = 12;
    let victim = Job::start("alice", NODE, HALF, BUSY)?;
    let other = Job::start("bob", NODE, HALF, BUSY)?;
    victim.has(40.0, 52.0)?;
    let driver = &victim.site.drivers[NODE];
    let group = victim.group()?.group;
    let channels: Vec<_> = (group.channels())
        .map(|channel| (group.client(), channel))
        .collect();
    let share = |times: u32| {
        for _ in 0..times {
            ensure!(driver.enable_channels(0, &channels, false));
        }
        victim.share_in(WINDOW)
    };
    // Several at once take longer to undo, the more so on a busy machine.
    for (times, least) in [(1, 40.0), (3, 30.0)] {
        let what = format!("interrupted each second, {times}");
        let ten = || {
            let seen = (0..10)
                .map(|_| share(times))
                .collect::<Result<Vec<f64>>>()?;
            println!("{what}: {seen:.1?}");
            Ok(seen.iter().sum::<f64>() / 10.0)
        };
        // At first it takes a while to find out.
        in_some_try(&what, ten, |got| got > least)
            .with_context(|| log_of(NODE).unwrap_or_default())?;
    }
    other.has(40.0, 60.0)?;
    victim.has(40.0, 52.0)?;
    victim.site.cluster.wait_until("it is told", || {
        share(1)?;
        Ok(log_of(NODE)?.contains("something else kept work of processes"))
    })?;
    is_steered(&victim)
}

/// While its kernel runs, a process launches nothing that would ask for a seat. The kernel is longer than a test waits.
#[test]
fn a_kernel_of_minutes_has_a_seat_at_the_next_monitor() -> Result<()> {
    const NODE: usize = 13;
    let job = Job::start("alice", NODE, HALF, "600000000000 1000000 async")?;
    let node = job.site.cluster.node(NODE);
    let usage = "/var/run/softmig/usage.json";
    let has_seat = || -> Result<bool> {
        let Some(text) = node.read(usage)? else {
            return Ok(false);
        };
        let usage: serde_json::Value = serde_json::from_str(&text)?;
        Ok(usage["jobs"][0]["gpus"][0]["seats"][0]["pid"].is_u64())
    };
    job.site.cluster.wait_until("its seat", has_seat)?;
    job.site.monitor(NODE).kill()?;
    node.run_as_root(&["rm", usage])?.ok()?;
    job.site.restart_monitor(NODE)?;
    let next = "its seat at the next monitor";
    job.site.cluster.wait_until(next, has_seat)?;
    is_steered(&job)
}

/// Ends a node's monitor while one of the jobs is held there. Gives that job.
fn end_while_held(jobs: &[Job], end: impl Fn(&Site) -> Result<()>) -> Result<&Job> {
    let (site, node) = (site()?, jobs[0].node);
    let held = site.cluster.wait_for("a job that is held", || {
        for job in jobs.iter() {
            if job.is_held()? && waiting(node)?.len() == 1 {
                end(site)?;
                return Ok(Some(job));
            }
        }
        Ok(None)
    });
    held.with_context(|| log_of(node).unwrap_or_default())
}

/// The lists of what waits that a node's monitor has written.
fn waiting(node: usize) -> Result<Vec<String>> {
    let files = site()?.cluster.node(node).list("/var/run/softmig")?;
    // One that is killed may be writing the next list.
    let is_list = |it: &String| it.starts_with("waiting-") && !it.ends_with(".new");
    let lists = files.into_iter().filter(is_list);
    Ok(lists.collect())
}

#[test]
fn a_job_that_a_monitor_left_held_runs_again_with_the_next_one() -> Result<()> {
    const NODE: usize = 4;
    let site = site()?;
    // Both are held for half of the time.
    let start = |user| Job::start(user, NODE, QUARTER, BUSY);
    let jobs = [start("alice")?, start("bob")?];
    // It may have been let go just then; then the next monitor is killed.
    let held = site.cluster.wait_for("one that stays held", || {
        let held = end_while_held(&jobs, |site| site.monitor(NODE).kill())?;
        if held.is_held()? {
            return Ok(Some(held));
        }
        site.restart_monitor(NODE)?;
        Ok(None)
    })?;
    let got = held.share_in(Duration::from_millis(300))?;
    ensure!(got == 0.0 && held.is_held()?, "{got}");
    ensure!(waiting(NODE)?.len() == 1, "{:?}", waiting(NODE)?);
    // The other one goes on with its own cap.
    for job in jobs.iter().filter(|job| !job.is_held().unwrap_or(false)) {
        job.has(10.0, 35.0)?;
    }
    site.restart_monitor(NODE)?;
    // Its process asks for a seat again a while after it was refused one, and its cap took what was held for work.
    site.cluster.wait_for("work again", || {
        Ok((held.share_in(WINDOW)? > 15.0).then_some(()))
    })?;
    // It may have saved up something meanwhile.
    held.has(15.0, 40.0)
        .with_context(|| log_of(NODE).unwrap_or_default())?;
    let said = log_of(NODE)?;
    ensure!(said.contains("channels were left waiting"), "{said}");
    Ok(())
}

#[test]
fn a_monitor_that_is_stopped_lets_all_jobs_run() -> Result<()> {
    const NODE: usize = 6;
    let start = |user| Job::start(user, NODE, QUARTER, BUSY);
    let jobs = [start("alice")?, start("bob")?];
    // In some rounds no job is held any more when the signal comes.
    for _ in 0..4 {
        end_while_held(&jobs, |site| {
            let pid = site.monitor(NODE).stdout()?;
            let signal = ["kill", "-TERM", pid.trim()];
            site.cluster.run("root", &signal)?.ok()?;
            let has_ended = || Ok(!site.monitor(NODE).runs()?);
            site.cluster.wait_until("its end", has_ended)
        })?;
        for job in &jobs {
            ensure!(!job.is_held()?);
        }
        ensure!(waiting(NODE)?.is_empty(), "{:?}", waiting(NODE)?);
        site()?.restart_monitor(NODE)?;
    }
    Ok(())
}

/// The call that is to hold the job names a channel that has just ended: it is refused after it held those before that one.
#[test]
fn a_job_whose_contexts_end_while_it_is_held_runs_again() -> Result<()> {
    const NODE: usize = 10;
    // The channels of each new context come last in such a call.
    let command = format!("./contexts 30 & ./paced {BUSY}");
    let job = Job::run("alice", NODE, QUARTER, &command)?;
    let driver = &job.site.drivers[NODE];
    for _ in 0..3 {
        let before = driver.half_held(0);
        let is_met = || Ok(driver.half_held(0) > before);
        let what = "a call with a channel that has ended";
        job.site.cluster.wait_until(what, is_met)?;
        job.has(20.0, 27.0)?;
    }
    is_steered(&job)
}

#[test]
fn a_job_that_claims_anothers_channels_holds_its_own_alone() -> Result<()> {
    const NODE: usize = 7;
    let claimed = Job::start("alice", NODE, THREE_QUARTERS, WAITING)?;
    let group = claimed.group()?.group;
    let channels: Vec<String> = group.channels().map(|it| it.to_string()).collect();
    let handles = format!(
        "{} {} {}",
        group.client(),
        group.handle(),
        channels.join(" ")
    );
    let claims = Job::run("bob", NODE, QUARTER, &format!("./claims {handles}"))?;
    claims.has(20.0, 27.0)?;
    let (mut times, mut both) = (0, 0);
    for _ in 0..10_000 {
        if times > 50 {
            break;
        }
        let are_held = (claims.is_held()?, claimed.is_held()?);
        times += u32::from(are_held.0);
        both += u32::from(are_held == (true, true));
        std::thread::sleep(Duration::from_millis(2));
    }
    // The other one may be held as well, but for its own use, at other times.
    ensure!(
        times > 50 && both < times / 2,
        "held {times} times, both {both}"
    );
    is_steered(&claims)
}

/// Processes that have seats and cannot be held, since they tell of no channels there, have what the driver gives them, and not a
/// quarter. No rule but `time` finds them.
#[test]
fn a_seat_for_show_is_ended_after_ten_seconds() -> Result<()> {
    const NODE: usize = 11;
    let neighbour = Job::start("bob", NODE, THREE_QUARTERS, BUSY)?;
    neighbour.has(70.0, 77.0)?;
    let node = neighbour.site.cluster.node(NODE);
    let gpu = neighbour.site.cluster.node(NODE).gpus()[0]
        .uuid
        .replace('-', "");
    let uuid = gpu.strip_prefix("GPU").context("no UUID")?;
    let shows = format!(
        "unshare --user --map-root-user --mount bash -c 'mount --bind /dev/null /etc/ld.so.preload && exec ./show {uuid} ./paced {BUSY}'"
    );
    // At first nothing is ended.
    let job = Job::run(
        "alice",
        NODE,
        QUARTER,
        &format!("{shows} & {shows} & {shows}"),
    )?;
    let neighbours = || neighbour.share_in(WINDOW);
    let left = in_some_try("less than three quarters", neighbours, |got| got < 66.0)?;
    println!("beside seats for show, three quarters have {left:.1} %");
    let policy = node
        .read("/etc/softmig/policy.toml")?
        .context("no policy")?;
    let policy = policy
        .replace("#end = \"no\"", "end = \"all\"")
        .replace("\nend = \"no\"", "\nend = \"all\"");
    ensure!(policy.contains("\nend = \"all\""), "{policy}");
    node.write("/etc/softmig/policy.toml", &policy)?;
    let is_it = |line: &str| {
        line.contains(&format!("job={} uid=2001 ", job.number)) && line.contains("rule=time ")
    };
    job.site
        .cluster
        .wait_until("its end", || {
            let log = log_of(NODE)?;
            Ok(log
                .lines()
                .any(|line| is_it(line) && line.contains("asked to end")))
        })
        .with_context(|| log_of(NODE).unwrap_or_default())?;
    neighbour.has(70.0, 77.0)?;
    let log = log_of(NODE)?;
    ensure!(!log.contains("rule=seat"), "{log}");
    ensure!(
        !log.contains(&format!(" WARN job={} ", neighbour.number)),
        "{log}"
    );
    Ok(())
}

/// The seconds of a core that a node's monitor and its helpers have used.
fn monitors_time(node: usize) -> Result<f64> {
    let times = "cd /proc; for process in [0-9]*; do case $(cat $process/comm 2>/dev/null) in softmig-monitor|exe) cut -d' ' -f14,15 $process/stat;; esac; done";
    let said = site()?
        .cluster
        .node(node)
        .run_as_root(&["bash", "-c", times])?
        .ok()?;
    let ticks = said.split_whitespace().map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / 100.0)
}

#[test]
#[ignore = "a measurement"]
fn what_seats_that_tell_anew_cost() -> Result<()> {
    const NODE: usize = 11;
    let site = site()?;
    let uuid = site.cluster.node(NODE).gpus()[0].uuid.replace('-', "");
    let uuid = uuid.strip_prefix("GPU").context("no UUID")?;
    for seats in [1, 16, 64] {
        let job = site.start_job(
            "alice",
            NODE,
            QUARTER,
            &format!("./hostile {uuid} lists {seats}"),
        )?;
        let mut before = monitors_time(NODE)?;
        for second in [5, 10, 15, 20, 25] {
            std::thread::sleep(Duration::from_secs(5));
            let now = monitors_time(NODE)?;
            println!(
                "{seats} seats, until second {second}: {:.1} % of a core",
                20.0 * (now - before)
            );
            before = now;
        }
        site.cancel(job)?;
    }
    Ok(())
}

/// A process that the monitor knows of has the library: others with a context have not.
#[test]
fn a_process_that_only_allocates_has_a_seat() -> Result<()> {
    const NODE: usize = 8;
    let site = site()?;
    let script = "sleep infinity | ./takes cuMemAlloc 1048576 hold 1";
    let number = site.start_job("alice", NODE, QUARTER, script)?;
    let node = site.cluster.node(NODE);
    site.cluster.wait_until("a seat", || {
        let said = node.run_as_root(&[MONITOR, "--once", "--json"])?.stdout;
        let report: serde_json::Value = serde_json::from_str(&said)?;
        let jobs = report["usage"]["jobs"].as_array();
        let mut jobs = jobs.into_iter().flatten();
        Ok(jobs.any(|job| job["job"] == number && job["gpus"][0]["seats"][0].is_object()))
    })?;
    ensure!(
        site.drivers[NODE]
            .history(0)?
            .iter()
            .all(|one| one.busy == 0)
    );
    site.cancel(number)
}

#[test]
fn jobs_keep_their_caps_on_a_gpu_without_such_a_scheduler() -> Result<()> {
    let quarter = Job::start("alice", WITHOUT_SCHEDULER, QUARTER, BUSY)?;
    let half = Job::start("bob", WITHOUT_SCHEDULER, HALF, BUSY)?;
    // Each counts some of the other's time as its own.
    quarter.has(10.0, 27.0)?;
    half.has(20.0, 52.0)?;
    ensure!(quarter.group().is_err());
    let said = log_of(WITHOUT_SCHEDULER)?;
    ensure!(!said.contains(STEERED), "{said}");
    Ok(())
}

#[test]
fn jobs_keep_their_caps_where_the_driver_does_not_hold_channels() -> Result<()> {
    let quarter = Job::start("alice", WITHOUT_FIRMWARE, QUARTER, BUSY)?;
    site()?.cluster.wait_until("a fault", || {
        Ok(log_of(WITHOUT_FIRMWARE)?.contains("its channels cannot be held or released"))
    })?;
    let said = log_of(WITHOUT_FIRMWARE)?;
    ensure!(said.contains("status 0x56"), "{said}");
    quarter.has(10.0, 27.0)
}

#[test]
fn an_old_driver_is_refused_by_its_version() -> Result<()> {
    let said = "the driver is 530.30.02, and its scheduler can be steered from 535 on";
    site()?.cluster.wait_until("its version is told", || {
        Ok(log_of(OLD_DRIVER)?.contains(said))
    })
}
