//! All that `softmig status` shows.

use crate::ask::cluster::all::Cluster;
use crate::ask::node::Node;
use crate::ask::squeue::Job;
use softmig_policy::Policy;
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

impl Picture {
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
