//! What a class may never hold: a job that asks for that would wait for ever.

use crate::config::classes::Standing;
use crate::config::gpu_types::GpuType;
use crate::config::policy::Policy;
use crate::config::refusal_code::Code;
use crate::decision::gpu_demand::Asked;
use crate::decision::refusal::Refusal;
use crate::decision::submitter::Submitter;
use crate::decision::wording::{name_a_type, number, with_limits};
use crate::slurm::time_limit::WallTime;

/// Refuses a job that could never start.
pub(crate) fn fit(
    policy: &Policy,
    asked: &Asked<'_>,
    standing: &Standing,
    submitter: &Submitter,
) -> Result<(), Refusal> {
    let ceilings = Ceilings {
        policy,
        asked,
        standing,
        who: standing.called(),
    };
    if standing.quota.jobs == Some(0) {
        return Err(ceilings.refuse(
            Code::LimitJob,
            format!("{} may run no jobs with GPUs", ceilings.who),
        ));
    }
    ceilings.mig()?;
    ceilings.wholes()?;
    ceilings.shards()?;
    ceilings.wall_time(submitter)
}

struct Ceilings<'a> {
    policy: &'a Policy,
    asked: &'a Asked<'a>,
    standing: &'a Standing,
    who: String,
}

impl Ceilings<'_> {
    fn refuse(&self, code: Code, message: String) -> Refusal {
        Refusal::new(
            code,
            format!("{}: {message}", self.asked.text),
            self.instead(),
        )
    }

    fn mig(&self) -> Result<(), Refusal> {
        for (gpu, count) in &self.asked.mig {
            let most = self.standing.quota.mig.get(gpu.name());
            if let Some(most) = most.filter(|most| count > most) {
                return Err(self.refuse(
                    Code::LimitJob,
                    format!(
                        "{} of type {} {} asked for, and {} may hold {most} at once",
                        number(*count, "MIG instance"),
                        gpu.name(),
                        is(*count),
                        self.who
                    ),
                ));
            }
        }
        Ok(())
    }

    fn wholes(&self) -> Result<(), Refusal> {
        let (quota, asked) = (&self.standing.quota, self.asked);
        match quota.whole_gpus {
            Some(0) if asked.wholes > 0 => {
                let message = format!("{} may have no whole GPUs", self.who);
                return Err(self.refuse(Code::WholeGpuClass, message));
            }
            Some(most) if asked.wholes > most => {
                let message = format!(
                    "{} asked for, and {} may hold {most} at once",
                    are(asked.wholes, "whole GPU"),
                    self.who
                );
                return Err(self.refuse(Code::LimitJob, message));
            }
            _ => {}
        }
        let is_weighed = self.policy.weights().by_type()
            && (quota.shards.is_some()
                || quota.max_shards_per_job.is_some()
                || quota.whole_gpus.is_some());
        if asked.is_untyped && (is_weighed || !quota.shards_of.is_empty()) {
            return Err(Refusal::new(
                Code::LimitJob,
                format!(
                    "{}: names no type of GPU, and types count differently in what {} may hold",
                    asked.text, self.who
                ),
                name_a_type(self.policy),
            ));
        }
        Ok(())
    }

    fn shards(&self) -> Result<(), Refusal> {
        let (quota, asked) = (&self.standing.quota, self.asked);
        let refuse = |shards: u64, may: String| {
            let counted = match asked.wholes {
                0 => format!("{} asked for", are(shards, "shard")),
                _ => format!("this counts as {}", number(shards, "shard")),
            };
            self.refuse(
                Code::LimitJob,
                format!("{counted}, and {} may {may}", self.who),
            )
        };
        let shards = asked.shards();
        if let Some(most) = quota.shards.filter(|&most| shards > most) {
            return Err(refuse(shards, format!("hold {most} at once")));
        }
        if let Some(most) = quota.max_shards_per_job.filter(|&most| shards > most) {
            return Err(refuse(shards, format!("have {most} in one job")));
        }
        for (kind, most) in &quota.shards_of {
            let shards = asked.shards_of(kind);
            if shards > *most {
                return Err(refuse(
                    shards,
                    format!("hold {most} of type {kind} at once"),
                ));
            }
        }
        Ok(())
    }

    fn wall_time(&self, submitter: &Submitter) -> Result<(), Refusal> {
        match (self.standing.quota.wall_time, submitter.time_limit) {
            (Some(most), Some(asked)) if asked > most.minutes() => Err(Refusal::new(
                Code::LimitJob,
                format!(
                    "{}: {} asked for, and {} may have {most}",
                    self.asked.text,
                    time(asked),
                    self.who
                ),
                format!("use --time={most} or less"),
            )),
            _ => Ok(()),
        }
    }

    /// Fewer of the same, or else the largest slice that the class may have, of the type that was asked for if there is one.
    fn instead(&self) -> String {
        let quota = &self.standing.quota;
        if let Some(fewer) = self.fewer().filter(|_| quota.jobs != Some(0)) {
            return format!("use {fewer}");
        }
        let slice = self.asked.slice.map(|(gpu, _)| gpu);
        let named = slice.or(self.asked.of_types.first().map(|(gpu, _)| *gpu));
        let fits = |gpu: &GpuType, size: &u32| {
            let shards = u64::from(gpu.shards_per_gpu() / size);
            let of_type = quota.shards_of.get(gpu.name()).copied();
            quota.jobs != Some(0)
                && [quota.shards, quota.max_shards_per_job, of_type]
                    .into_iter()
                    .flatten()
                    .all(|most| shards <= most)
        };
        for gpu in named.into_iter().chain(self.policy.gpus()) {
            let size = gpu.slices().iter().find(|size| fits(gpu, size));
            if let Some(slice) = size.and_then(|&size| with_limits(gpu, size)) {
                return format!("use {slice}");
            }
        }
        format!("ask your administrator what {} may have", self.who)
    }
}

impl Ceilings<'_> {
    /// So many whole GPUs or MIG instances of the type that was asked for as the class may hold, if that is any and fewer.
    fn fewer(&self) -> Option<String> {
        let quota = &self.standing.quota;
        let (gpu, asked, most) = match (self.asked.mig.as_slice(), self.asked.of_types.as_slice()) {
            ([(gpu, asked)], []) => (gpu, asked, quota.mig.get(gpu.name()).copied()),
            ([], [(gpu, asked)]) => {
                let of_type = quota.shards_of.get(gpu.name()).copied();
                let shards = [quota.shards, quota.max_shards_per_job, of_type];
                let shards = shards.into_iter().flatten().min();
                let by_shards = shards.map(|shards| shards / u64::from(gpu.shards_per_gpu()));
                let most = [quota.whole_gpus, by_shards].into_iter().flatten().min();
                (gpu, asked, most)
            }
            _ => return None,
        };
        let most = most.filter(|most| *most > 0 && most < asked && !self.asked.is_for_each)?;
        Some(format!("--gres=gpu:{}:{most}", gpu.name()))
    }
}

/// "1 shard is", "2 shards are".
fn are(count: u64, what: &str) -> String {
    format!("{} {}", number(count, what), is(count))
}

fn is(count: u64) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

/// A time that is asked for, in minutes.
fn time(minutes: u32) -> String {
    match WallTime::of_minutes(minutes) {
        Some(time) => format!("{time} is"),
        None => "an unlimited time is".to_string(),
    }
}
