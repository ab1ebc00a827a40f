//! A job's request, in the fields and units that slurmctld's job description has.

use crate::slurm::gres::{Item, Prefix, items, mps};

/// The part of a job's request that is about GPUs. `None` is a field the user left unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `--gres` and `--gpus-per-node`. Every slice is written to this field in the end.
    pub tres_per_node: Option<String>,
    /// `--gpus`.
    pub tres_per_job: Option<String>,
    /// `--gpus-per-socket`.
    pub tres_per_socket: Option<String>,
    /// `--gpus-per-task` and `--tres-per-task`.
    pub tres_per_task: Option<String>,
    /// `--gpu-bind`; Slurm 23.11 and later also put `per_task` here for `--gpus-per-task`.
    pub tres_bind: Option<String>,
    /// `--gpu-freq`.
    pub tres_freq: Option<String>,
    /// `--cpus-per-gpu`.
    pub cpus_per_tres: Option<String>,
    /// `--mem-per-gpu`, in MiB.
    pub mem_per_tres: Option<String>,
    /// `--ntasks-per-gpu`.
    pub ntasks_per_tres: Option<u32>,
    /// The lower figure of `--nodes`.
    pub min_nodes: Option<u32>,
    /// The upper figure of `--nodes`.
    pub max_nodes: Option<u32>,
    /// `--ntasks`.
    pub num_tasks: Option<u32>,
    /// `--ntasks-per-node`.
    pub ntasks_per_node: Option<u32>,
    /// `--cpus-per-task`.
    pub cpus_per_task: Option<u32>,
    /// The CPUs the job needs in all, as the client adds them up.
    pub min_cpus: Option<u32>,
    /// `--mincpus`.
    pub min_cpus_per_node: Option<u32>,
    /// `--sockets-per-node`.
    pub sockets_per_node: Option<u32>,
    /// `--mem`, in MiB; 0 is all that the node has.
    pub memory_per_node: Option<u64>,
    /// `--mem-per-cpu`, in MiB.
    pub memory_per_cpu: Option<u64>,
    /// `--exclusive`.
    pub exclusive: bool,
}

impl Request {
    /// The fields that can hold a request for GPUs.
    pub(crate) fn tres(&self) -> impl Iterator<Item = (CountedPer, &str)> {
        [
            (CountedPer::Node, &self.tres_per_node),
            (CountedPer::Job, &self.tres_per_job),
            (CountedPer::Socket, &self.tres_per_socket),
            (CountedPer::Task, &self.tres_per_task),
        ]
        .into_iter()
        .filter_map(|(place, text)| Some((place, text.as_deref()?)))
    }

    /// Whether any of those fields names GPUs or parts of them, and not none of them.
    pub fn names_gpus(&self) -> bool {
        let mut items = self.tres().flat_map(|(_, text)| items(text));
        items.any(|(raw, item)| match item {
            Item::Gpu(gres) => gres.count() > 0,
            Item::Other(_) => matches!(mps(raw), Item::Gpu(gres) if gres.count() > 0),
            Item::Malformed(_) => true,
        })
    }

    /// The mark of its GRES; `None` if they have no mark.
    pub fn prefix(&self) -> Option<Prefix> {
        self.tres()
            .flat_map(|(_, text)| items(text))
            .find_map(|(_, item)| match item {
                Item::Gpu(gres) if gres.prefix != Prefix::None => Some(gres.prefix),
                _ => None,
            })
    }

    /// The field for this unit.
    pub(crate) fn tres_mut(&mut self, place: CountedPer) -> &mut Option<String> {
        match place {
            CountedPer::Node => &mut self.tres_per_node,
            CountedPer::Job => &mut self.tres_per_job,
            CountedPer::Socket => &mut self.tres_per_socket,
            CountedPer::Task => &mut self.tres_per_task,
        }
    }

    /// The smallest number of the job's tasks: one on each node, if it asks for none.
    pub(crate) fn tasks(&self) -> u64 {
        self.in_all(CountedPer::Task, 1)
    }

    /// The smallest number of nodes that it may run on.
    pub(crate) fn nodes(&self) -> u64 {
        u64::from(self.min_nodes.unwrap_or(1).max(1))
    }

    /// The smallest number of something in the whole job, if the job asks for `count` of it in this unit.
    pub(crate) fn in_all(&self, place: CountedPer, count: u64) -> u64 {
        let times = match place {
            CountedPer::Job => 1,
            CountedPer::Node => self.nodes(),
            CountedPer::Socket => self.nodes() * u64::from(self.sockets_per_node.unwrap_or(1)),
            CountedPer::Task => match (self.num_tasks, self.ntasks_per_node) {
                (Some(tasks), _) => u64::from(tasks),
                (None, Some(per_node)) => self.nodes() * u64::from(per_node),
                (None, None) => self.nodes(),
            },
        };
        count.saturating_mul(times.max(1))
    }

    /// Whether Slurm may give this job GPUs although no field asks for them: with a whole node, or by the number of its
    /// tasks.
    pub(crate) fn implies_gpus(&self) -> bool {
        self.exclusive || self.ntasks_per_tres.is_some()
    }
}

/// The unit by which a TRES string is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountedPer {
    /// `tres_per_node`.
    Node,
    /// `tres_per_job`.
    Job,
    /// `tres_per_socket`.
    Socket,
    /// `tres_per_task`.
    Task,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_none_names_no_gpus() {
        for (text, wanted) in [
            ("gres/gpu:1", true),
            ("gpu:l40s.4:1", true),
            ("shard:l40s:1", true),
            ("gpu:0,gpu:l40s:2", true),
            ("mps:50", true),
            ("gpu:0", false),
            ("gpu:l40s:0,shard:0", false),
            ("license:x:2", false),
        ] {
            let request = Request {
                tres_per_node: Some(text.into()),
                ..Request::default()
            };
            assert_eq!(request.names_gpus(), wanted, "{text}");
        }
    }
}
