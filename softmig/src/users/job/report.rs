//! The report on one job: for people, and as JSON.

use super::json::Json;
use super::lines;
use softmig_node::job::JobId;
use softmig_policy::Policy;
use softmig_policy::config::gpu_types::GpuType;
use softmig_usage as usage;
use softmig_usage::summary::{Size, Summary};
use std::fmt;

/// The figures of a job on this node.
pub(super) struct Report<'a> {
    node: &'a str,
    job: &'a usage::Job,
    summary: Option<Summary>,
    gpu: Option<&'a GpuType>,
}

impl<'a> Report<'a> {
    /// Of the job's own file; `None` if it is about another one.
    pub(super) fn new(
        used: &'a usage::Node,
        id: JobId,
        policy: Option<&'a Policy>,
    ) -> Option<Self> {
        let job = used.jobs.iter().find(|job| job.job == id.get())?;
        let gpu = job
            .slice
            .as_ref()
            .and_then(|slice| policy?.gpu(&slice.r#type));
        Some(Self {
            node: &used.node,
            job,
            summary: Summary::from_job(job),
            gpu,
        })
    }

    /// A JSON object.
    pub(super) fn to_json(&self) -> String {
        let json = Json {
            node: Some(self.node),
            job: Some(self.job),
            ..Json::new(self.summary.as_ref(), self.gpu)
        };
        serde_json::to_string(&json).unwrap_or_default()
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, node) = (self.job.job, self.node);
        let (Some(summary), Some(slice)) = (&self.summary, &self.job.slice) else {
            return self.whole(f);
        };
        write!(f, "job {id} on {node}: {}", lines::slice(slice))?;
        let limit = Size(slice.memory_bytes);
        let held = size(summary.held_bytes, "held now");
        let peak = size(summary.peak_bytes, "at most");
        write!(f, "\n  memory   {held}, {peak}, of {limit}")?;
        if let Some(words) = self.job.full_words() {
            write!(f, ": {words}")?;
        }
        lines::time(f, summary)?;
        self.pack(f)?;
        self.saved(f, slice)?;
        self.idle(f)?;
        lines::refused(f, summary)?;
        lines::smaller(f, summary, self.gpu)
    }
}

impl Report<'_> {
    /// Which jobs have the GPU together with it.
    fn pack(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(pack) = &self.job.pack else {
            return Ok(());
        };
        let jobs: Vec<String> = pack.jobs.iter().map(u32::to_string).collect();
        match jobs.as_slice() {
            [] => write!(f, "\n  pack     no other job is in it just now"),
            [one] => write!(f, "\n  pack     at the same time as job {one}"),
            jobs => write!(
                f,
                "\n  pack     at the same time as jobs {}",
                jobs.join(", ")
            ),
        }
    }

    /// What it saved up, on the GPU where that is least. A soft job needs none.
    fn saved(&self, f: &mut fmt::Formatter<'_>, slice: &usage::Slice) -> fmt::Result {
        let credit = self.job.gpus.iter().map(|gpu| gpu.credit_seconds);
        match credit.reduce(f64::min) {
            Some(saved) if saved >= 0.1 && !slice.mode.starts_with("soft") => {
                write!(f, "\n  saved    {saved:.1} s of the GPU for later")
            }
            _ => Ok(()),
        }
    }

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
        let report = Report::new(&used, id, Some(&policy)).unwrap();
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
        let recovered = told(|used| {
            let gpu = &mut used.jobs[0].gpus[0];
            (gpu.refused, gpu.recovered) = (1, 1);
        });
        let new = told(|used| {
            let gpu = &mut used.jobs[0].gpus[0];
            (gpu.known_seconds, gpu.memory_peak_bytes) = (0.0, None);
        });
        let small = told(|used| used.jobs[0].gpus[0].memory_peak_bytes = Some(600 << 20));
        let saved = told(|used| used.jobs[0].gpus[0].credit_seconds = 0.41);
        let whole = told(|used| used.jobs[0].slice = None);
        let idle = told(|used| {
            let job = &mut used.jobs[0];
            (job.idle_after_seconds, job.gpus[0].idle_seconds) = (Some(1800.0), 2750.0);
        });
        let full = told(|used| used.jobs[0].gpus[0].memory_bytes = Some(11 << 30));
        let packed = |jobs: &[u32]| {
            told(|used| {
                used.jobs[0].pack = Some(usage::Pack {
                    name: "uid-2001".into(),
                    jobs: jobs.to_vec(),
                });
            })
        };
        for (jobs, words) in [
            (&[][..], "pack     no other job is in it just now"),
            (&[8], "pack     at the same time as job 8"),
            (&[8, 11], "pack     at the same time as jobs 8, 11"),
        ] {
            let text = packed(jobs);
            assert!(text.contains(&format!("\n  {words}\n")), "{text}");
        }
        insta::assert_snapshot!(
            [
                slice, refused, recovered, new, small, saved, whole, idle, full
            ]
            .join("\n\n")
        );
    }

    #[test]
    fn the_file_of_another_job_is_not_its() {
        let used: usage::Node = serde_json::from_str(USED).unwrap();
        assert!(Report::new(&used, JobId::parse("8").unwrap(), None).is_none());
    }
}
