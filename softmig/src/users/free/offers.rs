//! The sizes, and how many of each could start now.

use crate::ask::cluster::all::Cluster;
use crate::ask::node::{Node, NodeGpu};
use crate::users::free::estimate::Estimate;
use serde::Serialize;
use softmig_policy::node::size::Bytes;
use softmig_policy::{Context, Limits, Policy, Request, Submitter, Verdict, decide};
use std::collections::BTreeSet;

/// The user and the partition that offers are for.
pub(crate) struct Query {
    pub(crate) submitter: Submitter,
    pub(crate) partition: Option<String>,
    /// The least memory.
    pub(crate) memory: Option<Bytes>,
    pub(crate) now: i64,
}

/// A size that this person may have. What is written of it as JSON is documented (docs/status.md).
#[derive(Serialize)]
pub(crate) struct Offer {
    /// As `--gres` takes it.
    pub(crate) gres: String,
    /// The type.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Its limits; `None` for all of a GPU.
    #[serde(skip)]
    pub(crate) limits: Option<Limits>,
    /// The memory: of a slice the limit, else what CUDA can have; `None` where no policy says it.
    pub(crate) memory_mib: Option<u32>,
    /// How many could start now.
    pub(crate) free: u64,
    /// The nodes on which they could start.
    pub(crate) nodes: Vec<String>,
    /// The partitions of these nodes.
    #[serde(skip)]
    pub(crate) partitions: BTreeSet<String>,
    /// Slurm's own word on when.
    pub(crate) estimate: Option<Estimate>,
}

/// All sizes that this person may have, of types that the cluster has, by type, whole GPUs first.
pub(crate) fn all(policy: &Policy, cluster: &Cluster, query: &Query) -> Vec<Offer> {
    let mut offers = Vec::new();
    let mut add = |gres: String, kind: &str, limits: Option<Limits>, memory_mib: Option<u32>| {
        let has_memory = query
            .memory
            .is_none_or(|least| memory_mib.is_some_and(|mib| least.is_in(mib)));
        if !cluster.may_have(kind) || !has_memory {
            return;
        }
        let request = Request {
            tres_per_node: Some(gres.clone()),
            ..Request::default()
        };
        let context = Context {
            submitter: query.submitter.clone(),
            now: query.now,
            ..Context::default()
        };
        let terms = match decide(policy, &request, &context) {
            Verdict::Refused(_) => return,
            Verdict::Granted(grant) => grant.request.cpus_per_task.or(grant.request.min_cpus),
            Verdict::Unchanged { .. } => None,
        };
        let mut offer = Offer {
            gres,
            kind: kind.to_string(),
            limits,
            memory_mib,
            free: 0,
            nodes: Vec::new(),
            partitions: BTreeSet::new(),
            estimate: None,
        };
        offer.count(cluster, query, u64::from(terms.unwrap_or(1).max(1)));
        offers.push(offer);
    };
    for gpu in policy.gpus() {
        let name = gpu.name();
        let all = gpu.usable_mib();
        add(format!("gpu:{name}:1"), name, None, Some(all));
        for &size in gpu.slices() {
            if let Some(limits) = gpu.slice(size) {
                add(
                    limits.slice_request().to_string(),
                    name,
                    Some(limits),
                    Some(limits.memory_mib()),
                );
            }
        }
    }
    for name in policy
        .plain_types()
        .iter()
        .filter(|name| policy.gpu(name).is_none())
    {
        add(format!("gpu:{name}:1"), name, None, None);
    }
    for own in policy
        .reservables()
        .iter()
        .filter(|own| policy.is_reserved(own.kind(), query.now))
    {
        // Others' are not theirs to have, so `decide` refuses them; without a name nothing is known of that.
        let memory = policy.of_reservable(own.kind()).map(|gpu| gpu.usable_mib());
        if query.submitter.is(own.holder()) == Some(true) {
            add(format!("gpu:{}:1", own.kind()), own.kind(), None, memory);
        }
    }
    offers
}

/// The largest slice that has room now, where this much of the same type has none.
pub(crate) fn sooner<'a>(offers: &'a [Offer], than: &Offer) -> Option<&'a Offer> {
    let is_smaller = |it: &&Offer| {
        let shards = |it: &Offer| it.limits.map_or(u32::MAX, |limits| limits.share().shards());
        it.kind == than.kind && shards(it) < shards(than) && it.free > 0
    };
    // Large ones come first.
    offers.iter().filter(|_| than.free == 0).find(is_smaller)
}

impl Offer {
    /// `gpu:l40s.2`.
    pub(crate) fn typed(&self) -> &str {
        self.gres.trim_end_matches(":1")
    }

    fn count(&mut self, cluster: &Cluster, query: &Query, cpus: u64) {
        let is_open = |node: &&Node| {
            let is_asked = query
                .partition
                .as_ref()
                .is_none_or(|own| node.partitions.contains(own));
            node.closed().is_none() && is_asked
        };
        for node in cluster.nodes.iter().filter(is_open) {
            let of_gpu = |gpu: &NodeGpu| match &self.limits {
                Some(limits) => gpu.free().unwrap_or(0) / u64::from(limits.share().shards()),
                None => u64::from(gpu.is_idle()),
            };
            let gpus = || node.gpus.iter().filter(|gpu| gpu.kind == self.kind);
            let mut count: u64 = gpus().map(of_gpu).sum();
            if let (Some(hidden), Some(limits)) = (node.unplaced.get(&self.kind), &self.limits) {
                // The hidden shards may be on any of these GPUs, so only their sum counts.
                let free: u64 = gpus().filter_map(NodeGpu::free).sum();
                count =
                    count.min(free.saturating_sub(*hidden) / u64::from(limits.share().shards()));
            } else if node.unplaced.contains_key(&self.kind) {
                count = 0;
            }
            count = count.min(node.free_cpus.map_or(count, |free| free / cpus));
            if count > 0 {
                self.free += count;
                self.nodes.push(node.name.clone());
                self.partitions.extend(node.partitions.iter().cloned());
            }
        }
    }
}
