//! The host's part of a slice: CPUs and memory by its shards, since Slurm's own defaults for GPUs do not see shards.

use crate::config::classes::Standing;
use crate::config::refusal_code::Code;
use crate::decision::refusal::Refusal;
use crate::decision::wording::number;
use crate::slurm::job_request::Request;

/// Gives a slice job its CPUs and memory where it asks for none, and refuses more than its shards allow. A job that is in
/// Slurm already has something of each: nothing is given to it.
pub(crate) fn fit(
    request: &mut Request,
    asked: &str,
    shards: u32,
    standing: &Standing,
    is_change: bool,
) -> Result<(), Refusal> {
    let per_shard = &standing.quota.per_shard;
    let shards = u64::from(shards);
    let figure = |each: Option<u64>| each.map(|each| each.saturating_mul(shards));
    let host = Host {
        asked,
        who: standing.called(),
        shards,
        is_change,
    };
    let most = figure(per_shard.max_cpus);
    host.fit_cpus(request, figure(per_shard.cpus.map(u64::from)), most)?;
    let most = figure(per_shard.max_memory_mib);
    host.fit_memory(request, figure(per_shard.memory_mib.map(u64::from)), most)
}

/// Refuses what is more of the host than all jobs of a class may hold together: it could never start.
pub(crate) fn within(request: &Request, asked: &str, standing: &Standing) -> Result<(), Refusal> {
    let who = standing.called();
    let refuse = |words: String, most: String, hint: String| {
        let message = format!("{asked}: {words} asked for, and {who} may hold {most} at once");
        Err(Refusal::new(Code::LimitJob, message, hint))
    };
    let cpus = cpus(request);
    if let Some(most) = standing.quota.cpus.filter(|&most| cpus > most) {
        return refuse(
            format!("{cpus} CPUs are"),
            number(most, "CPU"),
            format!("ask for {most} or fewer in all, by --ntasks times --cpus-per-task"),
        );
    }
    let nodes = u64::from(request.min_nodes.unwrap_or(1).max(1));
    let memory = match (request.memory_per_node, request.memory_per_cpu) {
        (Some(mib), _) => mib.saturating_mul(nodes),
        (None, Some(mib)) => mib.saturating_mul(cpus),
        (None, None) => 0,
    };
    match standing.quota.host_memory_mib {
        Some(most) if memory > most => refuse(
            format!("{memory} MiB of host memory are"),
            format!("{most} MiB"),
            format!("use --mem={}M or less", most / nodes),
        ),
        _ => Ok(()),
    }
}

struct Host<'a> {
    asked: &'a str,
    who: String,
    shards: u64,
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
        // The clients say 1 also when nobody asked.
        if let Some(default) =
            default.filter(|_| cpus <= 1 && request.tasks() == 1 && !self.is_change)
        {
            let given = u32::try_from(default.min(most.unwrap_or(default))).unwrap_or(u32::MAX);
            if request.cpus_per_task.is_none_or(|cpus| cpus <= 1) {
                request.cpus_per_task = Some(given);
                request.min_cpus = Some(given);
            }
            return Ok(());
        }
        match most {
            Some(most) if cpus > most => Err(self.too_much(
                format!("{cpus} CPUs"),
                format!("{most}"),
                format!("ask for {most} CPUs or fewer in all, by --ntasks times --cpus-per-task"),
            )),
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
            // Without a default, what is not asked for would be Slurm's own, which knows no shards.
            (None, None) if self.is_change => return Ok(()),
            (None, None) => {
                let given = default.or(most);
                request.memory_per_node = given.map(|given| given.min(most.unwrap_or(given)));
                return Ok(());
            }
            (Some(mib), _) => mib,
            (None, Some(mib)) => mib.saturating_mul(cpus(request)),
        };
        let Some(most) = most else { return Ok(()) };
        let words = match asked {
            0 => "all of a node's memory is".to_string(),
            asked if asked > most => format!("{asked} MiB of host memory are"),
            _ => return Ok(()),
        };
        Err(Refusal::new(
            Code::LimitJob,
            format!(
                "{}: {words} asked for, and {} may have {most} MiB for {}",
                self.asked,
                self.who,
                number(self.shards, "shard")
            ),
            format!("use --mem={most}M or less"),
        ))
    }

    fn too_much(&self, asked: String, most: String, hint: String) -> Refusal {
        Refusal::new(
            Code::LimitJob,
            format!(
                "{}: {asked} are asked for, and {} may have {most} for {}",
                self.asked,
                self.who,
                number(self.shards, "shard")
            ),
            hint,
        )
    }
}

/// The CPUs of the job; 1 where it asks for none.
fn cpus(request: &Request) -> u64 {
    let by_task = u64::from(request.tasks()) * u64::from(request.cpus_per_task.unwrap_or(1).max(1));
    let least = request.min_cpus.max(request.min_cpus_per_node);
    by_task.max(u64::from(least.unwrap_or(0)))
}
