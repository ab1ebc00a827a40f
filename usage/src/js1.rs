//! JS1, the summary of a job that jobstats keeps in its AdminComment: `JS1:`, then JSON, compressed by gzip, in base64.
//!
//! Memory is in bytes, utilization in percent, and GPUs are named by their number on the node. A slice counts as the GPU: its
//! memory is the slice's limit, and its utilization is the GPU time that the job was charged, of what its share allowed.
//! Figures that jobstats does not know are under `softmig` of each node, where it looks for nothing.

use crate::{Job, JobGpu, Node};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};

const MARK: &str = "JS1:";
/// The longest comment that is read; a summary of a thousand nodes has a tenth of it.
const LONGEST_COMMENT: usize = 1 << 20;
/// The longest JSON that is made of it. A user can write a comment that decompresses to any length.
const LONGEST_JSON: u64 = 4 << 20;

/// A summary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Js1 {
    /// Each of the job's nodes.
    pub nodes: BTreeMap<String, OfNode>,
    /// For how long the job ran.
    #[serde(default)]
    pub total_time: Option<Number>,
    /// How many GPUs it had.
    #[serde(default)]
    pub gpus: u64,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Figures by a GPU's number on the node.
pub type ByGpu = BTreeMap<String, Number>;

/// A job on one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OfNode {
    /// The memory of its GPUs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gpu_total_memory: ByGpu,
    /// The most of it that the job had.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gpu_used_memory: ByGpu,
    /// How much of the time it was used, in percent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gpu_utilization: ByGpu,
    /// More about a slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softmig: Option<OfSlice>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// The figures of a job with a slice that are softmig's own. The times are summed over its GPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OfSlice {
    /// The type of the GPU, as in policy.toml.
    pub r#type: String,
    /// The job's shards of each GPU.
    pub shards: u32,
    /// The shards that make a GPU.
    pub shards_per_gpu: u32,
    /// For how long the following was counted.
    pub known_seconds: f64,
    /// The GPU time that it was charged.
    pub charged_seconds: f64,
    /// The time in which it wanted a GPU and was held.
    pub waited_seconds: f64,
    /// How many allocations were refused.
    pub refused: u64,
    /// After how many of them the program went on and was given memory.
    pub recovered: u64,
}

/// The reason why a comment cannot be read as a summary.
#[derive(Debug, thiserror::Error)]
pub enum Js1Error {
    /// It does not begin as one, or is longer than any.
    #[error("it is not a JS1 summary")]
    Other,
    /// It is damaged.
    #[error("base64: {0}")]
    Base64(#[from] base64::DecodeError),
    /// It is damaged, or decompresses to more than any summary has.
    #[error("gzip: {0}")]
    Gzip(#[from] io::Error),
    /// Its JSON is of another form.
    #[error("JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl Js1 {
    /// The use by a job on a node, which Slurm calls `name`; `None` if nothing is known of it.
    pub fn from_job(node: &Node, job: &Job, name: &str, ran_seconds: u64) -> Option<Self> {
        let mut own = OfNode::default();
        for gpu in &job.gpus {
            own.add(node, job, gpu);
        }
        let gpus = own.gpu_total_memory.len() as u64;
        if own.gpu_total_memory.is_empty() && own.gpu_utilization.is_empty() {
            return None;
        }
        own.softmig = OfSlice::from_job(job);
        Some(Self {
            nodes: BTreeMap::from([(name.to_string(), own)]),
            total_time: Some(ran_seconds.into()),
            gpus,
            others: Map::new(),
        })
    }

    /// Reads a comment.
    pub fn decode(comment: &str) -> Result<Self, Js1Error> {
        let text = comment.strip_prefix(MARK).ok_or(Js1Error::Other)?;
        if text.len() > LONGEST_COMMENT {
            return Err(Js1Error::Other);
        }
        let bytes = STANDARD.decode(text.trim_end())?;
        let mut json = Vec::new();
        let mut decoder = GzDecoder::new(bytes.as_slice()).take(LONGEST_JSON + 1);
        decoder.read_to_end(&mut json)?;
        if json.len() as u64 > LONGEST_JSON {
            return Err(io::Error::other("too long").into());
        }
        Ok(serde_json::from_slice(&json)?)
    }

    /// The comment.
    pub fn encode(&self) -> Result<String, Js1Error> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&serde_json::to_vec(self)?)?;
        Ok(format!("{MARK}{}", STANDARD.encode(encoder.finish()?)))
    }

    /// Adds what another summary knows besides. Only `gpus` is overwritten.
    pub fn add(&mut self, other: &Self) {
        for (name, more) in &other.nodes {
            let own = self.nodes.entry(name.clone()).or_default();
            for (own, more) in [
                (&mut own.gpu_total_memory, &more.gpu_total_memory),
                (&mut own.gpu_used_memory, &more.gpu_used_memory),
                (&mut own.gpu_utilization, &more.gpu_utilization),
            ] {
                for (gpu, figure) in more {
                    own.entry(gpu.clone()).or_insert_with(|| figure.clone());
                }
            }
            if own.softmig.is_none() {
                own.softmig.clone_from(&more.softmig);
            }
        }
        let gpus = self.nodes.values().map(|node| node.gpu_total_memory.len());
        self.gpus = self.gpus.max(gpus.sum::<usize>() as u64);
        if self.total_time.is_none() {
            self.total_time.clone_from(&other.total_time);
        }
    }

    /// The comment to write where this one is there already; `None` to leave it: it is of another kind, or says it all.
    pub fn beside(&self, there: &str) -> Result<Option<String>, Js1Error> {
        if there.is_empty() {
            return self.encode().map(Some);
        }
        let Ok(before) = Self::decode(there) else {
            return Ok(None);
        };
        let mut all = before.clone();
        all.add(self);
        if all == before {
            Ok(None)
        } else {
            all.encode().map(Some)
        }
    }
}

impl OfNode {
    fn add(&mut self, node: &Node, job: &Job, gpu: &JobGpu) {
        let Some(index) = gpu.index.map(|index| index.to_string()) else {
            return;
        };
        let card = node.gpus.iter().find(|card| card.uuid == gpu.uuid);
        let total = match &job.slice {
            Some(slice) => Some(slice.memory_bytes),
            None => card.and_then(|card| card.memory_bytes),
        };
        // jobstats expects both or neither, and reportseff divides by the first.
        if let (Some(total @ 1..), Some(peak)) = (total, gpu.memory_peak_bytes) {
            self.gpu_total_memory.insert(index.clone(), total.into());
            self.gpu_used_memory
                .insert(index.clone(), peak.min(total).into());
        }
        let share = job.slice.as_ref().map_or(1.0, |slice| slice.share());
        let allowed = gpu.known_seconds * share;
        if allowed <= 0.0 {
            return;
        }
        let used = gpu.charged_seconds / allowed * 100.0;
        // Tenths; a slice that borrows may have more than its share, of which jobstats would be astonished.
        let used = (used * 10.0).round().clamp(0.0, 1000.0) / 10.0;
        if let Some(used) = Number::from_f64(used) {
            self.gpu_utilization.insert(index, used);
        }
    }
}

impl OfSlice {
    /// Adds the times and refusals on another of the job's nodes.
    pub fn add(&mut self, other: &Self) {
        self.known_seconds += other.known_seconds;
        self.charged_seconds += other.charged_seconds;
        self.waited_seconds += other.waited_seconds;
        self.refused = self.refused.saturating_add(other.refused);
        self.recovered = self.recovered.saturating_add(other.recovered);
    }

    fn from_job(job: &Job) -> Option<Self> {
        let slice = job.slice.as_ref()?;
        let sum = |part: fn(&JobGpu) -> f64| {
            let sum: f64 = job.gpus.iter().map(part).filter(|f| f.is_finite()).sum();
            (sum * 10.0).round() / 10.0
        };
        Some(Self {
            r#type: slice.r#type.clone(),
            shards: slice.shards,
            shards_per_gpu: slice.shards_per_gpu,
            known_seconds: sum(|gpu| gpu.known_seconds),
            charged_seconds: sum(|gpu| gpu.charged_seconds),
            waited_seconds: sum(|gpu| gpu.waited_seconds),
            refused: job.sum(|gpu| gpu.refused),
            recovered: job.sum(|gpu| gpu.recovered),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GpuUsage, Slice};

    fn node() -> Node {
        let slice = Slice {
            r#type: "l40s".into(),
            shards: 1,
            shards_per_gpu: 4,
            mode: "hard".into(),
            memory_bytes: 11366 << 20,
        };
        let gpu = JobGpu {
            index: Some(2),
            uuid: "GPU-2".into(),
            memory_peak_bytes: Some(8100 << 20),
            known_seconds: 1000.0,
            charged_seconds: 152.5,
            waited_seconds: 40.0,
            ..JobGpu::default()
        };
        let of_slice = Job {
            job: 7,
            slice: Some(slice),
            gpus: vec![gpu.clone()],
            ..Job::default()
        };
        let whole = Job {
            job: 8,
            slice: None,
            ..of_slice.clone()
        };
        Node {
            gpus: vec![GpuUsage {
                index: 2,
                uuid: "GPU-2".into(),
                memory_bytes: Some(45464 << 20),
                ..GpuUsage::default()
            }],
            jobs: vec![of_slice, whole],
            ..Node::default()
        }
    }

    fn summary(job: usize, name: &str) -> Js1 {
        let node = node();
        Js1::from_job(&node, &node.jobs[job], name, 1000).unwrap()
    }

    #[test]
    fn a_slice_counts_as_the_gpu() {
        let json = serde_json::to_value(summary(0, "n1")).unwrap();
        let expected = serde_json::json!({
            "nodes": {"n1": {
                "gpu_total_memory": {"2": 11_918_114_816_u64},
                "gpu_used_memory": {"2": 8_493_465_600_u64},
                "gpu_utilization": {"2": 61.0},
                "softmig": {"type": "l40s", "shards": 1, "shards_per_gpu": 4, "known_seconds": 1000.0,
                    "charged_seconds": 152.5, "waited_seconds": 40.0, "refused": 0, "recovered": 0},
            }},
            "total_time": 1000,
            "gpus": 1,
        });
        assert_eq!(json, expected);
        let whole = &summary(1, "n1").nodes["n1"];
        assert_eq!(whole.gpu_total_memory["2"].as_u64(), Some(45464_u64 << 20));
        assert_eq!(whole.gpu_utilization["2"].as_f64(), Some(15.3));
        assert_eq!(whole.softmig, None);
    }

    #[test]
    fn of_a_job_without_figures_there_is_no_summary() {
        let mut node = node();
        node.jobs[0].gpus[0].memory_peak_bytes = None;
        let js1 = Js1::from_job(&node, &node.jobs[0], "n1", 1).unwrap();
        assert!(js1.nodes["n1"].gpu_total_memory.is_empty());
        node.jobs[0].gpus[0].known_seconds = 0.0;
        node.jobs[0].gpus[0].charged_seconds = 0.0;
        assert_eq!(Js1::from_job(&node, &node.jobs[0], "n1", 1), None);
    }

    #[test]
    fn what_was_written_is_read() {
        let js1 = summary(0, "n1");
        let text = js1.encode().unwrap();
        assert!(text.starts_with("JS1:H4sI") && text.len() < 400, "{text}");
        assert_eq!(Js1::decode(&text).unwrap(), js1);
    }

    /// As jobstats writes it: gzip of Python, floats, and fields that are not ours.
    #[test]
    fn a_summary_of_jobstats_keeps_all_that_is_in_it() {
        let json = r#"{"nodes":{"n1":{"total_memory":1,"used_memory":2,"total_time":3.5,"cpus":4,"gpu_total_memory":{"0":5},"gpu_used_memory":{"0":6.5},"gpu_utilization":{"0":7.1}},"n2":{"cpus":4}},"total_time":-1,"gpus":1,"later":{"x":null}}"#;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(json.as_bytes()).unwrap();
        let text = format!("JS1:{}", STANDARD.encode(encoder.finish().unwrap()));
        let there = Js1::decode(&text).unwrap();
        assert_eq!(there.nodes["n1"].gpu_used_memory["0"].as_f64(), Some(6.5));
        let value: Value = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_value(&there).unwrap(), value);
        // Only what it lacks is added.
        let both = summary(1, "n1").beside(&text).unwrap().unwrap();
        let both = serde_json::to_value(Js1::decode(&both).unwrap()).unwrap();
        let n1 = &both["nodes"]["n1"];
        assert_eq!(n1["gpu_used_memory"]["0"], 6.5);
        assert_eq!(n1["gpu_utilization"]["2"], 15.3);
        assert_eq!(
            (&n1["cpus"], &both["total_time"]),
            (&4.into(), &(-1).into())
        );
        assert_eq!(both["gpus"], 2);
        assert_eq!(both["later"], value["later"]);
    }

    #[test]
    fn the_nodes_of_a_job_come_together_in_any_order_and_once() {
        let [one, two] = ["n1", "n2"].map(|name| summary(1, name));
        let first = one.beside("").unwrap().unwrap();
        let both = two.beside(&first).unwrap().unwrap();
        assert_eq!(one.beside(&both).unwrap(), None);
        let other = two.beside("").unwrap().unwrap();
        let other = one.beside(&other).unwrap().unwrap();
        assert_eq!(Js1::decode(&both).unwrap(), Js1::decode(&other).unwrap());
        assert_eq!(Js1::decode(&both).unwrap().gpus, 2);
    }

    #[test]
    fn what_is_there_and_no_summary_stays() {
        let own = summary(0, "n1");
        for there in [
            "ticket 4711",
            "JS1:",
            "JS1:None",
            "JS2:H4sI",
            "JS1:H4sIAAAA",
        ] {
            assert_eq!(own.beside(there).unwrap(), None, "{there}");
            assert!(Js1::decode(there).is_err(), "{there}");
        }
    }

    #[test]
    fn a_comment_that_grows_without_end_is_refused() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let blanks = vec![b' '; 1 << 20];
        for _ in 0..64 {
            encoder.write_all(&blanks).unwrap();
        }
        let bomb = format!("JS1:{}", STANDARD.encode(encoder.finish().unwrap()));
        assert!(bomb.len() < 100_000);
        assert!(matches!(Js1::decode(&bomb), Err(Js1Error::Gzip(_))));
        let long = format!("JS1:{}", "A".repeat(LONGEST_COMMENT + 1));
        assert!(matches!(Js1::decode(&long), Err(Js1Error::Other)));
    }
}
