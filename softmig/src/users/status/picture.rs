//! All that `softmig status` shows.

use crate::ask::cluster::all::Cluster;
use crate::ask::cluster::purpose::Purpose;
use crate::ask::cluster::reasons::Asker;
use crate::ask::node::{Node, NodeGpu};
use crate::ask::squeue::Job;
use softmig_policy::{Limits, Policy};
use softmig_usage as usage;

/// All that is shown.
pub(super) struct Picture {
    pub(super) cluster: Cluster,
    pub(super) policy: Option<Policy>,
    /// Facts that are not known, and why.
    pub(super) notes: Vec<String>,
    /// The monitors' figures, of this node and those whose exporters told theirs.
    pub(super) live: Vec<usage::Node>,
    pub(super) shown: Shown,
    pub(super) now: i64,
}

/// Whose jobs are listed.
pub(super) struct Shown {
    /// The user who looks.
    pub(super) own: Option<String>,
    /// Only this user's jobs; `None` for all.
    pub(super) of: Option<String>,
}

impl Shown {
    pub(super) fn has(&self, job: &Job) -> bool {
        self.of.as_ref().is_none_or(|user| *user == job.user)
    }
}

/// A job's part of each of its GPUs.
pub(super) struct Holding {
    /// `l40s.4`, `gpu:l40s:1`.
    pub(super) what: String,
    /// What a slice may have, by the policy.
    pub(super) limits: Option<Limits>,
}

impl Picture {
    /// The jobs that are listed.
    pub(super) fn listed(&self) -> impl Iterator<Item = &Job> {
        self.cluster.jobs.iter().filter(|job| self.shown.has(job))
    }

    /// The purpose of a GPU.
    pub(super) fn purpose(&self, gpu: &NodeGpu) -> Purpose {
        Purpose::of_type(self.policy.as_ref(), &gpu.kind, gpu.shards, self.now)
    }

    /// Why a job waits, and Slurm's own word for it.
    pub(super) fn why(&self, job: &Job) -> (String, String) {
        let asker = Asker {
            policy: self.policy.as_ref(),
            user: self.shown.own.as_deref(),
        };
        asker.why(job)
    }

    /// A job's GPUs, and what it may have of each.
    pub(super) fn holding(&self, job: &Job) -> Holding {
        let policy = self.policy.as_ref();
        let slice = job.slice().and_then(|(kind, shards)| {
            let gpu = policy?.gpu(kind?)?;
            let limits = gpu.limits(u32::try_from(shards).ok()?).ok();
            Some((gpu.name(), gpu.slice_of_shards(shards), limits))
        });
        let (kind, size, limits) = slice.unwrap_or(("", None, None));
        Holding {
            what: size.map_or_else(|| job.gpus(), |size| format!("{kind}.{size}")),
            limits,
        }
    }

    /// The class whose limits a job has.
    pub(super) fn class(&self, job: &Job) -> Option<String> {
        let policy = self.policy.as_ref()?;
        let by_qos = policy
            .standings()
            .iter()
            .find(|own| own.qos.as_deref() == Some(&job.qos));
        let class = by_qos.or_else(|| policy.standing_of(&job.user, &job.account, None))?;
        class.user.clone().or_else(|| class.class.clone())
    }

    /// The monitor's figures of a node.
    pub(super) fn live_node(&self, node: &Node) -> Option<&usage::Node> {
        self.live.iter().find(|live| node.is_machine(&live.node))
    }

    /// The monitor's figures of a job.
    pub(super) fn live(&self, job: &Job) -> Option<&usage::Job> {
        let mut jobs = self.live.iter().flat_map(|live| &live.jobs);
        jobs.find(|own| own.job == job.id)
    }
}
