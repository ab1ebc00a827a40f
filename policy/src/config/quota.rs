//! The limits of users: the keys that `[defaults]`, `[classes.NAME]` and `[users.NAME]` share. A later one of these
//! tables overrides the ones before.

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
    /// By the number of the primary group, since softmig looks up no names inside slurmctld.
    #[serde(default)]
    pub(crate) groups: Vec<u32>,
}

/// Limits of types of GPUs, by their names.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct ByType(pub(crate) BTreeMap<String, Limit>);

/// The uses of a limit, besides those that name it.
#[derive(PartialEq)]
enum Use {
    /// Slurm holds users to it, which takes a QOS.
    Qos,
    /// A class with less of it is stricter.
    Compared,
    /// It is never more than `shards`.
    WithinShards,
}

/// Makes the quota and the tables of policy.toml from the list of keys. A row `jobs: Limit => Option<u64> [Qos];` gives each
/// table `jobs: Option<Limit>` and the quota `jobs: Option<u64>`. The rows of `besides` are in the tables alone.
macro_rules! quota {
    (
        quota { $($(#[$doc:meta])* $key:ident: $kind:ty => $figure:ty [$($use:ident)*];)+ }
        besides { $($other:ident: $type:ty;)* }
    ) => {
        /// The limits of a user. `None` means unlimited.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Quota {
            $($(#[$doc])* pub $key: $figure,)+
        }

        impl Quota {
            /// Whether Slurm has to hold users to any of these limits, which takes a QOS.
            pub fn needs_qos(&self) -> bool {
                $([$(Use::$use),*].contains(&Use::Qos) && !self.$key.limits().is_empty())||+
            }

            /// The keys of the limits that are stricter here than in `other`.
            pub fn stricter_than(&self, other: &Self) -> BTreeSet<&'static str> {
                let mut keys = BTreeSet::new();
                $(
                    let limits = [self.$key.limits(), other.$key.limits()];
                    if self.is_stricter(other, &[$(Use::$use),*], limits) {
                        keys.insert(stringify!($key));
                    }
                )+
                keys
            }

            fn of_keys(layer: &QuotaOverride) -> Self {
                Self { $($key: layer.$key.clone().map(<$figure>::from).unwrap_or_default(),)+ }
            }
        }

        quota!(@tables $($key: $kind,)+ $($other: $type,)*);
    };
    (@tables $($key:ident: $kind:ty,)+) => {
        /// The keys of one level; for a missing key the level below counts.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct QuotaOverride {
            $(pub(crate) $key: Option<$kind>,)+
        }

        impl QuotaOverride {
            /// These keys, and those of `below` that are missing here.
            pub(crate) fn over(&self, below: &QuotaOverride) -> QuotaOverride {
                QuotaOverride {
                    $($key: self.$key.clone().or_else(|| below.$key.clone()),)+
                }
            }

            /// Whether it has no key.
            pub(crate) fn is_empty(&self) -> bool {
                $(self.$key.is_none())&&+
            }
        }

        quota!(@table "`[defaults]`." DefaultsTable {} $($key: $kind,)+);
        quota!(@table "`[classes.NAME]`." ClassTable {
            members: Option<Members>,
            qos: Option<String>,
        } $($key: $kind,)+);
        quota!(@table "`[users.NAME]`." UserTable {
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
            /// The keys that every level has.
            pub(crate) fn layer(&self) -> QuotaOverride {
                QuotaOverride { $($key: self.$key.clone(),)+ }
            }
        }
    };
}

quota! {
    quota {
        /// Shards held at once; a whole GPU counts as its type's.
        shards: Limit => Option<u64> [Qos Compared];
        /// Shards of a type held at once, for the types that have a limit of their own.
        shards_of: ByType => BTreeMap<String, u64> [Qos Compared WithinShards];
        /// Shards of one job.
        max_shards_per_job: Limit => Option<u64> [Qos Compared WithinShards];
        /// Whole GPUs held at once.
        whole_gpus: Limit => Option<u64> [Qos Compared];
        /// MIG instances held at once, for the types that have a limit.
        mig: ByType => BTreeMap<String, u64> [Qos Compared];
        /// Jobs with GPUs that run at once.
        jobs: Limit => Option<u64> [Qos Compared];
        /// CPUs of those jobs.
        cpus: Limit => Option<u64> [Qos Compared];
        /// Host memory of those jobs, in MiB.
        host_memory_mib: Limit => Option<u64> [Qos Compared];
        /// The longest job.
        wall_time: MaxWallTime => Option<WallTime> [Qos Compared];
        /// Slurm's QOS priority.
        priority: u32 => Option<u32> [Qos];
        /// The QOS that a job may name besides the class's own.
        other_qos: Vec<String> => Vec<String> [];
        /// CPUs of a slice job for each shard, where the job asks for none.
        cpus_per_shard: u32 => Option<u32> [];
        /// The most CPUs for each shard.
        max_cpus_per_shard: Limit => Option<u64> [Compared];
        /// Host memory of a slice job for each shard in MiB, where the job asks for none.
        host_memory_mib_per_shard: u32 => Option<u32> [];
        /// The most host memory for each shard, in MiB.
        max_host_memory_mib_per_shard: Limit => Option<u64> [Compared];
    }
    besides {
        idle_minutes: Limit;
    }
}

impl From<ByType> for BTreeMap<String, u64> {
    fn from(ByType(limits): ByType) -> Self {
        let limited = |(name, Limit(limit))| Some((name, limit?));
        limits.into_iter().filter_map(limited).collect()
    }
}

/// A value of the quota, as numbers: those of types of GPUs by their names, any other one without a name.
trait Limits {
    fn limits(&self) -> BTreeMap<&str, u64> {
        BTreeMap::new()
    }
}

impl<T: Copy + Into<u64>> Limits for Option<T> {
    fn limits(&self) -> BTreeMap<&str, u64> {
        self.iter().map(|&limit| ("", limit.into())).collect()
    }
}

impl Limits for BTreeMap<String, u64> {
    fn limits(&self) -> BTreeMap<&str, u64> {
        self.iter().map(|(name, &limit)| (&**name, limit)).collect()
    }
}

impl Limits for Vec<String> {}

impl Quota {
    /// True if one job may have this number of a type's shards, by the limits that every job has.
    pub(crate) fn allows_slice(&self, gpu_type: &str, shards: u64) -> bool {
        let of_type = self.shards_of.get(gpu_type).copied();
        let limits = [self.shards, self.max_shards_per_job, of_type];
        self.jobs != Some(0) && limits.into_iter().flatten().all(|most| shards <= most)
    }

    fn is_stricter(&self, other: &Self, uses: &[Use], limits: [BTreeMap<&str, u64>; 2]) -> bool {
        let most = |quota: &Self| quota.shards.filter(|_| uses.contains(&Use::WithinShards));
        let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        let [own, others] = limits;
        uses.contains(&Use::Compared)
            && own.into_iter().any(|(name, own)| {
                let own = least(Some(own), most(self));
                let others = least(others.get(name).copied(), most(other));
                others.is_none() || own < others
            })
    }

    pub(crate) fn from_layer<'a>(
        layer: &QuotaOverride,
        mig_types: impl Iterator<Item = &'a str>,
    ) -> Self {
        let mut quota = Self::of_keys(layer);
        if let Some(mig) = &layer.mig {
            // A user cannot have instances of a type that is not named.
            let unnamed = mig_types.filter(|&name| !mig.0.contains_key(name));
            quota.mig.extend(unnamed.map(|name| (name.to_string(), 0)));
        }
        quota
    }
}

/// The weight of a whole GPU in shards, for Slurm to add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Weights {
    /// The GPUs all have the same number of shards.
    Same(u32),
    /// Each type has its own weight; MIG instances weigh nothing. Slurm can only weigh a request without a type after
    /// the job has started, so requests have to name a type.
    ByType(BTreeMap<String, u32>),
}

impl Weights {
    pub(crate) fn from_gpus(gpus: &BTreeMap<String, GpuType>) -> Self {
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
        // A limit that another one makes pointless does not count.
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
