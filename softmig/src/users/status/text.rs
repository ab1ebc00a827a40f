//! The plain form: ASCII, without colour, in 80 columns where names are short.

use super::picture::{Holding, Picture};
use crate::ask::cluster::purpose::Purpose;
use crate::ask::node::{Node, NodeGpu};
use crate::ask::squeue::Job;
use crate::output::say::{plain, wrapped};
use crate::output::table::columns;
use softmig_policy::slurm::hostlist;
use softmig_usage::summary::{Size, Summary};
use std::collections::{BTreeSet, HashMap};

const WIDTH: usize = 80;

/// All lines of the answer.
pub(super) fn lines(picture: &Picture) -> Vec<String> {
    let rows = JobRows::new(picture);
    let mut lines = nodes(picture, &rows);
    lines.extend(elsewhere(picture, &rows));
    lines.extend(waiting(picture));
    lines.extend(not_listed(picture));
    for note in &picture.notes {
        lines.push(String::new());
        lines.extend(wrapped(&format!("not known: {note}"), WIDTH, 0));
    }
    lines.iter().map(|line| plain(line)).collect()
}

/// Nodes, their GPUs, and the jobs that are shown. Nodes that are alike and have no such job come together.
fn nodes(picture: &Picture, rows: &JobRows) -> Vec<String> {
    let mut groups: Vec<(Vec<&str>, Vec<String>)> = Vec::new();
    let mut alike: HashMap<(String, Vec<String>), usize> = HashMap::new();
    for node in &picture.cluster.nodes {
        let (head, body) = (head(node), body(picture, node, rows));
        let has_jobs = node.gpus.iter().any(|gpu| rows.has(gpu));
        let at = if has_jobs {
            groups.len()
        } else {
            *alike
                .entry((head.clone(), body.clone()))
                .or_insert(groups.len())
        };
        match groups.get_mut(at) {
            Some((names, _)) => names.push(&node.name),
            None => groups.push((vec![&node.name], [vec![head], body].concat())),
        }
    }
    let mut lines: Vec<String> = Vec::new();
    lines.extend(rows.head.clone());
    for (names, group) in groups {
        let mut group = group.into_iter();
        let head = group.next().unwrap_or_default();
        let names = hostlist::compress(names);
        lines.extend(wrapped(&format!("{names}: {head}"), WIDTH, 2));
        lines.extend(group);
    }
    lines
}

fn head(node: &Node) -> String {
    let partitions = match node.partitions.as_slice() {
        [] => "in no partition".to_string(),
        [one] => format!("partition {one}"),
        several => format!("partitions {}", several.join(", ")),
    };
    match (node.closed(), &node.reason) {
        (Some(closed), Some(reason)) => format!("{partitions}; {closed}: {reason}"),
        (Some(closed), None) => format!("{partitions}; {closed}"),
        (None, _) => partitions,
    }
}

/// A line for each GPU; those that are alike and follow each other share one.
fn body(picture: &Picture, node: &Node, rows: &JobRows) -> Vec<String> {
    let mut table: Vec<[String; 3]> = Vec::new();
    let mut below: Vec<Vec<String>> = Vec::new();
    let mut first = 0;
    for gpu in &node.gpus {
        let words = use_of(picture, node, gpu);
        let jobs = rows.on(gpu);
        let joins = jobs.is_empty() && below.last().is_some_and(Vec::is_empty);
        match table.last_mut() {
            Some([name, kind, told]) if joins && *kind == gpu.kind && *told == words => {
                *name = format!("GPU {first}-{}", gpu.index);
            }
            _ => {
                first = gpu.index;
                table.push([format!("GPU {}", gpu.index), gpu.kind.clone(), words]);
                below.push(jobs);
            }
        }
    }
    let mut lines = Vec::new();
    for (line, jobs) in columns(&table, 2).into_iter().zip(below) {
        lines.push(line);
        lines.extend(jobs);
    }
    for (kind, count) in &node.unplaced {
        let line =
            format!("{count} more shards of type {kind} are used, on GPUs that Slurm does not say");
        lines.extend(wrapped(&format!("  {line}"), WIDTH, 2));
    }
    lines
}

/// "1 of 4 shards free".
fn use_of(picture: &Picture, node: &Node, gpu: &NodeGpu) -> String {
    let purpose = picture.purpose(gpu);
    let state = if gpu.whole {
        match purpose {
            Purpose::Shared => "used as a whole".to_string(),
            Purpose::Whole | Purpose::Mig | Purpose::Reserved(_) => "used".to_string(),
        }
    } else {
        match (gpu.used, node.closed()) {
            (None, _) => "shards used, Slurm does not say how many".to_string(),
            (Some(used), Some(_)) if gpu.shards > 1 => {
                format!("{used} of {} shards used", gpu.shards)
            }
            (Some(0), Some(_)) => "not used".to_string(),
            (Some(_), None) if gpu.shards > 1 => match gpu.free().unwrap_or(0) {
                0 => format!("none of {} shards free", gpu.shards),
                free => format!("{free} of {} shards free", gpu.shards),
            },
            (Some(0), None) => "free".to_string(),
            (Some(_), _) => "used".to_string(),
        }
    };
    let mut text = match purpose {
        Purpose::Shared => state,
        Purpose::Whole => format!("whole only, {state}"),
        Purpose::Mig => format!("MIG instance, {state}"),
        Purpose::Reserved(holder) => format!("reserved for {holder}, {state}"),
    };
    let live = picture
        .live_node(node)
        .and_then(|live| live.gpus.iter().find(|own| own.index == gpu.index));
    if let Some((used, all)) = live.and_then(|gpu| gpu.memory_used_bytes.zip(gpu.memory_bytes)) {
        text += &format!(", {} of {} held", Size(used), Size(all));
    }
    text
}

/// The lines of jobs below their GPUs, made before so that they have common columns.
struct JobRows {
    head: Option<String>,
    rows: HashMap<u32, Vec<String>>,
    /// The jobs whose GPUs are known.
    placed: BTreeSet<u32>,
}

impl JobRows {
    fn new(picture: &Picture) -> Self {
        let gpus = picture.cluster.nodes.iter().flat_map(|node| &node.gpus);
        let placed: BTreeSet<u32> = gpus.flat_map(|gpu| gpu.jobs.clone()).collect();
        let mut jobs: Vec<&Job> = picture.listed().collect();
        jobs.retain(|job| placed.contains(&job.id));
        jobs.sort_by_key(|job| job.id);
        let head = ["JOB", "USER", "CLASS", "HAS", "MEMORY", "TIME", "SINCE"].map(str::to_string);
        let cells = jobs.iter().map(|job| row(picture, job));
        let table: Vec<[String; 7]> = [head].into_iter().chain(cells).collect();
        let mut lines = columns(&table, 4).into_iter();
        let head = lines.next().filter(|_| !jobs.is_empty());
        let rows = jobs.iter().zip(lines).map(|(job, line)| {
            let lines = [line].into_iter().chain(used(picture, job));
            (job.id, lines.collect())
        });
        Self {
            head,
            rows: rows.collect(),
            placed,
        }
    }

    fn has(&self, gpu: &NodeGpu) -> bool {
        gpu.jobs.iter().any(|job| self.rows.contains_key(job))
    }

    fn on(&self, gpu: &NodeGpu) -> Vec<String> {
        let mut jobs = gpu.jobs.clone();
        jobs.sort_unstable();
        let rows = jobs.iter().filter_map(|job| self.rows.get(job));
        rows.flatten().cloned().collect()
    }
}

fn row(picture: &Picture, job: &Job) -> [String; 7] {
    let Holding { what, limits } = picture.holding(job);
    let unknown = || "-".to_string();
    [
        job.name.clone(),
        job.user.clone(),
        picture.class(job).unwrap_or_else(unknown),
        what,
        limits.map_or_else(unknown, |of| format!("{} MiB", of.memory_mib())),
        limits.map_or_else(unknown, |of| format!("{} %", of.percent())),
        since(job).unwrap_or_else(unknown),
    ]
}

/// The monitor's figures of a job.
fn used(picture: &Picture, job: &Job) -> Vec<String> {
    let Some(live) = picture.live(job) else {
        return Vec::new();
    };
    let summary = Summary::from_job(live);
    let held = summary.as_ref().and_then(|it| it.held_bytes);
    let parts: Vec<String> = [
        summary.map(|it| it.sentence(None)),
        held.map(|held| format!("holds {} now", Size(held))),
        live.full_words().map(|words| format!("memory {words}")),
        live.idle_words(),
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() {
        Vec::new()
    } else {
        wrapped(&format!("      {}", parts.join("; ")), WIDTH, 6)
    }
}

/// `11-23 20:38`.
fn since(job: &Job) -> Option<String> {
    let start = job.start.as_ref()?;
    let (date, time) = start.split_once('T')?;
    Some(format!("{} {}", date.get(5..)?, time.get(..5)?))
}

/// Jobs that run, and of which Slurm does not say the GPU.
fn elsewhere(picture: &Picture, rows: &JobRows) -> Vec<String> {
    let mut jobs: Vec<&Job> = picture.listed().collect();
    jobs.retain(|job| !job.waits() && !rows.placed.contains(&job.id));
    jobs.sort_by_key(|job| job.id);
    if jobs.is_empty() {
        return Vec::new();
    }
    let title = "Running, on GPUs that Slurm does not say".to_string();
    let cells: Vec<_> = jobs.iter().map(|job| row(picture, job)).collect();
    [vec![String::new(), title], columns(&cells, 4)].concat()
}

/// The jobs that wait, each with the reason below it.
fn waiting(picture: &Picture) -> Vec<String> {
    let jobs: Vec<&Job> = picture.listed().filter(|job| job.waits()).collect();
    if jobs.is_empty() {
        return Vec::new();
    }
    let cells = |job: &&Job| {
        let expected = since(job).map_or("start not known".to_string(), |start| {
            format!("start expected {start}")
        });
        let what = picture.holding(job).what;
        [job.name.clone(), job.user.clone(), what, expected]
    };
    let table: Vec<[String; 4]> = jobs.iter().map(cells).collect();
    let mut lines = vec![String::new(), "Waiting".to_string()];
    for (line, job) in columns(&table, 4).into_iter().zip(jobs) {
        lines.push(line);
        let (words, code) = picture.why(job);
        lines.extend(wrapped(&format!("      {words} [{code}]"), WIDTH, 6));
    }
    lines
}

/// How many jobs of others there are.
fn not_listed(picture: &Picture) -> Vec<String> {
    let mut others: Vec<&Job> = picture.cluster.jobs.iter().collect();
    others.retain(|job| !picture.shown.has(job));
    let (waiting, running): (Vec<&Job>, Vec<&Job>) =
        others.into_iter().partition(|job| job.waits());
    if waiting.is_empty() && running.is_empty() {
        return Vec::new();
    }
    let line = format!(
        "Not listed: {} running and {} waiting jobs of others (--all)",
        running.len(),
        waiting.len()
    );
    vec![String::new(), line]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::cluster::all::Cluster;
    use crate::users::status::picture::Shown;
    use softmig_policy::Policy;
    use softmig_usage as usage;

    const POLICY: &str = "default_class = \"student\"\n\
        [gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n\
        [gpu.h200]\nmemory_mib = 143771\nreserved_mib = 616\nshards = 8\n\
        [gpu.\"h100_1g.10gb\"]\nmemory_mib = 9856\nreserved_mib = 4\nshards = 1\nmig = true\n\
        [classes.student]\nshards = 2\nwhole_gpus = 0\nmig = { \"h100_1g.10gb\" = 1 }\n\
        [classes.researcher]\nmembers = { accounts = [\"research\"] }\nshards = \"unlimited\"\nwhole_gpus = \"unlimited\"\n\
        mig = { \"h100_1g.10gb\" = \"unlimited\" }\n\
        [[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\nuser = \"carol\"\nreason = \"x\"\nend = 2999-01-01T00:00:00Z\n";

    /// The answer of a real Slurm.
    fn picture(user: &str, of: Option<&str>) -> Picture {
        let cluster = Cluster::parse(
            include_str!("../../ask/cluster/answers/24.11/nodes.txt"),
            include_str!("../../ask/cluster/answers/24.11/jobs.txt"),
            include_str!("../../ask/cluster/answers/24.11/details.txt"),
        );
        Picture {
            cluster,
            policy: Some(Policy::parse(POLICY).unwrap()),
            notes: Vec::new(),
            live: Vec::new(),
            shown: Shown {
                own: Some(user.into()),
                of: of.map(str::to_string),
            },
            now: 1_795_467_275,
        }
    }

    fn shown(picture: &Picture) -> String {
        let lines = super::lines(picture);
        assert!(
            lines
                .iter()
                .all(|line| line.is_ascii() && line.len() <= WIDTH)
        );
        lines.join("\n")
    }

    #[test]
    fn root_sees_all() {
        insta::assert_snapshot!(shown(&picture("root", None)));
    }

    #[test]
    fn a_user_sees_their_own_jobs_and_what_is_free() {
        insta::assert_snapshot!(shown(&picture("alice", Some("alice"))));
    }

    #[test]
    fn without_a_policy_slurms_own_figures_remain() {
        let mut picture = picture("alice", Some("alice"));
        picture.policy = None;
        picture.notes = vec!["why".into()];
        insta::assert_snapshot!(shown(&picture));
    }

    #[test]
    fn on_the_node_the_monitors_figures_are_below_each_job() {
        let mut picture = picture("root", None);
        let live = r#"{"schema_version":1,"node":"softmig","gpus":[{"index":0,"memory_bytes":47672459264,"memory_used_bytes":9663676416}],
            "jobs":[{"job":1,"slice":{"type":"l40s","shards":1,"shards_per_gpu":4,"mode":"hard","memory_bytes":11918114816},
            "gpus":[{"index":0,"memory_bytes":4294967296,"memory_peak_bytes":8493465600,"known_seconds":1000.0,
            "charged_seconds":152.5,"waited_seconds":40.0}]},
            {"job":2,"idle_after_seconds":1800.0,"gpus":[{"index":0,"idle_seconds":2750.0}]},
            {"job":3,"slice":{"type":"l40s","shards":2,"shards_per_gpu":4,"mode":"hard","memory_bytes":23836229632},
            "gpus":[{"index":0,"memory_bytes":23400000000,"memory_peak_bytes":23400000000,"known_seconds":1000.0,
            "charged_seconds":152.5}]}]}"#;
        picture.live = vec![serde_json::from_str::<usage::Node>(live).unwrap()];
        picture.cluster.nodes.truncate(1);
        picture.cluster.jobs.retain(|job| !job.waits());
        insta::assert_snapshot!(shown(&picture));
    }

    #[test]
    fn nodes_that_are_alike_share_their_lines() {
        let mut picture = picture("alice", Some("nobody-else"));
        let idle = picture.cluster.nodes[1].clone();
        picture.cluster.nodes = (1..=1000)
            .map(|at| Node {
                name: format!("gpu{at:04}"),
                state: "IDLE".into(),
                ..idle.clone()
            })
            .collect();
        let shown = shown(&picture);
        let told = "gpu[0001-1000]: partition main\n  GPU 0  l40s  4 of 4 shards free\n";
        assert!(shown.starts_with(told), "{shown}");
    }

    #[test]
    fn what_others_wrote_is_ascii_on_the_screen() {
        let mut picture = picture("root", None);
        picture.cluster.nodes[1].reason = Some("fan 3: 80 \u{b0}C \u{202e}hot\u{9b}".into());
        picture.cluster.jobs[0].user = "jos\u{e9}".into();
        picture.notes = vec!["a note\u{e9}\u{1b}[31m".into()];
        let shown = shown(&picture);
        for words in ["drained: fan 3: 80 ?C ?hot?", "jos?", "a note??[31m"] {
            assert!(shown.contains(words), "{words}\n{shown}");
        }
    }

    #[test]
    fn the_json_object_is_stable() {
        let text = crate::users::status::json::encode(&picture("alice", Some("alice")));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        insta::assert_snapshot!(serde_json::to_string_pretty(&json).unwrap());
    }
}
