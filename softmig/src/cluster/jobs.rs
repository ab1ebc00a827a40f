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
    /// The GPUs and shards that it asked for.
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

    /// Its GPUs, as `--gres` takes them.
    pub(crate) fn gpus(&self) -> String {
        let given = self.places.iter().find_map(|(_, gres)| gres.as_ref());
        let given = given.map(|gres| gres.iter().map(|placed| &placed.gres));
        let all: Vec<&Configured> = match given {
            Some(given) if self.asked.is_empty() => given.collect(),
            _ => self.asked.iter().collect(),
        };
        let texts = all
            .iter()
            .filter(|gres| is_gpu(gres))
            .map(|gres| match &gres.kind {
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
    let asked = asked
        .iter()
        .flat_map(|asked| Configured::parse(asked))
        .filter(is_gpu);
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
        asked: asked.collect(),
        places: places.unwrap_or_else(unknown),
    })
}
