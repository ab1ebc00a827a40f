//! The limits of users: the keys that `[defaults]`, `[classes.NAME]` and `[users.NAME]` share, each over the one
//! before.

use crate::config::gpu_types::GpuType;
use crate::config::limit::Limit;
use crate::slurm::time_limit::{MaxWallTime, WallTime};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The members of a class.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Members {
    /// By name.
    #[serde(default)]
    pub(crate) users: Vec<String>,
    /// By the Slurm account of the job.
    #[serde(default)]
    pub(crate) accounts: Vec<String>,
    /// By primary group, in numbers: softmig looks up no names inside slurmctld.
    #[serde(default)]
    pub(crate) groups: Vec<u32>,
}

/// Makes the tables, each with keys of its own and all that can be said at every level.
macro_rules! layered {
    ($($key:ident: $kind:ty,)+) => {
        /// The keys of one level; for a missing key the level below counts.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct QuotaOverride {
            $(pub(crate) $key: Option<$kind>,)+
        }

        impl QuotaOverride {
            /// This over another.
            pub(crate) fn over(&self, below: &QuotaOverride) -> QuotaOverride {
                QuotaOverride {
                    $($key: self.$key.clone().or_else(|| below.$key.clone()),)+
                }
            }

            /// Whether nothing is said.
            pub(crate) fn is_empty(&self) -> bool {
                $(self.$key.is_none())&&+
            }
        }

        layered!(@table "`[defaults]`." DefaultsTable {} $($key: $kind,)+);
        layered!(@table "`[classes.NAME]`." ClassTable {
            members: Option<Members>,
            qos: Option<String>,
        } $($key: $kind,)+);
        layered!(@table "`[users.NAME]`." UserTable {
            class: Option<String>,
            qos: Option<String>,
        } $($key: $kind,)+);
    };
    (@table $doc:literal $name:ident { $($own:ident: $type:ty,)* } $($key:ident: $kind:ty,)+) => {
        #[doc = $doc]
        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $(pub(crate) $own: $type,)*
            $($key: Option<$kind>,)+
        }

        impl $name {
            /// Its values for the keys that every level has.
            pub(crate) fn layer(&self) -> QuotaOverride {
                QuotaOverride { $($key: self.$key.clone(),)+ }
            }
        }
    };
}

layered! {
    shards: Limit,
    shards_of: BTreeMap<String, Limit>,
    max_shards_per_job: Limit,
    whole_gpus: Limit,
    mig: BTreeMap<String, Limit>,
    jobs: Limit,
    cpus: Limit,
    host_memory_mib: Limit,
    wall_time: MaxWallTime,
    priority: u32,
    other_qos: Vec<String>,
    cpus_per_shard: u32,
    max_cpus_per_shard: Limit,
    host_memory_mib_per_shard: u32,
    max_host_memory_mib_per_shard: Limit,
    idle_minutes: Limit,
}

/// The limits of a user. `None` means unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Shards held at once; a whole GPU counts as its type's.
    pub shards: Option<u64>,
    /// Shards of a type held at once, for the types that have a limit of their own.
    pub shards_of: BTreeMap<String, u64>,
    /// Shards of one job.
    pub max_shards_per_job: Option<u64>,
    /// Whole GPUs held at once.
    pub whole_gpus: Option<u64>,
    /// MIG instances held at once, for the types that have a limit.
    pub mig: BTreeMap<String, u64>,
    /// Jobs with GPUs that run at once.
    pub jobs: Option<u64>,
    /// CPUs of those jobs.
    pub cpus: Option<u64>,
    /// Host memory of those jobs, in MiB.
    pub host_memory_mib: Option<u64>,
    /// The longest job.
    pub wall_time: Option<WallTime>,
    /// Slurm's QOS priority.
    pub priority: Option<u32>,
    /// The QOS that a job may name besides the class's own.
    pub other_qos: Vec<String>,
    /// The part of the host that a slice job gets for each shard.
    pub per_shard: PerShard,
}

/// The host's part of a slice, for each shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerShard {
    /// CPUs, where the job asks for none.
    pub cpus: Option<u32>,
    /// The most CPUs.
    pub max_cpus: Option<u64>,
    /// Memory in MiB, where the job asks for none.
    pub memory_mib: Option<u32>,
    /// The most memory in MiB.
    pub max_memory_mib: Option<u64>,
}

impl Quota {
    /// True if so many shards of a type in one job are within the limits that every job has.
    pub(crate) fn allows_slice(&self, gpu_type: &str, shards: u64) -> bool {
        let of_type = self.shards_of.get(gpu_type).copied();
        let limits = [self.shards, self.max_shards_per_job, of_type];
        self.jobs != Some(0) && limits.into_iter().flatten().all(|most| shards <= most)
    }

    /// Whether Slurm has to hold anything of it, which takes a QOS.
    pub fn needs_qos(&self) -> bool {
        self.shards.is_some()
            || !self.shards_of.is_empty()
            || self.max_shards_per_job.is_some()
            || self.whole_gpus.is_some()
            || !self.mig.is_empty()
            || self.jobs.is_some()
            || self.cpus.is_some()
            || self.host_memory_mib.is_some()
            || self.wall_time.is_some()
            || self.priority.is_some()
    }

    /// The keys of what is limited here more strictly than there.
    pub fn stricter_than(&self, other: &Self) -> BTreeSet<&'static str> {
        let mut keys = BTreeSet::new();
        let mut compare = |key, own: Option<u64>, others: Option<u64>| {
            if own.is_some_and(|own| others.is_none_or(|others| own < others)) {
                keys.insert(key);
            }
        };
        let minutes = |quota: &Self| quota.wall_time.map(|time| u64::from(time.minutes()));
        for (key, of) in [
            ("shards", (|quota| quota.shards) as fn(&Self) -> _),
            ("whole_gpus", |quota| quota.whole_gpus),
            ("jobs", |quota| quota.jobs),
            ("cpus", |quota| quota.cpus),
            ("host_memory_mib", |quota| quota.host_memory_mib),
            ("max_cpus_per_shard", |quota| quota.per_shard.max_cpus),
            ("max_host_memory_mib_per_shard", |quota| {
                quota.per_shard.max_memory_mib
            }),
        ] {
            compare(key, of(self), of(other));
        }
        if self.max_shards_per_job.is_some() {
            // No job has more shards than its user may hold.
            let of = |quota: &Self| {
                let limits = [quota.max_shards_per_job, quota.shards];
                limits.into_iter().flatten().min()
            };
            compare("max_shards_per_job", of(self), of(other));
        }
        compare("wall_time", minutes(self), minutes(other));
        for kind in self.shards_of.keys() {
            compare(
                "shards_of",
                self.shards_of_type(kind),
                other.shards_of_type(kind),
            );
        }
        for kind in self.mig.keys() {
            let of = |quota: &Self| quota.mig.get(kind).copied();
            compare("mig", of(self), of(other));
        }
        keys
    }

    /// The shards of a type that a user may hold: never more than of all types.
    fn shards_of_type(&self, kind: &str) -> Option<u64> {
        let limits = [self.shards_of.get(kind).copied(), self.shards];
        limits.into_iter().flatten().min()
    }

    pub(crate) fn of<'a>(layer: &QuotaOverride, mig_types: impl Iterator<Item = &'a str>) -> Self {
        let limit = |amount: Option<Limit>| amount.and_then(|Limit(limit)| limit);
        let shards_of = layer.shards_of.iter().flatten();
        Self {
            shards: limit(layer.shards),
            shards_of: shards_of
                .filter_map(|(name, amount)| Some((name.clone(), amount.0?)))
                .collect(),
            max_shards_per_job: limit(layer.max_shards_per_job),
            whole_gpus: limit(layer.whole_gpus),
            mig: layer.mig.as_ref().map_or_else(BTreeMap::new, |mig| {
                // A type that is not named cannot be had.
                let most = |name: &str| mig.get(name).copied().unwrap_or(Limit(Some(0)));
                mig_types
                    .filter_map(|name| Some((name.to_string(), most(name).0?)))
                    .collect()
            }),
            jobs: limit(layer.jobs),
            cpus: limit(layer.cpus),
            host_memory_mib: limit(layer.host_memory_mib),
            wall_time: layer.wall_time.and_then(|MaxWallTime(time)| time),
            priority: layer.priority,
            other_qos: layer.other_qos.clone().unwrap_or_default(),
            per_shard: PerShard {
                cpus: layer.cpus_per_shard,
                max_cpus: limit(layer.max_cpus_per_shard),
                memory_mib: layer.host_memory_mib_per_shard,
                max_memory_mib: limit(layer.max_host_memory_mib_per_shard),
            },
        }
    }
}

/// The weight of a whole GPU in shards, for Slurm to add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Weights {
    /// Every GPU has as many shards.
    Same(u32),
    /// GPUs of different types, or MIG instances, which weigh nothing. Slurm cannot weigh a request that names no type until
    /// it has started, so such a request has to name one.
    ByType(BTreeMap<String, u32>),
}

impl Weights {
    pub(crate) fn of(gpus: &BTreeMap<String, GpuType>) -> Self {
        let wholes = || gpus.values().filter(|gpu| !gpu.is_mig());
        let first = wholes().map(GpuType::shards_per_gpu).next().unwrap_or(1);
        let alike = wholes().all(|gpu| gpu.shards_per_gpu() == first);
        if alike && wholes().count() == gpus.len() {
            return Weights::Same(first);
        }
        let by_type = wholes().map(|gpu| (gpu.name().to_string(), gpu.shards_per_gpu()));
        Weights::ByType(by_type.collect())
    }

    pub(crate) fn by_type(&self) -> bool {
        matches!(self, Self::ByType(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_stricter_where_a_limit_of_it_is_smaller() {
        let own = Quota {
            shards: Some(4),
            shards_of: [("a".to_string(), 3), ("b".to_string(), 9)].into(),
            max_shards_per_job: Some(8),
            jobs: Some(2),
            mig: [("m".to_string(), 0)].into(),
            ..Quota::default()
        };
        let keys = |other: &Quota| own.stricter_than(other).into_iter().collect::<Vec<_>>();
        assert!(keys(&own).is_empty());
        let all = ["jobs", "max_shards_per_job", "mig", "shards", "shards_of"];
        assert_eq!(keys(&Quota::default()), all);
        assert!(Quota::default().stricter_than(&own).is_empty());
        // Limits that another one makes pointless count for nothing.
        let other = Quota {
            shards: Some(3),
            jobs: Some(2),
            mig: [("m".to_string(), 0)].into(),
            ..Quota::default()
        };
        assert!(keys(&other).is_empty());
        let time = |text: &str| Quota {
            wall_time: WallTime::parse(text),
            ..Quota::default()
        };
        let stricter = time("1:00:00").stricter_than(&time("2:00:00"));
        assert_eq!(stricter, ["wall_time"].into());
    }
}
