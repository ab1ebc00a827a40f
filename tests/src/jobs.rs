//! The states of a cluster's jobs and nodes, asked of slurmctld or waited for.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::command::PATIENCE;
use crate::crashes::is_slurms_own;
use crate::node::Node;

/// How often something that is waited for is looked at.
const POLL: Duration = Duration::from_millis(20);

impl Cluster {
    /// The state of each node by `sinfo`.
    pub fn sinfo_states(&self) -> Result<Vec<String>> {
        // slurm.conf may name further nodes, which have no slurmd.
        let names: Vec<&str> = self.nodes().iter().map(Node::name).collect();
        let own = format!("--nodes={}", names.join(","));
        let said = self
            .run(
                "root",
                &["sinfo", "--noheader", "--Node", "--format=%N %T", &own],
            )?
            .ok()?;
        // A node has a line for each of its partitions.
        let lines: BTreeSet<&str> = said.lines().collect();
        let states = lines
            .iter()
            .filter_map(|line| line.split_whitespace().nth(1));
        Ok(states.map(str::to_owned).collect())
    }

    /// A job's state, such as `PENDING`; nothing when slurmctld does not know it.
    pub fn job_state(&self, job: impl Display) -> Result<Option<String>> {
        self.job_field(job, "JobState")
    }

    /// One field of what `scontrol -d show job` says of a job. A value ends at the next blank.
    pub fn job_field(&self, job: impl Display, field: &str) -> Result<Option<String>> {
        let ask = || {
            self.run(
                "root",
                &["scontrol", "-d", "-o", "show", "job", &job.to_string()],
            )
        };
        let mut said = ask()?;
        // Seen once, on 22.05. After a crash in softmig's library it is not asked again.
        if said.status.signal() == Some(Signal::SEGV.as_raw()) && is_slurms_own("scontrol") {
            println!("asked again: {said}");
            said = ask()?;
        }
        if !said.success() && said.stderr.contains("Invalid job id") {
            return Ok(None);
        }
        let wanted = format!("{field}=");
        let said = said.ok()?;
        let mut words = said.split_whitespace();
        Ok(words
            .find_map(|word| word.strip_prefix(&wanted))
            .map(str::to_owned))
    }

    /// Waits until a job is in this state.
    pub fn wait_job(&self, job: impl Display, state: &str) -> Result<()> {
        let mut seen = None;
        let waited = self.wait_until(&format!("job {job} is {state}"), || {
            seen = self.job_state(&job)?;
            // Nothing leads out of these, so there is nothing more to wait for.
            let over = ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"];
            match seen.as_deref() {
                Some(now) if now == state => Ok(true),
                Some(now) if over.contains(&now) => bail!("job {job} is {now}, not {state}"),
                _ => Ok(false),
            }
        });
        waited.with_context(|| format!("job {job} was last seen as {seen:?}"))
    }

    /// Reserves all nodes for jobs of these users, from now on and beside any other reservation.
    pub fn reserve_nodes(&self, name: &str, users: &str) -> Result<()> {
        let create = [
            "scontrol",
            "create",
            "reservation",
            &format!("reservationname={name}"),
            &format!("users={users}"),
            "starttime=now",
            "duration=120",
            "nodes=ALL",
            "flags=overlap,ignore_jobs",
        ];
        let made = self.run("root", &create)?.ok();
        made.map(drop).with_context(|| format!("reserving {name}"))
    }

    /// Waits until a job waits for this reason, such as `QOSMaxGRESPerUser`.
    pub fn wait_reason(&self, job: impl Display, reason: &str) -> Result<()> {
        let mut seen = None;
        let waited = self.wait_until(&format!("job {job} waits: {reason}"), || {
            if self.job_state(&job)?.as_deref() != Some("PENDING") {
                bail!("job {job} does not wait");
            }
            seen = self.job_field(&job, "Reason")?;
            Ok(seen.as_deref() == Some(reason))
        });
        waited.with_context(|| format!("job {job} was last seen to wait for {seen:?}"))
    }

    /// The GPUs that a job has on its first node, as Slurm counts them; none before it starts.
    pub fn job_gpus(&self, job: impl Display) -> Result<Vec<u32>> {
        let gres = self.job_field(job, "GRES")?.unwrap_or_default();
        indexes(&gres).with_context(|| format!("GRES={gres}"))
    }

    /// Waits for something to become true, looking every 20 ms, and fails naming `what` after
    /// [`PATIENCE`].
    pub fn wait_until(&self, what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
        self.wait_for(what, || Ok(holds()?.then_some(())))
    }

    /// Waits for something to be there, and fails naming `what` after [`PATIENCE`].
    pub fn wait_for<T>(
        &self,
        what: &str,
        mut look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match look() {
                Ok(Some(found)) => return Ok(found),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL),
                Ok(None) => {
                    return Err(self.with_logs(&format!("waited {PATIENCE:?} in vain: {what}")));
                }
                Err(error) => {
                    return Err(self.with_logs(&format!("while waiting: {what}: {error:#}")));
                }
            }
        }
    }
}

/// The GPUs in Slurm's account of a job: `shard:l40s:1(IDX:0-1)` in 22.05, `shard:l40s:1(0/4,1/4,0/4)` later on.
fn indexes(gres: &str) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for part in gres.split('(').skip(1) {
        let list = part.split(')').next().unwrap_or_default();
        let Some(ranges) = list.strip_prefix("IDX:") else {
            let held = (0..).zip(list.split(','));
            let held =
                held.filter(|(_, share)| !share.starts_with("0/") && !share.starts_with('-'));
            found.extend(held.map(|(index, _)| index));
            continue;
        };
        for range in ranges.split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            found.extend(first.parse::<u32>()?..=last.parse()?);
        }
    }
    Ok(found)
}
