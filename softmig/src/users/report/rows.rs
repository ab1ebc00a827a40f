//! The slices that were asked for and their use, added up by user, account and class.

use crate::ask::sacct::{History, Job};
use clap::ValueEnum;
use serde::Serialize;
use softmig_policy::Policy;
use softmig_usage::summary::Summary;
use std::collections::BTreeMap;

/// The number of this form.
const VERSION: u32 = 1;

/// A slice that had less of its time than this idled.
const IDLE: f64 = 0.01;

/// By what rows are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    User,
    Account,
    Class,
}

/// The whole report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    schema_version: u32,
    pub(crate) rows: Vec<Row>,
    pub(crate) all: Row,
    /// Jobs with whole GPUs, which are not in the rows.
    pub(crate) whole_gpu_jobs: u64,
    pub(crate) running: u64,
    pub(crate) unreadable_lines: u64,
}

/// The slices of a user, an account and a class; a key that is not asked for is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) user: String,
    pub(crate) account: String,
    pub(crate) class: String,
    pub(crate) jobs: u64,
    /// Their parts of GPUs, times hours.
    pub(crate) gpu_hours: f64,
    /// Jobs without a summary, of which the following is not known.
    pub(crate) unknown_jobs: u64,
    pub(crate) unknown_gpu_hours: f64,
    /// The mean of the highest use of memory, of the limit; each job counts by its GPU hours.
    pub(crate) memory: Option<f64>,
    /// The GPU time that was used, of what the shares allowed.
    pub(crate) time: Option<f64>,
    /// The part of the time in which jobs were held.
    pub(crate) waited: Option<f64>,
    pub(crate) refused_allocations: u64,
    /// Slices that had less than 1 % of their time.
    pub(crate) idle_jobs: u64,
    pub(crate) idle_gpu_hours: f64,
    /// Jobs that a smaller slice would have held.
    pub(crate) smaller_jobs: u64,
    pub(crate) smaller_saves_gpu_hours: f64,
    #[serde(skip)]
    sums: Sums,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    memory: f64,
    memory_hours: f64,
    used: f64,
    allowed: f64,
    waited: f64,
    known: f64,
}

/// Adds up. `policy` tells of sizes and classes, where it can be read.
pub(crate) fn report(history: &History, policy: Option<&Policy>, by: &[By]) -> Report {
    let mut rows: BTreeMap<[String; 3], Row> = BTreeMap::new();
    let mut all = Row::default();
    let mut whole_gpu_jobs = 0;
    for job in &history.jobs {
        if job.gpus.shards == 0 {
            whole_gpu_jobs += 1;
            continue;
        }
        let class = || class(policy, &job.qos);
        let key = |wanted: By, text: String| {
            if by.contains(&wanted) {
                text
            } else {
                String::new()
            }
        };
        let names = [
            key(By::User, job.user.to_string()),
            key(By::Account, job.account.to_string()),
            key(By::Class, class()),
        ];
        let used = Used::new(job, policy);
        rows.entry(names).or_default().add(job, &used);
        all.add(job, &used);
    }
    let mut rows: Vec<Row> = rows
        .into_iter()
        .map(|([user, account, class], row)| Row {
            user,
            account,
            class,
            ..row.finished()
        })
        .collect();
    rows.sort_by(|one, other| other.gpu_hours.total_cmp(&one.gpu_hours));
    Report {
        schema_version: VERSION,
        rows,
        all: all.finished(),
        whole_gpu_jobs,
        running: history.running,
        unreadable_lines: history.unreadable,
    }
}

/// The class whose QOS it is, else the QOS.
fn class(policy: Option<&Policy>, qos: &str) -> String {
    let standings = policy.map(Policy::standings).unwrap_or_default();
    let mut of_qos = standings
        .iter()
        .filter(|standing| standing.qos.as_deref() == Some(qos));
    let class = of_qos.next().and_then(|standing| standing.class.clone());
    class.unwrap_or_else(|| qos.to_string())
}

/// A job with a slice.
struct Used {
    share: f64,
    /// `None` without a summary.
    summary: Option<Summary>,
    /// The part of the memory that it had at most.
    memory: Option<f64>,
    /// The part of a GPU that a smaller slice would have saved.
    saves: Option<f64>,
}

impl Used {
    fn new(job: &Job, policy: Option<&Policy>) -> Self {
        let of = job.used.slice.as_deref();
        let kind = of.map(|of| of.r#type.as_str()).or(job.gpus.kind.as_deref());
        let gpu = policy.and_then(|policy| policy.gpu(kind?));
        let per_gpu = of
            .map(|of| of.shards_per_gpu)
            .or(gpu.map(|gpu| gpu.shards_per_gpu()));
        let share = per_gpu.map_or(0.0, |per_gpu| {
            f64::from(job.gpus.shards) / f64::from(per_gpu.max(1))
        });
        let summary = job.used.summary();
        let smaller = summary
            .as_ref()
            .and_then(|summary| summary.smaller(gpu?))
            .filter(|slice| slice.holds_memory && slice.holds_time);
        let saves = smaller.map(|slice| (share - slice.limits.share().fraction()).max(0.0));
        let memory = job
            .used
            .peak_bytes
            .zip(job.used.total_bytes)
            .filter(|(_, total)| *total > 0);
        Self {
            share,
            summary,
            memory: memory.map(|(peak, total)| peak as f64 / total as f64),
            saves,
        }
    }
}

impl Row {
    fn add(&mut self, job: &Job, used: &Used) {
        let hours = job.hours() * used.share;
        self.jobs += 1;
        self.gpu_hours += hours;
        let Some(summary) = &used.summary else {
            self.unknown_jobs += 1;
            self.unknown_gpu_hours += hours;
            return;
        };
        let sums = &mut self.sums;
        if let Some(memory) = used.memory {
            sums.memory += memory * hours;
            sums.memory_hours += hours;
        }
        sums.used += summary.charged_seconds;
        sums.allowed += summary.allowed_seconds();
        sums.waited += summary.waited_seconds;
        sums.known += summary.known_seconds;
        self.refused_allocations = self.refused_allocations.saturating_add(summary.refused);
        if summary.of_share().is_some_and(|used| used < IDLE) {
            self.idle_jobs += 1;
            self.idle_gpu_hours += hours;
        }
        if let Some(saves) = used.saves {
            self.smaller_jobs += 1;
            self.smaller_saves_gpu_hours += job.hours() * saves;
        }
    }

    fn finished(mut self) -> Self {
        let part = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let sums = self.sums;
        self.memory = part(sums.memory, sums.memory_hours);
        self.time = part(sums.used, sums.allowed);
        self.waited = part(sums.waited, sums.known);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::sacct;
    use softmig_node::sacct::HISTORY;
    use softmig_usage::js1::Js1;

    const POLICY: &str = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 8\n\
         [defaults]\nshards = 8\nwhole_gpus = 1\n[classes.course]\nshards = 2\nqos = \"softmig_course\"\n";

    /// A quarter for an hour: charged, waited, and the highest memory in MiB.
    fn js1(charged: f64, waited: f64, peak: u64, refused: u64) -> String {
        let json = serde_json::json!({"nodes": {"n1": {
            "gpu_total_memory": {"0": 11366_u64 << 20}, "gpu_used_memory": {"0": peak << 20},
            "gpu_utilization": {"0": charged / 9.0},
            "softmig": {"type": "l40s", "shards": 2, "shards_per_gpu": 8, "known_seconds": 3600.0,
                "charged_seconds": charged, "waited_seconds": waited, "refused": refused},
        }}, "gpus": 1});
        serde_json::from_value::<Js1>(json)
            .unwrap()
            .encode()
            .unwrap()
    }

    fn history() -> History {
        let row = |user: &str, qos: &str, tres: &str, comment: &str| {
            format!("1|{user}|bio|p|{qos}|0|0|1000|4600|{tres}|||{comment}\n")
        };
        let slice = "gres/shard:l40s=2,gres/shard=2";
        let rows = [
            // An eighth would have held it.
            row("alice", "softmig", slice, &js1(300.0, 36.0, 5000, 0)),
            // It wanted more.
            row("alice", "softmig", slice, &js1(900.0, 360.0, 5000, 3)),
            row("alice", "softmig", slice, ""),
            row("bob", "softmig_course", slice, &js1(0.0, 0.0, 300, 0)),
            row("bob", "normal", "gres/gpu:l40s=1,gres/gpu=1", ""),
        ];
        let text = format!("{}\n{}", HISTORY.replace(',', "|"), rows.concat());
        sacct::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn jobs_are_added_up_by_user_account_and_class() {
        let policy = Policy::parse(POLICY).unwrap();
        let report = report(
            &history(),
            Some(&policy),
            &[By::User, By::Account, By::Class],
        );
        assert_eq!(report.whole_gpu_jobs, 1);
        let [alice, bob] = report.rows.as_slice() else {
            panic!("{report:?}")
        };
        assert_eq!(
            (&*alice.user, &*alice.account, &*alice.class),
            ("alice", "bio", "softmig")
        );
        assert_eq!((alice.jobs, alice.gpu_hours), (3, 0.75));
        assert_eq!((alice.unknown_jobs, alice.unknown_gpu_hours), (1, 0.25));
        // 1200 of 1800 seconds.
        assert_eq!(alice.time, Some(1200.0 / 1800.0));
        assert_eq!(alice.waited, Some(0.055));
        assert_eq!(alice.memory, Some(5000.0 / 11366.0));
        assert_eq!((alice.idle_jobs, alice.refused_allocations), (0, 3));
        assert_eq!(
            (alice.smaller_jobs, alice.smaller_saves_gpu_hours),
            (1, 0.125)
        );
        assert_eq!(&*bob.class, "course");
        assert_eq!((bob.idle_jobs, bob.idle_gpu_hours), (1, 0.25));
        assert_eq!((report.all.jobs, report.all.smaller_jobs), (4, 2));
    }

    #[test]
    fn without_a_policy_sizes_come_from_the_summaries() {
        let report = report(&history(), None, &[By::Class]);
        let names: Vec<&str> = report.rows.iter().map(|row| &*row.class).collect();
        assert_eq!(names, ["softmig", "softmig_course"]);
        let first = &report.rows[0];
        assert_eq!((first.gpu_hours, first.unknown_jobs), (0.5, 1));
        assert_eq!(report.all.smaller_jobs, 0);
    }
}
