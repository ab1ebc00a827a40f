//! All of a cluster: which job has which GPU, and how much of each is used.

use crate::ask::cluster::jobs;
use crate::ask::node::{Node, NodeGpu};
use crate::ask::scontrol::JobLines;
use crate::ask::squeue::Job;
use softmig_policy::slurm::placed::Placed;
use std::collections::{BTreeMap, HashMap};

/// All of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    /// The nodes with GPUs, in Slurm's order.
    pub(crate) nodes: Vec<Node>,
    /// The jobs that have GPUs or ask for some.
    pub(crate) jobs: Vec<Job>,
}

impl Cluster {
    /// Of the three answers: about nodes, about jobs by squeue, and about jobs by scontrol.
    pub(super) fn new(mut nodes: Vec<Node>, jobs: Vec<Job>, lines: &JobLines<'_>) -> Self {
        nodes.retain(|node| !node.gpus.is_empty());
        let mut cluster = Self {
            nodes,
            jobs: jobs::placed(jobs, lines),
        };
        fill(&mut cluster);
        cluster
    }

    /// Of the same as Slurm's commands print them.
    #[cfg(test)]
    pub(crate) fn parse(nodes: &str, jobs: &str, details: &str) -> Self {
        use crate::ask::scontrol::nodes_of;
        use crate::ask::squeue::{DESCRIPTION, read};
        Self::new(
            nodes_of(nodes),
            read(jobs, DESCRIPTION),
            &JobLines::parse(details),
        )
    }

    /// Whether a node has GPUs of this type, or some whose type Slurm does not know.
    pub(crate) fn may_have(&self, kind: &str) -> bool {
        let mut gpus = self.nodes.iter().flat_map(|node| &node.gpus);
        gpus.any(|gpu| gpu.kind == kind || gpu.kind.is_empty())
    }
}

/// Puts the jobs on their GPUs, and counts shards where nodes do not say them.
fn fill(cluster: &mut Cluster) {
    let mut on: HashMap<&str, Vec<(&Job, &Placed)>> = HashMap::new();
    for job in cluster.jobs.iter().filter(|job| !job.waits()) {
        for (node, gres) in &job.places {
            let own = on.entry(node.as_str()).or_default();
            own.extend(gres.iter().flatten().map(|placed| (job, placed)));
        }
    }
    for node in &mut cluster.nodes {
        let jobs = on.get(node.name.as_str());
        fill_node(node, jobs.map_or(&[], Vec::as_slice));
    }
}

fn fill_node(node: &mut Node, jobs: &[(&Job, &Placed)]) {
    // By type: the shards of jobs that are shown, whether their GPU is known or not.
    let mut shown: BTreeMap<String, u64> = BTreeMap::new();
    let mut placed_shards: BTreeMap<String, u64> = BTreeMap::new();
    for (job, placed) in jobs {
        let is_shard = placed.gres.name == "shard";
        if is_shard {
            let kind = placed.gres.kind.clone().or_else(|| only_kind(node));
            *shown.entry(kind.unwrap_or_default()).or_default() += placed.gres.count;
        }
        for gpu in &mut node.gpus {
            let Some(count) = placed.on(gpu.index).filter(|count| *count > 0) else {
                continue;
            };
            if !gpu.jobs.contains(&job.id) {
                gpu.jobs.push(job.id);
            }
            if !is_shard {
                gpu.whole = true;
            } else if !gpu.is_told {
                gpu.used = gpu.used.map(|used| used + count);
                *placed_shards.entry(gpu.kind.clone()).or_default() += count;
            }
        }
    }
    if node.gpus.iter().any(|gpu| gpu.is_told) {
        return;
    }
    let kinds: Vec<String> = node.gpus.iter().map(|gpu| gpu.kind.clone()).collect();
    for kind in kinds {
        let known = placed_shards.get(&kind).copied().unwrap_or(0);
        let all = node
            .allocated
            .get(&kind)
            .or(shown.get(&kind))
            .copied()
            .unwrap_or(0)
            .max(known);
        if all > known {
            node.unplaced.insert(kind, all - known);
        }
    }
    hide(node);
}

/// Of jobs that are not shown, 22.05 says on which GPUs they are, but not with how many shards.
fn hide(node: &mut Node) {
    if node.allocated.is_empty() {
        let is_hidden = |gpu: &&mut NodeGpu| gpu.is_touched && gpu.jobs.is_empty();
        for gpu in node.gpus.iter_mut().filter(is_hidden) {
            gpu.used = None;
        }
        return;
    }
    // A job that is not shown is on the GPU with shards in use, where there is only one.
    for (kind, count) in std::mem::take(&mut node.unplaced) {
        let mut touched = node
            .gpus
            .iter_mut()
            .filter(|gpu| gpu.kind == kind && gpu.is_touched);
        let only = match (touched.next(), touched.next()) {
            (Some(gpu), None) => gpu,
            _ => {
                node.unplaced.insert(kind, count);
                continue;
            }
        };
        only.used = only.used.map(|used| only.shards.min(used + count));
    }
}

fn only_kind(node: &Node) -> Option<String> {
    let first = &node.gpus.first()?.kind;
    node.gpus
        .iter()
        .all(|gpu| gpu.kind == *first)
        .then(|| first.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of real clusters: root's view. On gpu01 two users' slices fill GPU 0, GPU 1 is a job's, and GPU 2 is a kept one;
    /// gpu02 is drained; on gpu03 three slices are on GPU 0; gpu04 has MIG instances. Eight jobs wait.
    const ANSWERS: [(&str, [&str; 3]); 3] = [
        (
            "22.05",
            [
                include_str!("answers/22.05/nodes.txt"),
                include_str!("answers/22.05/jobs.txt"),
                include_str!("answers/22.05/details.txt"),
            ],
        ),
        (
            "24.11",
            [
                include_str!("answers/24.11/nodes.txt"),
                include_str!("answers/24.11/jobs.txt"),
                include_str!("answers/24.11/details.txt"),
            ],
        ),
        (
            "26.05",
            [
                include_str!("answers/26.05/nodes.txt"),
                include_str!("answers/26.05/jobs.txt"),
                include_str!("answers/26.05/details.txt"),
            ],
        ),
    ];

    /// The jobs that Slurm shows to alice with PrivateData=jobs.
    fn of_alice(lines: &str, mark: &str) -> String {
        let own = lines.lines().filter(|line| line.contains(mark));
        own.map(|line| format!("{line}\n")).collect()
    }

    fn gpus(cluster: &Cluster) -> Vec<(String, Option<u64>, bool, Vec<u32>)> {
        let of_node = |node: &Node| {
            let name = node.name.clone();
            let gpus = node.gpus.clone().into_iter();
            gpus.map(move |mut gpu| {
                gpu.jobs.sort_unstable();
                let name = format!("{name} {} {} {}", gpu.index, gpu.kind, gpu.shards);
                (name, gpu.used, gpu.whole, gpu.jobs)
            })
        };
        cluster.nodes.iter().flat_map(of_node).collect()
    }

    const GPUS: [(&str, u64, bool, &[u32]); 8] = [
        ("gpu01 0 l40s 4", 4, false, &[1, 2, 3]),
        ("gpu01 1 l40s 4", 0, true, &[4]),
        ("gpu01 2 l40s_r 1", 0, true, &[5]),
        ("gpu02 0 l40s 4", 0, false, &[]),
        ("gpu03 0 h200 8", 3, false, &[6, 9, 10]),
        ("gpu03 1 h200 8", 0, false, &[]),
        ("gpu04 0 h100_1g.10gb 1", 0, true, &[7]),
        ("gpu04 1 h100_1g.10gb 1", 0, false, &[]),
    ];

    #[test]
    fn each_gpu_has_its_jobs_on_every_release() {
        for (release, [nodes, jobs, details]) in ANSWERS {
            let cluster = Cluster::parse(nodes, jobs, details);
            let expected = GPUS.map(|(name, used, whole, jobs)| {
                (name.to_string(), Some(used), whole, jobs.to_vec())
            });
            assert_eq!(gpus(&cluster), expected, "{release}");
            let closed: Vec<_> = cluster.nodes.iter().map(Node::closed).collect();
            assert_eq!(closed, [None, Some("drained"), None, None], "{release}");
            assert_eq!(cluster.nodes[1].reason.as_deref(), Some("fan broken"));
            assert!(cluster.nodes.iter().all(|node| node.unplaced.is_empty()));
            assert_eq!(cluster.nodes[0].free_cpus, Some(10), "{release}");
            assert_eq!(cluster.jobs.iter().filter(|job| job.waits()).count(), 8);
            // Job 8 has no GPU.
            assert_eq!(cluster.jobs.len(), 17, "{release}");
            let task = cluster.jobs.iter().find(|job| job.id == 10).unwrap();
            assert_eq!(
                (task.name.as_str(), task.slice()),
                ("9_0", Some((Some("h200"), 1)))
            );
            let whole = cluster.jobs.iter().find(|job| job.id == 4).unwrap();
            assert_eq!((whole.gpus().as_str(), whole.slice()), ("gpu:l40s:1", None));
        }
    }

    #[test]
    fn used_shards_are_right_without_other_users_jobs() {
        for (release, [nodes, jobs, details]) in ANSWERS {
            let jobs = of_alice(jobs, "|alice|");
            let details = of_alice(details, "UserId=alice(");
            let cluster = Cluster::parse(nodes, &jobs, &details);
            let seen = gpus(&cluster);
            for ((name, used, whole, _), own) in GPUS.iter().zip(&seen) {
                assert_eq!(
                    (name.to_string(), Some(*used), *whole),
                    (own.0.clone(), own.1, own.2),
                    "{release}"
                );
            }
            assert_eq!(seen[0].3, [1, 2], "{release}");
        }
    }

    #[test]
    fn what_the_oldest_release_does_not_say_is_unknown() {
        let (_, [nodes, jobs, details]) = ANSWERS[0];
        // A site without gres/shard in AccountingStorageTRES.
        let nodes: String = nodes
            .lines()
            .map(|line| line.split(" CfgTRES=").next().unwrap().to_string() + "\n")
            .collect();
        let all = Cluster::parse(&nodes, jobs, details);
        assert_eq!(gpus(&all)[0].1, Some(4));
        let alices = Cluster::parse(
            &nodes,
            &of_alice(jobs, "|alice|"),
            &of_alice(details, "UserId=alice("),
        );
        // All of gpu03's slices are carol's.
        assert_eq!(gpus(&alices)[4].1, None);
    }

    #[test]
    fn words_that_a_user_chose_move_no_job() {
        let (_, [nodes, jobs, details]) = ANSWERS[2];
        let forged = "JobId=3 JobName=x UserId=bob(2002) Nodes=gpu03 GRES=gpu:h200:2(IDX:0-1)";
        let cluster = Cluster::parse(nodes, jobs, &format!("{forged}\n{details}"));
        // Where job 3 is is not known now, but nothing is taken from others.
        let seen = gpus(&cluster);
        assert_eq!((seen[0].1, seen[0].3.as_slice()), (Some(4), &[1, 2][..]));
        assert_eq!((seen[5].1, seen[5].2), (Some(0), false));
        let named = details.replace(
            "JobName=sbatch",
            "JobName=x Nodes=gpu02 GRES=gpu:l40s:1(IDX:0)",
        );
        let cluster = Cluster::parse(nodes, jobs, &named);
        let expected = GPUS.map(|(_, used, whole, jobs)| (Some(used), whole, jobs.to_vec()));
        let seen = gpus(&cluster)
            .into_iter()
            .map(|(_, used, whole, jobs)| (used, whole, jobs));
        assert_eq!(seen.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn answers_of_a_slurm_without_jobs_or_gpus_are_empty() {
        let (_, [nodes, _, _]) = ANSWERS[1];
        let cluster = Cluster::parse(nodes, "", "No jobs in the system\n");
        assert!(cluster.jobs.is_empty());
        assert!(
            Cluster::parse("NodeName=login State=IDLE Gres=(null)\n", "", "")
                .nodes
                .is_empty()
        );
        assert!(
            Cluster::parse("garbage\nNodeName=\n", "|||\nx", "JobId=\n")
                .nodes
                .is_empty()
        );
    }

    #[test]
    fn a_slurm_without_slurmdbd_knows_no_accounts_and_no_qos() {
        let (_, [nodes, _, _]) = ANSWERS[1];
        let line = "7|7|alice|(null)|RUNNING|None|main|(null)|2026-11-24T04:19:40|gpu03||gres:shard:h200:2||";
        let cluster = Cluster::parse(nodes, line, "");
        let job = &cluster.jobs[0];
        assert_eq!((job.account.as_str(), job.qos.as_str()), ("", ""));
    }

    #[test]
    fn a_type_that_no_node_has_cannot_be_had() {
        let (_, [nodes, _, _]) = ANSWERS[1];
        let cluster = Cluster::parse(nodes, "", "");
        assert!(cluster.may_have("h200"));
        assert!(!cluster.may_have("a100"));
        let untyped = Cluster::parse("NodeName=n1 State=IDLE Gres=gpu:2\n", "", "");
        assert!(untyped.may_have("a100"));
    }
}
