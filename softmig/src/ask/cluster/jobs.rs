//! Jobs: what squeue says of them, and where `scontrol -d -o show job` says that their GPUs are.
//!
//! squeue's columns are Slurm's own. The lines of scontrol also have words that users chose, such as names and comments, so
//! they only say places, and only where a job's words cannot differ from Slurm's.

use softmig_policy::slurm::gres_list::Configured;
use softmig_policy::slurm::hostlist::expand;
use softmig_policy::slurm::placed::{self, Placed};
use std::collections::{BTreeSet, HashMap};

/// A job with GPUs, or one that waits for some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Job {
    /// Its number.
    pub(crate) id: u32,
    /// The same as people know it: `12_3`, or `12_[0-7]` for tasks that wait.
    pub(crate) name: String,
    /// Its user.
    pub(crate) user: String,
    /// Its account; empty where Slurm knows none.
    pub(crate) account: String,
    /// Slurm's word for its state.
    pub(crate) state: String,
    /// Slurm's word for why it waits.
    pub(crate) reason: String,
    /// Its partition, or several.
    pub(crate) partition: String,
    /// Its QOS; empty where Slurm knows none.
    pub(crate) qos: String,
    /// When it started, or when Slurm expects it to: local time.
    pub(crate) start: Option<String>,
    /// The GPUs and shards that it asked for, as its user typed them. Several options can mean the same ones, so each type has the
    /// largest count of all options.
    pub(crate) asked: Vec<Configured>,
    /// Its GPUs and shards on each node; `None` where that is not known.
    pub(crate) places: Vec<(String, Option<Vec<Placed>>)>,
}

/// squeue's columns and their widths.
const COLUMNS: [(&str, u32); 14] = [
    ("JobID", 16),
    ("JobArrayID", 64),
    ("UserName", 64),
    ("Account", 64),
    ("State", 24),
    ("Reason", 96),
    ("Partition", 64),
    ("QOS", 64),
    ("StartTime", 24),
    ("NodeList", 256),
    ("tres-per-job", 96),
    ("tres-per-node", 96),
    ("tres-per-socket", 64),
    ("tres-per-task", 96),
];

/// The states in which a job has GPUs, or waits for them.
const STATES: &str = "--states=PENDING,CONFIGURING,RUNNING,SUSPENDED,COMPLETING,STOPPED,RESIZING,SIGNALING,STAGE_OUT";

/// The words for squeue.
pub(super) fn question() -> Vec<String> {
    let columns = COLUMNS.map(|(name, width)| format!("{name}:{width}|"));
    let format = format!("--Format={}", columns.join(","));
    ["--noheader", "--all", "--local", STATES, &format]
        .map(str::to_string)
        .to_vec()
}

impl Job {
    /// Whether it waits.
    pub(crate) fn waits(&self) -> bool {
        self.state == "PENDING"
    }

    /// The type and number of its shards, if it has a slice or asks for one.
    pub(crate) fn slice(&self) -> Option<(Option<&str>, u64)> {
        let given = self
            .places
            .iter()
            .filter_map(|(_, gres)| gres.as_ref())
            .flatten();
        let given = given.map(|placed| &placed.gres);
        let mut shards = self
            .asked
            .iter()
            .chain(given)
            .filter(|gres| gres.name == "shard" && gres.count > 0);
        let first = shards.next()?;
        let mut kind = || {
            first
                .kind
                .as_deref()
                .or_else(|| shards.find_map(|gres| gres.kind.as_deref()))
        };
        Some((kind(), first.count))
    }

    /// The GPUs and shards that it has on all of its nodes; `None` for a job that waits, and where Slurm does not say it.
    pub(crate) fn held(&self) -> Option<Vec<Configured>> {
        if self.waits() {
            return None;
        }
        let mut held = Vec::new();
        for (_, gres) in &self.places {
            held.extend(gres.as_ref()?.iter().map(|placed| placed.gres.clone()));
        }
        let held = by_type(held.into_iter(), u64::saturating_add);
        (!held.is_empty()).then_some(held)
    }

    /// The GPUs that it has, else those that it asked for, as `--gres` takes them.
    pub(crate) fn gpus(&self) -> String {
        let all = self.held().unwrap_or_else(|| self.asked.clone());
        let texts = all.iter().map(|gres| match &gres.kind {
            Some(kind) => format!("{}:{kind}:{}", gres.name, gres.count),
            None => format!("{}:{}", gres.name, gres.count),
        });
        texts.collect::<Vec<_>>().join(",")
    }
}

/// Those that have GPUs or ask for some.
pub(super) fn all(squeue: &str, details: &str) -> Vec<Job> {
    let mut lines: HashMap<u32, Option<&str>> = HashMap::new();
    for line in details.lines() {
        if let Some(id) = id_of(line) {
            // A user can make a line that looks like another's.
            let known = lines.entry(id).or_insert(Some(line));
            if *known != Some(line) {
                *known = None;
            }
        }
    }
    let jobs = squeue.lines().filter_map(|line| job(line, &lines));
    jobs.filter(has_gpus).collect()
}

fn id_of(line: &str) -> Option<u32> {
    line.strip_prefix("JobId=")?.split(' ').next()?.parse().ok()
}

fn has_gpus(job: &Job) -> bool {
    let mut given = job
        .places
        .iter()
        .filter_map(|(_, gres)| gres.as_ref())
        .flatten();
    job.asked.iter().any(is_gpu)
        || given.any(|placed| is_gpu(&placed.gres) && placed.gres.count > 0)
}

fn is_gpu(gres: &Configured) -> bool {
    ["gpu", "shard"].contains(&gres.name.as_str())
}

/// The GPUs and shards of a list, those of one type in one entry.
fn by_type(
    list: impl Iterator<Item = Configured>,
    join: impl Fn(u64, u64) -> u64,
) -> Vec<Configured> {
    let mut all: Vec<Configured> = Vec::new();
    for one in list.filter(|gres| is_gpu(gres) && gres.count > 0) {
        let is_same = |own: &&mut Configured| own.name == one.name && own.kind == one.kind;
        match all.iter_mut().find(is_same) {
            Some(own) => own.count = join(own.count, one.count),
            None => all.push(one),
        }
    }
    all
}

fn job(line: &str, lines: &HashMap<u32, Option<&str>>) -> Option<Job> {
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    let own: [&str; COLUMNS.len()] = columns.get(..COLUMNS.len())?.try_into().ok()?;
    let [
        id,
        name,
        user,
        account,
        state,
        reason,
        partition,
        qos,
        start,
        nodes,
        asked @ ..,
    ] = own;
    let id = id.parse().ok()?;
    // Without slurmdbd a job has neither.
    let [account, qos] = [account, qos].map(|word| if word == "(null)" { "" } else { word });
    let nodes: BTreeSet<String> = expand(nodes).into_iter().collect();
    let line = lines.get(&id).copied().flatten();
    let places = line.map(|line| placed::of_job(line, |node| nodes.contains(node)));
    let unknown = || nodes.iter().map(|node| (node.clone(), None)).collect();
    let asked = asked.iter().flat_map(|asked| Configured::parse(asked));
    Some(Job {
        id,
        name: name.to_string(),
        user: user.to_string(),
        account: account.to_string(),
        state: state.to_string(),
        reason: reason.to_string(),
        partition: partition.to_string(),
        qos: qos.to_string(),
        start: Some(start)
            .filter(|start| start.contains('T'))
            .map(str::to_string),
        asked: by_type(asked, u64::max),
        places: places.unwrap_or_else(unknown),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(options: &str, state: &str, gres: &[&str]) -> Job {
        let nodes = (1..=gres.len()).map(|at| format!("n{at}"));
        let nodes: Vec<String> = nodes.collect();
        let line = format!(
            "7|7|a|b|{state}|None|main|c|N/A|{}|{options}",
            nodes.join(",")
        );
        let groups = nodes.iter().zip(gres);
        let groups =
            groups.map(|(node, gres)| format!("Nodes={node} CPU_IDs=0 Mem=1 GRES={gres} "));
        let details = format!("JobId=7 {}", groups.collect::<String>());
        all(&line, &details).remove(0)
    }

    #[test]
    fn a_job_has_its_gpus_on_all_nodes_and_not_the_number_that_was_typed() {
        // -N2 --gres=gpu:l40s:2
        let per_node = "N/A|gres/gpu:l40s:2|N/A|N/A|";
        let here = "gpu:l40s:2(IDX:0-1)";
        let runs = only(per_node, "RUNNING", &[here, here]);
        assert_eq!(runs.gpus(), "gpu:l40s:4");
        assert_eq!(only(per_node, "PENDING", &[]).gpus(), "gpu:l40s:2");
        // --gpus=4 --gpus-per-node=2
        let twice = "gres/gpu:4|gres/gpu:2|N/A|N/A|";
        assert_eq!(only(twice, "PENDING", &[]).gpus(), "gpu:4");
        let runs = only(twice, "RUNNING", &[here, here]);
        assert_eq!(runs.gpus(), "gpu:l40s:4");
        // --exclusive
        let runs = only("N/A|N/A|N/A|N/A|", "RUNNING", &[here, "gpu:l40s:1(IDX:0)"]);
        assert_eq!(runs.gpus(), "gpu:l40s:3");
    }

    #[test]
    fn where_slurm_does_not_say_what_a_job_has_what_it_asked_for_is_told() {
        let per_node = "N/A|gres/gpu:l40s:2|N/A|N/A|";
        let mut runs = only(per_node, "RUNNING", &["gpu:l40s:2(IDX:0-1)"]);
        runs.places.push(("n2".into(), None));
        assert_eq!((runs.held(), runs.gpus().as_str()), (None, "gpu:l40s:2"));
        assert_eq!(only(per_node, "RUNNING", &[""]).gpus(), "gpu:l40s:2");
    }
}
