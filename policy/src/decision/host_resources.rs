//! CPUs and host memory of a slice, by its shards: Slurm's own defaults per GPU do not apply to shards.

use crate::config::classes::ClassLimits;
use crate::decision::reason::{LimitPassed, Reason};
use crate::decision::refusal::Refusal;
use crate::slurm::job_request::Request;

/// Gives a slice job CPUs and memory if it requests none, and refuses more than its shards of each node allow. A job that Slurm has
/// already keeps its own.
pub(crate) fn fit(
    request: &mut Request,
    asked: &str,
    shards: u32,
    standing: &ClassLimits,
    is_change: bool,
) -> Result<(), Refusal> {
    let quota = &standing.quota;
    let (shards, nodes) = (u64::from(shards), request.nodes());
    // For each node.
    let figure = |each: Option<u64>| each.map(|each| each.saturating_mul(shards));
    let host = Host {
        asked,
        standing,
        shards,
        nodes,
        is_change,
    };
    let most = figure(quota.max_cpus_per_shard);
    host.fit_cpus(request, figure(quota.cpus_per_shard.map(u64::from)), most)?;
    let most = figure(quota.max_host_memory_mib_per_shard);
    let given = quota.host_memory_mib_per_shard.map(u64::from);
    host.fit_memory(request, figure(given), most)
}

/// Refuses more CPUs or memory than all jobs of a class may hold together: the job could never start.
pub(crate) fn within(
    request: &Request,
    asked: &str,
    standing: &ClassLimits,
) -> Result<(), Refusal> {
    let refuse = |limit| {
        let who = standing.called();
        Err(Refusal::new(asked, Reason::Limit { who, limit }))
    };
    let cpus = cpus(request);
    if let Some(most) = standing.quota.cpus.filter(|&most| cpus > most) {
        return refuse(LimitPassed::Cpus { asked: cpus, most });
    }
    let nodes = request.nodes();
    let memory = match (request.memory_per_node, request.memory_per_cpu) {
        (Some(mib), _) => mib.saturating_mul(nodes),
        (None, Some(mib)) => mib.saturating_mul(cpus),
        (None, None) => 0,
    };
    match standing.quota.host_memory_mib {
        Some(most) if memory > most => refuse(LimitPassed::Memory {
            mib: memory,
            most_mib: most,
            most_mib_per_node: most / nodes,
        }),
        _ => Ok(()),
    }
}

struct Host<'a> {
    asked: &'a str,
    standing: &'a ClassLimits,
    /// Those of one node.
    shards: u64,
    nodes: u64,
    is_change: bool,
}

impl Host<'_> {
    fn fit_cpus(
        &self,
        request: &mut Request,
        default: Option<u64>,
        most: Option<u64>,
    ) -> Result<(), Refusal> {
        let cpus = cpus(request);
        let of_node = cpus_of_node(request);
        let has_a_task_each = request.tasks() == self.nodes;
        // The clients send one for each node also if the user gave no number.
        if let Some(default) =
            default.filter(|_| cpus <= self.nodes && has_a_task_each && !self.is_change)
        {
            let of_class = self.of_class(self.standing.quota.cpus);
            let least = [Some(default), most, of_class].into_iter().flatten().min();
            let given = u32::try_from(least.unwrap_or(default)).unwrap_or(u32::MAX);
            if request.cpus_per_task.is_none_or(|cpus| cpus <= 1) {
                let nodes = u32::try_from(self.nodes).unwrap_or(u32::MAX);
                request.cpus_per_task = Some(given);
                request.min_cpus = Some(given.saturating_mul(nodes));
            }
            return Ok(());
        }
        match most {
            Some(most) if of_node > most => Err(self.refuse(LimitPassed::SliceCpus {
                asked: of_node,
                most,
                shards: self.shards,
            })),
            _ => Ok(()),
        }
    }

    fn fit_memory(
        &self,
        request: &mut Request,
        default: Option<u64>,
        most: Option<u64>,
    ) -> Result<(), Refusal> {
        let asked = match (request.memory_per_node, request.memory_per_cpu) {
            // Without a default of the policy, Slurm's own would apply, which does not count shards.
            (None, None) if self.is_change => return Ok(()),
            (None, None) => {
                let of_class = self.of_class(self.standing.quota.host_memory_mib);
                let given = default.or(most);
                let least = [given, most, of_class].into_iter().flatten().min();
                request.memory_per_node = given.and(least);
                return Ok(());
            }
            (Some(mib), _) => mib,
            (None, Some(mib)) => mib.saturating_mul(cpus_of_node(request)),
        };
        let Some(most) = most else { return Ok(()) };
        let mib = match asked {
            // All that a node has.
            0 => None,
            asked if asked > most => Some(asked),
            _ => return Ok(()),
        };
        Err(self.refuse(LimitPassed::SliceMemory {
            mib,
            most_mib: most,
            shards: self.shards,
        }))
    }

    /// A node's part of what all jobs of the class may have. No default makes a job with several nodes too large.
    fn of_class(&self, all: Option<u64>) -> Option<u64> {
        let all = all.filter(|_| self.nodes > 1)?;
        Some((all / self.nodes).max(1))
    }

    fn refuse(&self, limit: LimitPassed) -> Refusal {
        let who = self.standing.called();
        Refusal::new(self.asked, Reason::Limit { who, limit })
    }
}

/// The CPUs of the job; 1 if it requests none.
fn cpus(request: &Request) -> u64 {
    let by_task = request.tasks().saturating_mul(cpus_per_task(request));
    let by_node = u64::from(request.min_cpus_per_node.unwrap_or(0)).saturating_mul(request.nodes());
    let least = u64::from(request.min_cpus.unwrap_or(0));
    by_task.max(by_node).max(least)
}

/// The CPUs of the node that has most of them, if its tasks are spread evenly.
fn cpus_of_node(request: &Request) -> u64 {
    let tasks = request.tasks().div_ceil(request.nodes());
    let by_task = tasks.saturating_mul(cpus_per_task(request));
    by_task.max(cpus(request).div_ceil(request.nodes()))
}

fn cpus_per_task(request: &Request) -> u64 {
    request.cpus_per_task.unwrap_or(1).max(1).into()
}
