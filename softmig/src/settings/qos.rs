//! The QOS in which Slurm holds people to what their class may have.

use crate::settings::partitions::BillingWeights;
use crate::settings::tres::Tres;
use softmig_policy::config::classes::ClassLimits;
use softmig_policy::config::quota::Weights;
use softmig_policy::slurm::gres_list::Configured;
use softmig_policy::{Policy, WallTime};
use std::fmt;

/// One QOS, with all that softmig says of it. Other settings of it are the site's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Qos {
    /// Its name in Slurm.
    pub(crate) name: String,
    /// Whose it is: "class student".
    pub(crate) whose: String,
    /// MaxTRESPerUser.
    pub(crate) per_user: Tres,
    /// MaxTRESPerJob.
    pub(crate) per_job: Tres,
    /// MaxJobsPerUser.
    pub(crate) jobs: Option<u64>,
    /// MaxWall.
    pub(crate) wall_time: Option<WallTime>,
    /// Priority; 0 where the policy says none, as in a new QOS.
    pub(crate) priority: u32,
}

/// The flag that each has: a job that could never start is refused, and does not wait for ever.
pub(crate) const FLAG: &str = "DenyOnLimit";

/// All that a policy needs.
pub(crate) fn all(policy: &Policy) -> Vec<Qos> {
    let standings = policy.standings().iter();
    standings
        .filter_map(|standing| of_class(policy, standing))
        .collect()
}

/// The one of a class; `None` where nothing of it is limited.
pub(crate) fn of_class(policy: &Policy, standing: &ClassLimits) -> Option<Qos> {
    let name = standing.qos.clone()?;
    let quota = &standing.quota;
    let mut per_user = Tres::default();
    let mut per_job = Tres::default();
    // A whole GPU weighs as much as its shards: TRESBillingWeights of the partitions with GPUs.
    if let Some(shards) = quota.shards {
        per_user.limit("billing", shards);
    }
    for (kind, &shards) in &quota.shards_of {
        per_user.limit(format!("gres/shard:{kind}"), shards);
        if let Some(gpu) = policy.gpu(kind) {
            let wholes = shards / u64::from(gpu.shards_per_gpu());
            per_user.limit(format!("gres/gpu:{kind}"), wholes);
        }
    }
    let has_mig = policy.gpus().any(|gpu| gpu.is_mig());
    // Not as billing: that would take weights, which also count in fair share. job_submit adds types up.
    if let Some(shards) = quota.max_shards_per_job {
        per_job.limit("gres/shard", shards);
        match policy.weights() {
            Weights::Same(of_gpu) if !has_mig => {
                per_job.limit("gres/gpu", shards / u64::from(*of_gpu));
            }
            Weights::Same(of_gpu) => {
                for kind in whole_types(policy) {
                    per_job.limit(format!("gres/gpu:{kind}"), shards / u64::from(*of_gpu));
                }
            }
            Weights::ByType(types) => {
                for (kind, of_gpu) in types.iter().filter(|(_, of_gpu)| **of_gpu > 0) {
                    per_job.limit(format!("gres/gpu:{kind}"), shards / u64::from(*of_gpu));
                }
            }
        }
    }
    match quota.whole_gpus {
        // Slurm counts a MIG instance as a GPU.
        Some(most) if has_mig => {
            for kind in whole_types(policy) {
                per_user.limit(format!("gres/gpu:{kind}"), most);
            }
        }
        Some(most) => per_user.limit("gres/gpu", most),
        None => {}
    }
    for (kind, &most) in &quota.mig {
        per_user.limit(format!("gres/gpu:{kind}"), most);
    }
    if let Some(cpus) = quota.cpus {
        per_user.limit("cpu", cpus);
    }
    if let Some(memory) = quota.host_memory_mib {
        per_user.limit("mem", memory);
    }
    Some(Qos {
        name,
        whose: standing.called(),
        per_user,
        per_job,
        jobs: quota.jobs,
        wall_time: quota.wall_time,
        priority: quota.priority.unwrap_or(0),
    })
}

/// GPUs and shards as Slurm counts them in a QOS.
pub(crate) fn amounts(policy: &Policy, gres: &[Configured]) -> Tres {
    let mut amounts = Tres::default();
    for one in gres {
        let of_all = format!("gres/{}", one.name);
        if let Some(kind) = &one.kind {
            amounts.add(format!("{of_all}:{kind}"), one.count);
        }
        amounts.add(of_all, one.count);
    }
    for (name, weight) in BillingWeights::for_policy(policy).iter() {
        let amount = amounts.get(name).unwrap_or(0);
        amounts.add("billing", amount.saturating_mul(weight));
    }
    amounts
}

impl Qos {
    /// Whether a job with the amounts `more` can start beside this many jobs of its user, which hold `held`.
    pub(crate) fn has_room(&self, jobs: u64, held: &Tres, more: &Tres) -> bool {
        let fits = |(name, most): (&str, u64)| {
            let held = held.get(name).unwrap_or(0);
            more.get(name)
                .is_none_or(|more| more == 0 || held.saturating_add(more) <= most)
        };
        self.jobs.is_none_or(|most| jobs < most) && self.per_user.iter().all(fits)
    }
}

/// The types of GPUs that every user can have whole.
pub(crate) fn whole_types(policy: &Policy) -> Vec<&str> {
    let shared = policy.gpus().filter(|gpu| !gpu.is_mig());
    let mut types: Vec<&str> = shared.map(|gpu| gpu.name()).collect();
    let plain = policy.plain_types().iter().map(String::as_str);
    types.extend(plain.filter(|kind| policy.gpu(kind).is_none()));
    types.sort_unstable();
    types.dedup();
    types
}

impl fmt::Display for Qos {
    /// As sacctmgr takes it, but for the limits of amounts: what they no longer name has to be taken out one by one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // -1 is Slurm's word for no limit.
        match self.jobs {
            Some(jobs) => write!(f, "MaxJobsPerUser={jobs}")?,
            None => f.write_str("MaxJobsPerUser=-1")?,
        }
        match self.wall_time {
            Some(time) => write!(f, " MaxWall={time}")?,
            None => f.write_str(" MaxWall=-1")?,
        }
        write!(f, " Priority={} Flags+={FLAG}", self.priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPUS: &str = "[gpu.l40s]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 4\n\
                        [gpu.h200]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 8\n";
    const MIG: &str = "[gpu.m]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 1\nmig = true\n";

    fn only(text: &str) -> Qos {
        let policy = Policy::parse(text).unwrap();
        let mut all = all(&policy);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    #[test]
    fn each_limit_has_its_place() {
        let qos = only(&format!(
            "{GPUS}[defaults]\nshards = \"unlimited\"\nwhole_gpus = \"unlimited\"\n\
             [classes.c]\nmembers = {{ users = [\"a\"] }}\nshards = 9\nshards_of = {{ h200 = 9 }}\nmax_shards_per_job = 4\n\
             whole_gpus = 2\njobs = 3\ncpus = 5\nhost_memory_mib = 6000\nwall_time = \"1-00:00:00\"\npriority = 7\n"
        ));
        assert_eq!(qos.whose, "class c");
        assert_eq!(
            qos.per_user.to_string(),
            "billing=9,cpu=5,gres/gpu=2,gres/gpu:h200=1,gres/shard:h200=9,mem=6000"
        );
        assert_eq!(
            qos.per_job.to_string(),
            "gres/gpu:h200=0,gres/gpu:l40s=1,gres/shard=4"
        );
        assert_eq!(
            qos.to_string(),
            "MaxJobsPerUser=3 MaxWall=1-00:00:00 Priority=7 Flags+=DenyOnLimit"
        );
    }

    #[test]
    fn what_the_policy_does_not_say_is_no_limit() {
        let qos = only(&format!("{GPUS}[defaults]\nshards = 1\n"));
        assert_eq!(qos.name, "softmig");
        assert_eq!(qos.per_user.to_string(), "billing=1");
        assert_eq!(qos.per_job, Tres::default());
        assert_eq!(
            qos.to_string(),
            "MaxJobsPerUser=-1 MaxWall=-1 Priority=0 Flags+=DenyOnLimit"
        );
    }

    #[test]
    fn beside_mig_each_other_type_has_the_limit_for_whole_gpus() {
        let qos = only(&format!(
            "plain_types = [\"old\"]\n{GPUS}{MIG}[defaults]\nwhole_gpus = 2\nmig = {{}}\n"
        ));
        assert_eq!(
            qos.per_user.to_string(),
            "gres/gpu:h200=2,gres/gpu:l40s=2,gres/gpu:m=0,gres/gpu:old=2"
        );
    }

    #[test]
    fn a_limit_for_each_job_takes_no_weights() {
        let only_l40s = GPUS.split("[gpu.h200]").next().unwrap();
        for (gpus, per_job) in [
            (only_l40s.to_string(), "gres/gpu=2,gres/shard=8"),
            (format!("{only_l40s}{MIG}"), "gres/gpu:l40s=2,gres/shard=8"),
        ] {
            let mig = if gpus.contains("mig") {
                "mig = {}\n"
            } else {
                ""
            };
            let text = format!("{gpus}[defaults]\nmax_shards_per_job = 8\n{mig}");
            assert_eq!(only(&text).per_job.to_string(), per_job);
            let accounting =
                crate::settings::accounting::for_policy(&Policy::parse(&text).unwrap()).unwrap();
            assert_eq!(accounting.weights, None);
        }
    }

    #[test]
    fn without_a_limit_there_is_no_qos() {
        assert!(all(&Policy::parse(GPUS).unwrap()).is_empty());
    }
}
