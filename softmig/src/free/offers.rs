//! The sizes, and how many of each could start now.

use crate::cluster::all::Cluster;
use crate::cluster::nodes::{Node, NodeGpu};
use crate::free::estimate::Estimate;
use crate::say::counted;
use softmig_policy::config::classes::ClassLimits;
use softmig_policy::config::gpu_types::GpuType;
use softmig_policy::slurm::gres_list::Configured;
use softmig_policy::{
    Context, Limits, MaybeKnown, Policy, Request, Submitter, Verdict, decide, may_hold,
};
use std::collections::BTreeSet;

/// The user and the partition that offers are for.
pub(super) struct Query {
    pub(super) submitter: Submitter,
    pub(super) partition: Option<String>,
    pub(super) now: i64,
}

/// A size that this person may have.
pub(super) struct Offer {
    /// As `--gres` takes it.
    pub(super) gres: String,
    /// The type.
    pub(super) kind: String,
    /// Its limits; `None` for all of a GPU.
    pub(super) limits: Option<Limits>,
    /// The memory: of a slice the limit, else what CUDA can have; `None` where no policy says it.
    pub(super) memory_mib: Option<u32>,
    /// How many could start now.
    pub(super) free: u64,
    /// The nodes on which they could start.
    pub(super) nodes: Vec<String>,
    /// The partitions of these nodes.
    pub(super) partitions: BTreeSet<String>,
    /// Slurm's own word on when.
    pub(super) estimate: Option<Estimate>,
}

/// All sizes that this person may have, of types that the cluster has, by type, whole GPUs first.
pub(super) fn all(policy: &Policy, cluster: &Cluster, query: &Query) -> Vec<Offer> {
    let mut offers = Vec::new();
    let mut add = |gres: String, kind: &str, limits: Option<Limits>, memory_mib: Option<u32>| {
        if !cluster.may_have(kind) {
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
        let all = gpu.memory_mib() - gpu.reserved_mib();
        add(format!("gpu:{name}:1"), name, None, Some(all));
        for &size in gpu.slices() {
            if let Some(limits) = gpu.slice(size) {
                add(
                    format!("gpu:{name}.{size}:1"),
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
        let memory = policy
            .of_reservable(own.kind())
            .map(|gpu| gpu.memory_mib() - gpu.reserved_mib());
        if query.submitter.is(own.holder()) == Some(true) {
            add(format!("gpu:{}:1", own.kind()), own.kind(), None, memory);
        }
    }
    offers
}

impl Offer {
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

/// Other facts that matter: the slices that this user holds, and the jobs that are before.
pub(super) fn notes(policy: &Policy, cluster: &Cluster, query: &Query) -> Vec<String> {
    let mut notes = Vec::new();
    let own = |user: &str| query.submitter.user.as_deref() == Some(user);
    let jobs = || cluster.jobs.iter().filter(|job| own(&job.user));
    if let Some(class) = class(policy, query, jobs().map(|job| job.qos.as_str()))
        && let Some(may) = may_hold(policy, class)
    {
        let running = || jobs().filter(|job| !job.waits());
        let held: u64 = running().filter_map(|job| Some(job.slice()?.1)).sum();
        let gpus = || {
            let all = running().flat_map(|job| &job.asked);
            all.filter(|gres| gres.name == "gpu")
        };
        let is_mig = |gres: &&Configured| {
            let kind = gres.kind.as_deref().and_then(|kind| policy.gpu(kind));
            kind.is_some_and(GpuType::is_mig)
        };
        let whole: u64 = gpus()
            .filter(|gres| !is_mig(gres))
            .map(|gres| gres.count)
            .sum();
        let mut text = format!(
            "{} may hold at once: {may}. You hold {} and {}",
            class.called(),
            counted(held, "shard"),
            counted(whole, "whole GPU")
        );
        let mut others_wait = Vec::new();
        if class.quota.shards.is_some_and(|most| held >= most) {
            others_wait.push("slice".to_string());
        }
        for (kind, most) in class.quota.mig.iter().filter(|(_, most)| **most > 0) {
            let own = gpus().filter(|gres| gres.kind.as_deref() == Some(kind));
            let own: u64 = own.map(|gres| gres.count).sum();
            text += &format!(", and {own} of type {kind}");
            if own >= *most {
                others_wait.push(kind.clone());
            }
        }
        if !others_wait.is_empty() {
            let what = others_wait.join(" or ");
            text += &format!(", so another {what} waits until one of your jobs has ended");
        }
        notes.push(text);
    }
    if query.submitter.account == MaybeKnown::Unknown && !policy.accounts().is_empty() {
        notes.push(
            "what you may have can depend on your account; --account=NAME says it".to_string(),
        );
    }
    let waiting = cluster.jobs.iter().filter(|job| job.waits()).count();
    if waiting > 0 {
        let (jobs, them) = match waiting {
            1 => ("job waits", "it"),
            _ => ("jobs wait", "them"),
        };
        notes.push(format!(
            "{waiting} {jobs} for GPUs already, and Slurm may start {them} first"
        ));
    }
    notes
}

/// The class: by the QOS that the person's jobs have, else by name and account.
fn class<'a, 'b>(
    policy: &'a Policy,
    query: &Query,
    mut qos: impl Iterator<Item = &'b str>,
) -> Option<&'a ClassLimits> {
    let account = match &query.submitter.account {
        MaybeKnown::Is(name) => Some(name.as_str()),
        MaybeKnown::Missing => Some(""),
        MaybeKnown::Unknown if policy.accounts().is_empty() => Some(""),
        MaybeKnown::Unknown => None,
    };
    let Some(account) = account else {
        return qos.find_map(|qos| {
            policy
                .standings()
                .iter()
                .find(|own| own.qos.as_deref() == Some(qos))
        });
    };
    policy.standing_of(
        query.submitter.user.as_deref()?,
        account,
        query.submitter.group,
    )
}
