//! Jobs as squeue lists them: the one place that asks it and reads its answer.
//!
//! Who wants more than numbers gets what users typed as well, in the last columns: no text there moves a column before it.

use softmig_node::job::Sluid;
use softmig_node::slurmctld::{AskError, Commands};
use softmig_policy::slurm::gres_list::Configured;
use softmig_policy::slurm::hostlist::expand;
use softmig_policy::slurm::placed::Placed;
use softmig_policy::slurm::release::SlurmVersion;
use std::collections::BTreeSet;

/// A job. What was not asked for is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Job {
    /// Its number.
    pub(crate) id: u32,
    /// The same as people know it: `12_3`, or `12_[0-7]` for tasks that wait.
    pub(crate) name: String,
    /// Its user.
    pub(crate) user: String,
    /// The number of its user.
    pub(crate) uid: Option<u32>,
    /// The number of its group.
    pub(crate) gid: Option<u32>,
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
    /// How often it was started again.
    pub(crate) run: Option<u32>,
    /// Its second name, where jobs have one.
    pub(crate) sluid: Option<Sluid>,
    /// The GPUs and shards that it asked for, as its user typed them. Several options can mean the same ones.
    pub(crate) asked: Vec<Configured>,
    /// Its GPUs and shards on each node; `None` where that is not known: squeue does not say it.
    pub(crate) places: Vec<(String, Option<Vec<Placed>>)>,
}

/// The columns that all releases know, and their widths.
const COLUMNS: [(&str, u32); 18] = [
    ("JobID", 16),
    ("JobArrayID", 64),
    ("UserName", 64),
    ("UserID", 16),
    ("GroupID", 16),
    ("Account", 64),
    ("State", 24),
    ("Reason", 96),
    ("Partition", 64),
    ("QOS", 64),
    ("StartTime", 24),
    ("RestartCnt", 16),
    ("SLUID", 32),
    ("NodeList", 256),
    ("tres-per-job", 128),
    ("tres-per-node", 128),
    ("tres-per-socket", 128),
    ("tres-per-task", 128),
];

/// The columns that people want to know.
pub(crate) const DESCRIPTION: &[&str] = &[
    "JobID",
    "JobArrayID",
    "UserName",
    "Account",
    "State",
    "Reason",
    "Partition",
    "QOS",
    "StartTime",
    "NodeList",
    "tres-per-job",
    "tres-per-node",
    "tres-per-socket",
    "tres-per-task",
];

/// The columns of Slurm's own numbers: none of it is text that a user chose and could make look like something else.
const NUMBERS: &[&str] = &["JobID", "UserID", "GroupID", "RestartCnt"];

/// The same on releases where jobs have a second name, by which the job's control group may be called.
const NUMBERS_AND_SLUID: &[&str] = &["JobID", "UserID", "GroupID", "RestartCnt", "SLUID"];

/// The numbers, and the same as people know them.
pub(crate) const NAMES: &[&str] = &["JobID", "JobArrayID"];

/// The number alone.
const ID: &[&str] = &["JobID"];

/// The jobs that these options of squeue's choose.
pub(crate) fn jobs(
    commands: &Commands,
    columns: &[&str],
    options: &[&str],
) -> Result<Vec<Job>, AskError> {
    let format = format!("--Format={}", format(columns));
    let words = [&["--noheader", "--all", "--local", &format], options].concat();
    Ok(read(&commands.long_answer("squeue", &words)?, columns))
}

/// Their numbers, and their second names where the release has them.
pub(crate) fn numbers(commands: &Commands, options: &[&str]) -> Result<Vec<Job>, AskError> {
    let release = commands.answer("squeue", &["--version"])?;
    let release = release.trim().parse::<SlurmVersion>();
    let columns = if release.is_ok_and(SlurmVersion::gives_jobs_sluids) {
        NUMBERS_AND_SLUID
    } else {
        NUMBERS
    };
    jobs(commands, columns, options)
}

/// The numbers of all jobs that Slurm knows, each task of an array by itself.
pub(crate) fn ids(commands: &Commands) -> Result<BTreeSet<u32>, AskError> {
    let jobs = jobs(commands, ID, &["--states=all", "--array"])?;
    Ok(jobs.into_iter().map(|job| job.id).collect())
}

/// Reads an answer with numbers alone.
#[cfg(test)]
pub(crate) fn read_numbers(answer: &str) -> Vec<Job> {
    read(answer, NUMBERS)
}

fn format(columns: &[&str]) -> String {
    let width = |name: &str| COLUMNS.iter().find(|(own, _)| *own == name);
    let columns = columns
        .iter()
        .filter_map(|name| width(name))
        .map(|(name, width)| format!("{name}:{width}|"));
    columns.collect::<Vec<_>>().join(",")
}

/// Reads an answer with these columns. Lines that have too few of them are passed over.
pub(crate) fn read(answer: &str, columns: &[&str]) -> Vec<Job> {
    let jobs = answer.lines().filter_map(|line| job(line, columns));
    jobs.collect()
}

fn job(line: &str, columns: &[&str]) -> Option<Job> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let cells = cells.get(..columns.len())?;
    let mut job = Job::default();
    for (column, cell) in columns.iter().zip(cells) {
        let text = || cell.to_string();
        match *column {
            "JobID" => job.id = cell.parse().ok()?,
            "JobArrayID" => job.name = text(),
            "UserName" => job.user = text(),
            "UserID" => job.uid = cell.parse().ok(),
            "GroupID" => job.gid = cell.parse().ok(),
            "Account" => job.account = text(),
            "State" => job.state = text(),
            "Reason" => job.reason = text(),
            "Partition" => job.partition = text(),
            "QOS" => job.qos = text(),
            "StartTime" => job.start = cell.contains('T').then(text),
            "RestartCnt" => job.run = cell.parse().ok(),
            "SLUID" => job.sluid = Sluid::parse(cell),
            "NodeList" => {
                let nodes: BTreeSet<String> = expand(cell).into_iter().collect();
                job.places = nodes.into_iter().map(|node| (node, None)).collect();
            }
            _ => job.asked.extend(Configured::parse(cell)),
        }
    }
    Some(job)
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
            .flatten()
            .map(|placed| &placed.gres);
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
        let held = by_type(held, u64::saturating_add);
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

    /// Whether it has GPUs or asks for some.
    pub(super) fn has_gpus(&self) -> bool {
        let mut given = self
            .places
            .iter()
            .filter_map(|(_, gres)| gres.as_ref())
            .flatten()
            .map(|placed| &placed.gres);
        self.asked.iter().any(Configured::is_gpu)
            || given.any(|gres| gres.is_gpu() && gres.count > 0)
    }
}

/// The GPUs and shards of a list, those of one type in one entry.
pub(super) fn by_type(list: Vec<Configured>, join: impl Fn(u64, u64) -> u64) -> Vec<Configured> {
    let mut all: Vec<Configured> = Vec::new();
    for one in list
        .into_iter()
        .filter(|gres| gres.is_gpu() && gres.count > 0)
    {
        let is_same = |own: &&mut Configured| own.name == one.name && own.kind == one.kind;
        match all.iter_mut().find(is_same) {
            Some(own) => own.count = join(own.count, one.count),
            None => all.push(one),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_want_to_know_is_read() {
        let job = |asked: &str| {
            let line = format!(
                "12  |12_[0-3]  |alice |teaching |PENDING |Priority |main |a |N/A |n[2,1] |{asked}|"
            );
            read(&line, DESCRIPTION).remove(0)
        };
        let own = job("N/A |N/A |N/A |N/A ");
        assert_eq!((own.id, own.name.as_str()), (12, "12_[0-3]"));
        assert_eq!(
            [&*own.user, &*own.account, &*own.reason],
            ["alice", "teaching", "Priority"]
        );
        assert_eq!(own.start, None);
        assert_eq!(own.places, [("n1".into(), None), ("n2".into(), None)]);
        let kinds = |asked: &str| -> Vec<String> {
            let gpus = job(asked)
                .asked
                .into_iter()
                .filter(|gres| gres.name == "gpu");
            gpus.filter_map(|gres| gres.kind).collect()
        };
        assert_eq!(kinds("N/A |gres:gpu:l40s_r:1 |N/A |N/A "), ["l40s_r"]);
        assert_eq!(kinds("gres/gpu:l40s_r |N/A |N/A |N/A "), ["l40s_r"]);
        assert_eq!(kinds("N/A|N/A|N/A|cpu=2,gres/gpu:l40s_r=1 "), ["l40s_r"]);
        assert!(read("\nx|\n7|7|alice\n", DESCRIPTION).is_empty());
    }

    #[test]
    fn numbers_are_read_with_and_without_a_sluid() {
        let line = "7        |2001    |2002    |3       |";
        let job = read(line, NUMBERS).remove(0);
        assert_eq!(
            (job.id, job.uid, job.gid, job.run, job.sluid),
            (7, Some(2001), Some(2002), Some(3), None)
        );
        let sluid = |text: &str| {
            let jobs = read(&format!("7|2001|2002|0|{text} |"), NUMBERS_AND_SLUID);
            jobs.into_iter().next()?.sluid
        };
        assert_eq!(sluid("sF49M82R4N8J00"), Sluid::parse("sF49M82R4N8J00"));
        assert_eq!(sluid("N/A"), None);
        assert_eq!(read("7     |\n8     |\n", ID).len(), 2);
    }

    #[test]
    fn each_column_has_a_width() {
        for columns in [DESCRIPTION, NUMBERS, NUMBERS_AND_SLUID, ID] {
            assert_eq!(format(columns).split(',').count(), columns.len());
        }
        assert_eq!(format(ID), "JobID:16|");
    }
}
