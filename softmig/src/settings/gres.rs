//! The GRES of a node, as slurm.conf and gres.conf are to have them.

use softmig_policy::Policy;
use softmig_policy::config::inventory::{Nodes, apart};
use softmig_policy::config::reservable::Window;
use std::collections::BTreeMap;
use std::fmt;

/// The GPUs of one type on one node, or of each of several alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypeGres {
    /// The type.
    pub(crate) kind: String,
    /// How many there are.
    pub(crate) gpus: u32,
    /// Into how many shards Slurm counts one; 0 where the node has no shared GPUs.
    pub(crate) shards_per_gpu: u32,
    /// Whether these shards can be asked for. Where a node has shared GPUs, Slurm (from 23.11 on) drains it unless each of
    /// its types has shards; no job can request those of a type that is not shared.
    pub(crate) shared: bool,
    /// Whether they are MIG instances.
    pub(crate) mig: bool,
    /// N of `/dev/nvidiaN` of each; empty on nodes with MIG instances, which do not say how many GPUs they are on.
    pub(crate) minors: Vec<u32>,
}

impl TypeGres {
    /// The shards of all of them.
    pub(crate) fn shards(&self) -> u64 {
        u64::from(self.gpus) * u64::from(self.shards_per_gpu)
    }
}

/// The GRES of one node, or of each of several alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeGres {
    /// The nodes, as slurm.conf takes them.
    pub(crate) names: String,
    /// By type, in the order of the devices.
    pub(crate) types: Vec<TypeGres>,
}

/// Those of all nodes in the inventory at a time, in seconds since 1970.
pub(crate) fn all(policy: &Policy, now: i64) -> Vec<NodeGres> {
    let nodes = policy.nodes().iter();
    nodes
        .map(|nodes| NodeGres::for_policy(policy, nodes, now))
        .collect()
}

/// The type that a type of `[[nodes]]` is at that time: after a reservation GPUs are what they were before.
fn kind_at<'a>(policy: &'a Policy, kind: &'a str, now: i64) -> &'a str {
    let mut of = None;
    for reservable in policy.reservables().iter().filter(|own| own.kind() == kind) {
        match reservable.window(now) {
            Window::Over => of = Some(reservable.base_type()),
            Window::Ahead | Window::Open => return kind,
        }
    }
    of.unwrap_or(kind)
}

/// The types of a node's GPUs at that time. One that would be in two places stays what it was: Slurm numbers GPUs type by type.
fn kinds_at<'a>(policy: &'a Policy, nodes: &'a Nodes, now: i64) -> Vec<&'a str> {
    let written = || nodes.gpus().iter().map(|gpus| gpus.kind.as_str());
    let mut kinds: Vec<&str> = written().map(|kind| kind_at(policy, kind, now)).collect();
    for (at, own) in written().enumerate() {
        if apart(&kinds).is_none() {
            break;
        }
        if let Some(kind) = kinds.get_mut(at) {
            *kind = own;
        }
    }
    kinds
}

/// Into how many shards Slurm counts one GPU of a type, where it is shared at all.
pub(crate) fn shards_of_type(policy: &Policy, kind: &str) -> Option<u32> {
    let shards = policy.gpu(kind)?.shards_per_gpu();
    // One shard would be the whole GPU, which is asked for as such.
    (shards > 1).then_some(shards)
}

impl NodeGres {
    /// Those of one entry of the inventory.
    pub(crate) fn for_policy(policy: &Policy, nodes: &Nodes, now: i64) -> Self {
        let mut types: Vec<TypeGres> = Vec::new();
        let mut first = 0;
        for (gpus, kind) in nodes.gpus().iter().zip(kinds_at(policy, nodes, now)) {
            let minors = first..first + gpus.count;
            first = minors.end;
            match types.iter_mut().find(|known| known.kind == kind) {
                Some(known) => {
                    known.minors.extend(minors);
                    known.gpus += gpus.count;
                }
                None => types.push(TypeGres {
                    kind: kind.to_string(),
                    gpus: gpus.count,
                    shards_per_gpu: shards_of_type(policy, kind).unwrap_or(0),
                    shared: shards_of_type(policy, kind).is_some(),
                    mig: policy.gpu(kind).is_some_and(|gpu| gpu.is_mig()),
                    minors: minors.collect(),
                }),
            }
        }
        let mut gres = Self {
            names: nodes.names().to_string(),
            types,
        };
        gres.fit();
        gres
    }

    /// Slurm's reading of shards where not all GPUs are alike.
    fn fit(&mut self) {
        if self.has_mig() {
            // gres.conf can name no instance for its shards, so they are those of all GPUs, which are of one type then.
            let alone = self.types.len() == 1;
            for gres in &mut self.types {
                gres.minors.clear();
                if !alone {
                    gres.shards_per_gpu = 0;
                    gres.shared = false;
                }
            }
        } else if self.types.iter().any(|gres| gres.shared) {
            for gres in self.types.iter_mut().filter(|gres| !gres.shared) {
                gres.shards_per_gpu = 1;
            }
        }
    }

    /// How many GPUs there are of each type.
    pub(crate) fn counts(&self) -> BTreeMap<&str, u64> {
        let types = self.types.iter();
        types
            .map(|gres| (gres.kind.as_str(), u64::from(gres.gpus)))
            .collect()
    }

    /// Whether there are MIG instances among them.
    pub(crate) fn has_mig(&self) -> bool {
        self.types.iter().any(|gres| gres.mig)
    }
}

impl fmt::Display for NodeGres {
    /// The value of `Gres=`: `gpu:l40s:4,shard:l40s:16`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gpus = self
            .types
            .iter()
            .map(|gres| format!("gpu:{}:{}", gres.kind, gres.gpus));
        let shards = self
            .types
            .iter()
            .filter(|gres| gres.shards() > 0)
            .map(|gres| format!("shard:{}:{}", gres.kind, gres.shards()));
        let items: Vec<String> = gpus.chain(shards).collect();
        f.write_str(&items.join(","))
    }
}

/// `/dev/nvidia[0-2,5]`.
pub(crate) fn device_files(minors: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &minor in minors {
        match runs.last_mut() {
            Some((_, last)) if minor == *last + 1 => *last = minor,
            _ => runs.push((minor, minor)),
        }
    }
    let single = matches!(runs.as_slice(), [(first, last)] if first == last);
    let runs: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    if single {
        format!("/dev/nvidia{}", runs.join(""))
    } else {
        format!("/dev/nvidia[{}]", runs.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPUS: &str = "plain_types = [\"p\"]\n\
                        [gpu.l40s]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 4\n\
                        [gpu.m]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 1\nmig = true\n\
                        [[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\nuser = \"alice\"\nreason = \"x\"\n\
                        start = 1970-01-01T00:01:00Z\nend = 1970-01-01T00:02:00Z\n";

    fn gres(gpus: &str, now: i64) -> NodeGres {
        let policy =
            Policy::parse(&format!("{GPUS}[[nodes]]\nnames = \"n1\"\ngpus = {gpus}\n")).unwrap();
        all(&policy, now).remove(0)
    }

    #[test]
    fn a_reserved_gpu_has_one_shard_until_its_end() {
        let gpus = "[\"l40s_r:1\", \"l40s:2\", \"l40s:1\"]";
        for now in [0, 60, 119] {
            let gres = gres(gpus, now);
            assert_eq!(
                gres.to_string(),
                "gpu:l40s_r:1,gpu:l40s:3,shard:l40s_r:1,shard:l40s:12"
            );
            assert!(!gres.types[0].shared && gres.types[1].shared);
            assert_eq!(device_files(&gres.types[0].minors), "/dev/nvidia0");
            assert_eq!(device_files(&gres.types[1].minors), "/dev/nvidia[1-3]");
        }
        let gres = gres(gpus, 120);
        assert_eq!(gres.to_string(), "gpu:l40s:4,shard:l40s:16");
        assert_eq!(device_files(&gres.types[0].minors), "/dev/nvidia[0-3]");
    }

    #[test]
    fn a_gpu_is_shared_again_once_its_type_is_in_one_place() {
        let later = "[[reservable]]\ntype = \"l40s_q\"\nof = \"l40s\"\nuser = \"bob\"\nreason = \"x\"\nend = 1970-01-01T00:03:00Z\n";
        let gpus = "[\"l40s:2\", \"l40s_q:1\", \"l40s_r:1\"]";
        let gres = |now| {
            let text = format!("{GPUS}{later}[[nodes]]\nnames = \"n1\"\ngpus = {gpus}\n");
            all(&Policy::parse(&text).unwrap(), now)[0].to_string()
        };
        let apart =
            "gpu:l40s:2,gpu:l40s_q:1,gpu:l40s_r:1,shard:l40s:8,shard:l40s_q:1,shard:l40s_r:1";
        assert_eq!((gres(0), gres(150)), (apart.to_string(), apart.to_string()));
        assert_eq!(gres(200), "gpu:l40s:4,shard:l40s:16");
    }

    #[test]
    fn a_node_without_shared_gpus_has_no_shards() {
        assert_eq!(gres("[\"p:2\", \"m:7\"]", 0).to_string(), "gpu:p:2,gpu:m:7");
        assert_eq!(gres("[\"l40s_r:2\"]", 60).to_string(), "gpu:l40s_r:2");
    }

    #[test]
    fn beside_mig_instances_no_gpu_is_shared() {
        let gres = gres("[\"l40s:2\", \"m:7\", \"p:2\"]", 0);
        assert_eq!(gres.to_string(), "gpu:l40s:2,gpu:m:7,gpu:p:2");
        assert!(gres.has_mig() && gres.types.iter().all(|gres| !gres.shared));
        assert!(gres.types.iter().all(|gres| gres.minors.is_empty()));
    }

    #[test]
    fn mig_instances_of_one_type_can_be_shared() {
        let gpus = GPUS.replace("shards = 1\nmig", "shards = 2\nmig");
        let text = format!("{gpus}[[nodes]]\nnames = \"n1\"\ngpus = [\"m:3\"]\n");
        let gres = all(&Policy::parse(&text).unwrap(), 0).remove(0);
        assert_eq!(gres.to_string(), "gpu:m:3,shard:m:6");
    }
}
