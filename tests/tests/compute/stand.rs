//! GPUs for one test, clients that launch on them, and what the GPUs did.

use std::ops::Deref;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use softmig_fake_node::{Description, Gpu, Node};
use softmig_tests::command::PATIENCE;

use crate::stand;
pub use crate::stand::Running;

/// How often a share is measured until one is as it should be: others use this machine too.
pub const TRIES: usize = 4;

/// A job without Slurm: the file that its processes share.
pub const JOB: &str = "job";
/// Another.
pub const OTHER_JOB: &str = "other-job";

/// GPUs.
pub struct Stand(stand::Stand);

impl Deref for Stand {
    type Target = stand::Stand;

    fn deref(&self) -> &stand::Stand {
        &self.0
    }
}

impl Stand {
    /// One H200.
    pub fn new() -> Result<Stand> {
        Stand::with(1)
    }

    /// With this number of GPUs.
    pub fn with(count: u32) -> Result<Stand> {
        let gpus = Description::new(&Gpu::several(count, Gpu::h200));
        Ok(Stand(stand::Stand::new(gpus, &[JOB, OTHER_JOB])?))
    }

    /// A client with the library, and a share in percent.
    pub fn limited(&self, percent: &str, words: &[&str]) -> Command {
        let mut command = self.preloaded(words);
        command.env("CUDA_DEVICE_SM_LIMIT", percent);
        command
    }

    /// The same, in a job whose processes have the share together. Its messages are in [`Self::log`].
    pub fn of_job(&self, job: &str, percent: &str, words: &[&str]) -> Command {
        let mut command = self.limited(percent, words);
        command
            .env("SOFTMIG_RUN", self.path(job))
            .env("SOFTMIG_LOG_LEVEL", "2")
            .env("SOFTMIG_LOG_FILE", self.path("log"));
        command
    }

    /// The log of the jobs' clients.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Waits until a process has launched something.
    pub fn wait_for_work(&self, pid: u32) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while busy(&self.gpus, 0, Some(pid))?.is_zero() {
            ensure!(Instant::now() < deadline, "{pid} launches nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// How long the first GPU has worked.
    pub fn busy(&self) -> Result<Duration> {
        busy(&self.gpus, 0, None)
    }

    /// See [`share_in`].
    pub fn share_in(&self, device: usize, pid: Option<u32>, time: Duration) -> Result<f64> {
        share_in(&self.gpus, device, pid, time)
    }

    /// A folder of its own, for what clients tell each other.
    pub fn folder(&self) -> Result<String> {
        self.new_folder("folder")
    }

    /// The same, with a name.
    pub fn new_folder(&self, name: &str) -> Result<String> {
        let folder = self.path(name);
        std::fs::create_dir(&folder)?;
        Ok(folder.to_string_lossy().into_owned())
    }
}

/// How long a GPU has worked and will for what is in its queue, for all or for one process.
pub fn busy(gpus: &Node, device: usize, pid: Option<u32>) -> Result<Duration> {
    let all = gpus.history(device)?;
    let is_meant = |own: u32| pid.is_none_or(|pid| own == pid);
    let meant = all.iter().filter(|one| is_meant(one.own_pid));
    Ok(Duration::from_nanos(meant.map(|one| one.busy).sum()))
}

/// The share of a GPU that is used in the time to come, in percent.
pub fn share_in(gpus: &Node, device: usize, pid: Option<u32>, time: Duration) -> Result<f64> {
    let (start, before) = (gpus.now(), busy(gpus, device, pid)?);
    std::thread::sleep(time);
    let (end, after) = (gpus.now(), busy(gpus, device, pid)?);
    let passed = Duration::from_nanos(end - start);
    Ok((after - before).as_secs_f64() / passed.as_secs_f64() * 100.0)
}

/// A process has such a share in a second, in percent, once that is right.
pub fn has_share(gpus: &Node, pid: u32, least: f64, most: f64) -> Result<()> {
    let is_right = |got| got >= least && got <= most;
    let what = format!("process {pid}: {least} to {most} %");
    let measure = || share_in(gpus, 0, Some(pid), Duration::from_secs(1));
    let got = in_some_try(&what, measure, is_right)?;
    println!("{what}: {got:.1}");
    Ok(())
}

/// Runs a client to its end.
pub fn run(command: Command) -> Result<String> {
    end(Running::start(command)?)
}

/// The output of a client until its end, which has to be a good one.
pub fn end(running: Running) -> Result<String> {
    let said = running.end()?;
    ensure!(said.status.success(), "{said:#?}");
    Ok(said.lines.join("\n"))
}

/// The number behind a word that a client said.
pub fn number(said: &str, word: &str) -> Result<f64> {
    let mut words = said.split_whitespace().skip_while(|one| *one != word);
    let number = words
        .nth(1)
        .with_context(|| format!("no \"{word}\" in {said}"))?;
    Ok(number.parse()?)
}

/// The share of the GPU that a client of `paced` had, in percent.
pub fn share(command: Command) -> Result<f64> {
    Ok(number(&run(command)?, "share")? / 100.0)
}

/// Measures until the figure is right, and fails if it never is. On a busy machine a client has less than it could, or
/// looks at the clock too late, so the tries go on for longer while other processes want all of the machine.
pub fn in_some_try(
    what: &str,
    measure: impl Fn() -> Result<f64>,
    is_right: impl Fn(f64) -> bool,
) -> Result<f64> {
    let deadline = Instant::now() + PATIENCE;
    let mut seen = Vec::new();
    while seen.len() < TRIES || is_busy() && Instant::now() < deadline {
        let got = measure()?;
        if is_right(got) {
            return Ok(got);
        }
        seen.push(got);
    }
    bail!("{what}: {seen:.2?}")
}

/// Whether more threads want to run than can.
fn is_busy() -> bool {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let wants = load.split([' ', '/']).nth(3).map(str::parse);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // This thread runs too.
    wants.is_some_and(|wants| wants.is_ok_and(|wants: usize| wants > processors + 1))
}
