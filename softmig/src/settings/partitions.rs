//! The partitions that a policy needs: those of its routes, and what things weigh in all of them.

use crate::settings::gres::{self, TypeGres};
use softmig_policy::config::quota::Weights;
use softmig_policy::{Policy, WallTime};
use std::collections::BTreeMap;
use std::fmt;

/// TRESBillingWeights: shards as what everything is counted in, so that one limit holds for slices and whole GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BillingWeights(BTreeMap<String, u64>);

impl BillingWeights {
    /// A shard weighs 1, a whole GPU what its type has in shards.
    pub(crate) fn for_policy(policy: &Policy) -> Self {
        let mut weights = BTreeMap::from([("gres/shard".to_string(), 1)]);
        match policy.weights() {
            Weights::Same(shards) => {
                weights.insert("gres/gpu".to_string(), u64::from(*shards));
            }
            // Never beside one of all GPUs: Slurm would add the two.
            Weights::ByType(types) => {
                weights.extend(
                    types
                        .iter()
                        .map(|(kind, shards)| (format!("gres/gpu:{kind}"), u64::from(*shards))),
                );
            }
        }
        Self(weights)
    }

    /// Each name, as in `gres/gpu:l40s`, and what it weighs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, weight)| (name.as_str(), *weight))
    }
}

impl fmt::Display for BillingWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, weight)) in self.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{}={weight}", name.replacen("gres", "GRES", 1))?;
        }
        Ok(())
    }
}

/// A partition that routes lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    /// Its name.
    pub(crate) name: String,
    /// The names of its nodes, as in `[[nodes]]`; empty if no node of the inventory fits.
    pub(crate) nodes: Vec<String>,
    /// MaxTime: the longest of its routes.
    pub(crate) max_time: Option<WallTime>,
    /// More words of the site's.
    pub(crate) words: Vec<String>,
}

/// All that a policy's routes lead to. Several routes can lead to one partition.
pub(crate) fn all(policy: &Policy, now: i64) -> Vec<Partition> {
    let mut all: Vec<Partition> = Vec::new();
    for route in policy.routes() {
        let takes = |gres: &TypeGres| {
            let types = route.types();
            gres.shared && (types.is_empty() || types.contains(&gres.kind))
        };
        let nodes = gres::all(policy, now)
            .into_iter()
            .filter(|node| node.types.iter().any(takes))
            .map(|node| node.names);
        let at = all.iter().position(|known| known.name == route.partition());
        let known = match at.and_then(|at| all.get_mut(at)) {
            Some(known) => {
                // A route for jobs of any length is for the longest.
                known.max_time = known.max_time.zip(route.max_time()).map(|(a, b)| a.max(b));
                known
            }
            None => {
                all.push(Partition {
                    name: route.partition().to_string(),
                    nodes: Vec::new(),
                    max_time: route.max_time(),
                    words: Vec::new(),
                });
                let Some(new) = all.last_mut() else { continue };
                new
            }
        };
        for name in nodes {
            if !known.nodes.contains(&name) {
                known.nodes.push(name);
            }
        }
        for word in route.slurm().split_ascii_whitespace() {
            if !known.words.iter().any(|other| other == word) {
                known.words.push(word.to_string());
            }
        }
    }
    all
}

impl fmt::Display for Partition {
    /// The line of slurm.conf.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartitionName={}", self.name)?;
        if !self.nodes.is_empty() {
            write!(f, " Nodes={}", self.nodes.join(","))?;
        }
        if let Some(time) = self.max_time {
            write!(f, " MaxTime={time}")?;
        }
        for word in &self.words {
            write!(f, " {word}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPUS: &str = "[gpu.l40s]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 4\n\
                        [gpu.h200]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 8\n\
                        [gpu.m]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 1\nmig = true\n";

    #[test]
    fn a_whole_gpu_weighs_its_shards() {
        let weights =
            |text: &str| BillingWeights::for_policy(&Policy::parse(text).unwrap()).to_string();
        let l40s = GPUS.split("[gpu.h200]").next().unwrap();
        assert_eq!(weights(l40s), "GRES/gpu=4,GRES/shard=1");
        assert_eq!(
            weights(GPUS),
            "GRES/gpu:h200=8,GRES/gpu:l40s=4,GRES/shard=1"
        );
    }

    #[test]
    fn routes_to_one_partition_make_one_line() {
        let policy = Policy::parse(&format!(
            "{GPUS}[[route]]\npartition = \"quick\"\ntypes = [\"l40s\"]\nmax_time = \"1:00:00\"\nslurm = \"PriorityTier=10\"\n\
             [[route]]\npartition = \"quick\"\ntypes = [\"h200\"]\nmax_time = \"4:00:00\"\nslurm = \"PriorityTier=10\"\n\
             [[route]]\npartition = \"slow\"\n\
             [[nodes]]\nnames = \"a[1-2]\"\ngpus = [\"l40s:2\", \"h200:2\"]\n\
             [[nodes]]\nnames = \"b\"\ngpus = [\"m:7\"]\n\
             [[nodes]]\nnames = \"c\"\ngpus = [\"h200:8\"]\n"
        ))
        .unwrap();
        let lines: Vec<String> = all(&policy, 0).iter().map(Partition::to_string).collect();
        assert_eq!(
            lines,
            [
                "PartitionName=quick Nodes=a[1-2],c MaxTime=04:00:00 PriorityTier=10",
                "PartitionName=slow Nodes=a[1-2],c"
            ]
        );
    }
}
