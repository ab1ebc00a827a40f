//! The report on one job: for people, and as JSON.

use crate::say::wrapped;
use serde::Serialize;
use softmig_node::job::JobId;
use softmig_policy::Policy;
use softmig_policy::config::gpu_types::GpuType;
use softmig_usage as usage;
use softmig_usage::summary::{Size, Smaller, Summary, name, percent};
use std::fmt;

/// The form of the JSON object.
const VERSION: u32 = 1;
const WIDTH: usize = 80;

/// The figures of a job on this node.
pub(super) struct Report<'a> {
    node: &'a str,
    job: &'a usage::Job,
    summary: Option<Summary>,
    gpu: Option<&'a GpuType>,
}

impl<'a> Report<'a> {
    /// Of the job's own file; `None` if it is about another one.
    pub(super) fn of(used: &'a usage::Node, id: JobId, policy: Option<&'a Policy>) -> Option<Self> {
        let job = used.jobs.iter().find(|job| job.job == id.get())?;
        let gpu = job
            .slice
            .as_ref()
            .and_then(|slice| policy?.gpu(&slice.r#type));
        Some(Self {
            node: &used.node,
            job,
            summary: Summary::of(job),
            gpu,
        })
    }

    fn smaller(&self) -> Option<Smaller> {
        self.summary.as_ref()?.smaller(self.gpu?)
    }

    /// A JSON object.
    pub(super) fn to_json(&self) -> String {
        let summary = self.summary.as_ref();
        let smaller = self.smaller().and_then(|smaller| {
            let share = smaller.limits.share();
            Some(JsonSmaller {
                gres: format!(
                    "gpu:{}.{}:1",
                    smaller.limits.gpu_type(),
                    share.per_gpu().checked_div(share.shards())?
                ),
                memory_mib: smaller.limits.memory_mib(),
                holds_memory: smaller.holds_memory,
                holds_time: smaller.holds_time,
            })
        });
        let json = Json {
            schema_version: VERSION,
            node: self.node,
            job: self.job,
            allowed_seconds: summary.map(Summary::allowed_seconds),
            smaller,
            sentence: summary.map(|summary| summary.sentence(self.gpu)),
        };
        serde_json::to_string(&json).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct Json<'a> {
    schema_version: u32,
    node: &'a str,
    job: &'a usage::Job,
    /// The time that its share allowed while its time was counted.
    allowed_seconds: Option<f64>,
    smaller: Option<JsonSmaller>,
    sentence: Option<String>,
}

#[derive(Serialize)]
struct JsonSmaller {
    gres: String,
    memory_mib: u32,
    holds_memory: bool,
    holds_time: bool,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, node) = (self.job.job, self.node);
        let (Some(summary), Some(slice)) = (&self.summary, &self.job.slice) else {
            return self.whole(f);
        };
        let part = name(slice.shards, slice.shards_per_gpu);
        let limit = Size(slice.memory_bytes);
        write!(
            f,
            "job {id} on {node}: 1 {part} of type {}, {limit} and {} % of its time",
            slice.r#type,
            percent(slice.share())
        )?;
        let held = size(summary.held_bytes, "held now");
        let peak = size(summary.peak_bytes, "at most");
        write!(f, "\n  memory   {held}, {peak}, of {limit}")?;
        match (summary.of_share(), summary.waited()) {
            (Some(used), Some(waited)) => {
                let (charged, allowed) = (summary.charged_seconds, summary.allowed_seconds());
                write!(
                    f,
                    "\n  time     {charged:.1} s charged of {allowed:.1} s allowed: {} %",
                    percent(used)
                )?;
                write!(
                    f,
                    "\n  waited   {:.1} s of {:.1} s: {} %",
                    summary.waited_seconds,
                    summary.known_seconds,
                    percent(waited)
                )?;
            }
            _ => write!(f, "\n  time     not known yet")?,
        }
        self.idle(f)?;
        match (summary.refused, Size(summary.refused_largest_bytes)) {
            (0, _) => write!(f, "\n  refused  no allocation")?,
            (1, largest) => write!(f, "\n  refused  1 allocation, of {largest}")?,
            (count, largest) => write!(
                f,
                "\n  refused  {count} allocations, the largest of {largest}"
            )?,
        }
        let advice = match (self.smaller(), self.gpu) {
            (Some(smaller), _) => smaller.to_string(),
            (None, None) => {
                "not known: the policy cannot be read here, or lacks the type".to_string()
            }
            (None, Some(_)) if summary.refused > 0 => {
                "no: it wanted more memory than it has".to_string()
            }
            (None, Some(_)) if summary.peak_bytes.is_none() => "not known".to_string(),
            (None, Some(_)) => "there is no smaller slice".to_string(),
        };
        write!(
            f,
            "\n  smaller  {}",
            wrapped(&advice, WIDTH - 11, 11).join("\n")
        )
    }
}

impl Report<'_> {
    fn whole(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gpus = &self.job.gpus;
        let of = if gpus.len() == 1 {
            "a whole GPU".to_string()
        } else {
            format!("{} whole GPUs", gpus.len())
        };
        write!(f, "job {} on {}: {of}", self.job.job, self.node)?;
        for gpu in gpus {
            let index = gpu
                .index
                .map_or("GPU".to_string(), |index| format!("GPU {index}"));
            let held = size(gpu.memory_bytes, "held now");
            let peak = size(gpu.memory_peak_bytes, "at most");
            write!(f, "\n  {index}  {held}, {peak}")?;
        }
        self.idle(f)
    }

    fn idle(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.job.idle_after_seconds.map(|limit| limit / 60.0);
        match self.job.idle_words().zip(limit) {
            Some((words, limit)) => write!(f, "\n  use      {words}; the site allows {limit} min"),
            None => Ok(()),
        }
    }
}

/// "7.9 GiB at most".
fn size(bytes: Option<u64>, what: &str) -> String {
    match bytes {
        Some(bytes) => format!("{} {what}", Size(bytes)),
        None => format!("unknown {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USED: &str = r#"{"schema_version":1,"time":1795467275.0,"node":"gpu01","jobs":[{"job":7,"uid":2001,
        "slice":{"type":"l40s","shards":4,"shards_per_gpu":16,"mode":"hard","memory_bytes":11918114816},
        "gpus":[{"index":0,"uuid":"GPU-1","memory_bytes":4294967296,"memory_peak_bytes":8493465600,"known_seconds":1000.0,
        "charged_seconds":152.5,"waited_seconds":40.0}]}]}"#;

    fn told(change: impl Fn(&mut usage::Node)) -> String {
        let policy =
            Policy::parse("[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 16\n")
                .unwrap();
        let mut used: usage::Node = serde_json::from_str(USED).unwrap();
        change(&mut used);
        let id = JobId::parse("7").unwrap();
        let report = Report::of(&used, id, Some(&policy)).unwrap();
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        format!("{report}\n{} {}", json["smaller"], json["sentence"])
    }

    #[test]
    fn a_job_is_told_as_a_user_asks_for_it() {
        let slice = told(|_| {});
        let refused = told(|used| {
            let gpu = &mut used.jobs[0].gpus[0];
            (gpu.refused, gpu.refused_largest_bytes) = (3, 9 << 30);
        });
        let new = told(|used| {
            let gpu = &mut used.jobs[0].gpus[0];
            (gpu.known_seconds, gpu.memory_peak_bytes) = (0.0, None);
        });
        let small = told(|used| used.jobs[0].gpus[0].memory_peak_bytes = Some(600 << 20));
        let whole = told(|used| used.jobs[0].slice = None);
        let idle = told(|used| {
            let job = &mut used.jobs[0];
            (job.idle_after_seconds, job.gpus[0].idle_seconds) = (Some(1800.0), 2750.0);
        });
        insta::assert_snapshot!([slice, refused, new, small, whole, idle].join("\n\n"));
    }

    #[test]
    fn the_file_of_another_job_is_not_its() {
        let used: usage::Node = serde_json::from_str(USED).unwrap();
        assert!(Report::of(&used, JobId::parse("8").unwrap(), None).is_none());
    }
}
