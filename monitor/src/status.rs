//! The jobs that take turns on each GPU, for people: the daemon tells it to root by a socket of its own ([`socket`]),
//! and `softmig-monitor --once` shows it (docs/formats.md).

#![forbid(unsafe_code)]

pub mod socket;

use crate::arbiter::{GpuId, Member, Sharing, Tenant, uuid};
use crate::schedule::turns::Nanos;
use serde::{Deserialize, Serialize};
use softmig_node::ending::Ending;
use std::collections::BTreeMap;
use std::time::Duration;

/// The jobs that take turns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnsStatus {
    /// Why nothing is known: the daemon does not run.
    pub error: Option<String>,
    /// The GPUs on which jobs take turns.
    pub gpus: Vec<SharedGpu>,
    /// The processes that were ended, or would have been; `None` if the daemon is older, or does not answer.
    #[serde(default)]
    pub ending: Option<Ending>,
}

/// A GPU on which jobs take turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharedGpu {
    /// NVML's index; `null` for a GPU that NVML does not show.
    pub index: Option<u32>,
    /// `GPU-` and so on.
    pub uuid: String,
    /// How jobs share it just now: `scheduler` or `turns`; `None` if the daemon is older.
    #[serde(default)]
    pub shared_by: Option<String>,
    /// The reason for turns, against the scheduler; `None` without one.
    #[serde(default)]
    pub why: Option<String>,
    /// The jobs that share it.
    pub jobs: Vec<Job>,
}

/// A job that takes turns on a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its number.
    pub job: u32,
    /// Its share of the GPU's time, rounded down to one decimal.
    pub compute_percent: f64,
    /// `hard` or `soft`.
    pub mode: String,
    /// Whether it has the turn.
    pub has_turn: bool,
    /// Whether it wants one.
    pub waits: bool,
    /// For how long the daemon has known it on this GPU.
    pub known_seconds: f64,
    /// The GPU time that it was charged in that time.
    pub charged_seconds: f64,
    /// The GPU time that it may take yet; below zero: that it owes.
    pub credit_seconds: f64,
    /// How many turns it had.
    pub turns: u64,
    /// How many of them it did not give back in time.
    pub overruns: u64,
    /// Its processes.
    pub processes: Vec<Process>,
}

/// A process that takes turns on a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The number of its launches without a turn, which keep it from hanging; by its own count.
    pub launches_without_turn: u32,
    /// The time for which it gets no turn, because it did not say that its turn is over. Saying so ends that.
    pub shut_out_seconds: Option<f64>,
}

impl TurnsStatus {
    /// The arbiter's knowledge.
    pub fn new(status: &BTreeMap<GpuId, Vec<Tenant>>, sharing: &BTreeMap<GpuId, Sharing>) -> Self {
        let used = status.iter().filter(|(_, tenants)| !tenants.is_empty());
        let gpus = used.map(|(id, tenants)| {
            let (shared_by, why) = sharing.get(id).map(words).unwrap_or_default();
            SharedGpu {
                index: None,
                uuid: uuid(*id),
                shared_by,
                why,
                jobs: tenants.iter().map(job).collect(),
            }
        });
        Self {
            error: None,
            gpus: gpus.collect(),
            ending: None,
        }
    }

    /// Nothing is known, for this reason.
    pub fn unknown(error: String) -> Self {
        Self {
            error: Some(error),
            gpus: Vec::new(),
            ending: None,
        }
    }

    /// Gives each GPU its index by its UUID, and sorts by that.
    pub fn with_indexes(mut self, indexes: &BTreeMap<String, u32>) -> Self {
        for gpu in &mut self.gpus {
            gpu.index = indexes.get(&gpu.uuid).copied();
        }
        self.gpus.sort_by_key(|gpu| gpu.index.unwrap_or(u32::MAX));
        self
    }
}

fn words(sharing: &Sharing) -> (Option<String>, Option<String>) {
    match sharing {
        Sharing::Scheduler => (Some("scheduler".into()), None),
        Sharing::Turns(why) => (Some("turns".into()), why.clone()),
    }
}

fn job(tenant: &Tenant) -> Job {
    let standing = &tenant.standing;
    Job {
        job: standing.job.0,
        compute_percent: f64::from(standing.share.percent_tenths()) / 10.0,
        mode: standing.mode.as_str().to_owned(),
        has_turn: standing.holds,
        waits: standing.wishes && !standing.holds,
        known_seconds: of_duration(tenant.known_for),
        charged_seconds: seconds(standing.charged),
        credit_seconds: seconds(standing.credit),
        turns: standing.turns,
        overruns: standing.overruns,
        processes: tenant.members.iter().map(process).collect(),
    }
}

fn process(member: &Member) -> Process {
    Process {
        pid: member.pid,
        launches_without_turn: member.launches_without_turn,
        shut_out_seconds: member.shut_out_for.map(of_duration),
    }
}

/// To the microsecond, which is what there is to see.
fn seconds(time: Nanos) -> f64 {
    (time / 1000) as f64 / 1e6
}

fn of_duration(time: Duration) -> f64 {
    seconds(Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::turns;
    use softmig_policy::node::limits::{Mode, Share};

    /// A job of two processes, one of which does not answer.
    fn tenant() -> Tenant {
        Tenant {
            standing: turns::JobStatus {
                job: turns::Job(12),
                share: Share::new(1, 8).unwrap(),
                mode: Mode::Soft,
                since: 0,
                seats: 2,
                holds: false,
                wishes: true,
                credit: -600_000_999,
                charged: 31_250_000_000,
                turns: 7,
                overruns: 1,
            },
            known_for: Duration::from_millis(125_500),
            members: vec![
                Member {
                    pid: 101,
                    launches_without_turn: 3,
                    shut_out_for: None,
                },
                Member {
                    pid: 102,
                    launches_without_turn: 0,
                    shut_out_for: Some(Duration::from_millis(4250)),
                },
            ],
        }
    }

    #[test]
    fn what_the_arbiter_knows_is_told_in_seconds_and_percent() {
        let id = core::array::from_fn(|at| at as u8 * 16 + 15);
        let status = BTreeMap::from([(id, vec![tenant()]), ([0; 16], Vec::new())]);
        let sharing = BTreeMap::from([(id, Sharing::Turns(Some("it ran on".into())))]);
        let turns = TurnsStatus::new(&status, &sharing);
        let [gpu] = turns.gpus.as_slice() else {
            panic!("{turns:?}")
        };
        assert_eq!(gpu.uuid, "GPU-0f1f2f3f-4f5f-6f7f-8f9f-afbfcfdfefff");
        assert_eq!(gpu.shared_by.as_deref(), Some("turns"));
        assert_eq!(gpu.why.as_deref(), Some("it ran on"));
        let steered = TurnsStatus::new(&status, &BTreeMap::from([(id, Sharing::Scheduler)]));
        assert_eq!(steered.gpus[0].shared_by.as_deref(), Some("scheduler"));
        assert_eq!(steered.gpus[0].why, None);
        let job = &gpu.jobs[0];
        assert_eq!((job.job, job.compute_percent), (12, 12.5));
        assert_eq!((job.has_turn, job.waits), (false, true));
        assert_eq!((job.known_seconds, job.charged_seconds), (125.5, 31.25));
        assert_eq!(job.credit_seconds, -0.6);
        let shut_out: Vec<_> = job.processes.iter().map(|it| it.shut_out_seconds).collect();
        assert_eq!(shut_out, [None, Some(4.25)]);
    }

    #[test]
    fn an_older_daemon_does_not_say_how_jobs_share_a_gpu() {
        let text = r#"{"error":null,"gpus":[{"index":null,"uuid":"GPU-a","jobs":[]}]}"#;
        let turns: TurnsStatus = serde_json::from_str(text).unwrap();
        assert_eq!(turns.gpus[0].shared_by, None);
    }

    #[test]
    fn a_gpu_has_the_index_that_nvml_gives_it() {
        let gpu = |uuid: &str| SharedGpu {
            index: None,
            uuid: uuid.into(),
            shared_by: None,
            why: None,
            jobs: Vec::new(),
        };
        let turns = TurnsStatus {
            error: None,
            gpus: vec![gpu("GPU-c"), gpu("GPU-b"), gpu("GPU-a")],
            ending: None,
        };
        let known = ["GPU-a", "GPU-b"].map(str::to_owned).into_iter().zip(0..);
        let found = turns.with_indexes(&known.collect());
        let found: Vec<_> = found
            .gpus
            .into_iter()
            .map(|gpu| (gpu.index, gpu.uuid))
            .collect();
        let wanted = [(Some(0), "GPU-a"), (Some(1), "GPU-b"), (None, "GPU-c")];
        assert_eq!(found, wanted.map(|(index, uuid)| (index, uuid.to_owned())));
    }
}
