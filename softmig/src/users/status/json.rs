//! The JSON object of `--json`. A newer release may have more fields; `schema_version` changes when one goes or changes its
//! meaning.

use super::picture::Picture;
use crate::ask::cluster::purpose::Purpose;
use crate::ask::cluster::reasons::Asker;
use crate::ask::node::{Node, NodeGpu};
use crate::ask::squeue::Job;
use crate::users::status::slice_words::holding;
use serde::Serialize;
use softmig_usage as usage;

const VERSION: u32 = 1;

#[derive(Serialize)]
struct Status<'a> {
    schema_version: u32,
    /// Seconds since 1970.
    time: i64,
    nodes: Vec<JsonNode<'a>>,
    jobs: Vec<JsonJob<'a>>,
    /// Facts that could not be known, in words.
    notes: &'a [String],
}

#[derive(Serialize)]
struct JsonNode<'a> {
    name: &'a str,
    /// Slurm's own word.
    state: &'a str,
    /// Whether jobs start here.
    open: bool,
    /// Why jobs do not start here.
    reason: Option<&'a str>,
    partitions: &'a [String],
    gpus: Vec<JsonGpu<'a>>,
    /// Shards in use on GPUs that are not known, by type.
    unplaced_shards: &'a std::collections::BTreeMap<String, u64>,
}

#[derive(Serialize)]
struct JsonGpu<'a> {
    index: u32,
    r#type: &'a str,
    /// `shared`, `whole`, `mig` or `reserved`.
    purpose: &'static str,
    reserved_for: Option<String>,
    shards: u64,
    /// `null`: some are, and it is not known how many.
    shards_used: Option<u64>,
    /// Whether a job has all of it.
    used_whole: bool,
    /// The numbers of its jobs, as far as Slurm shows them.
    jobs: &'a [u32],
}

#[derive(Serialize)]
struct JsonJob<'a> {
    job: u32,
    /// `12_3` for a task of an array.
    name: &'a str,
    user: &'a str,
    account: Option<&'a str>,
    class: Option<String>,
    qos: Option<&'a str>,
    partition: &'a str,
    /// Slurm's own word.
    state: &'a str,
    /// Its GPUs: `l40s.4`.
    gpus: String,
    shards: Option<u64>,
    memory_mib: Option<u32>,
    /// The share of a GPU's time, in percent.
    percent: Option<f64>,
    /// When it started, or is expected to: the local time of slurmctld's clients.
    start: Option<&'a str>,
    /// Why it waits.
    waits: Option<Waits>,
    /// The monitor's figures: this node's, and those of nodes whose exporters answer.
    live: Option<&'a usage::Job>,
}

#[derive(Serialize)]
struct Waits {
    /// Slurm's own word.
    code: String,
    words: String,
}

pub(super) fn encode(picture: &Picture) -> String {
    let jobs = picture.cluster.jobs.iter();
    let status = Status {
        schema_version: VERSION,
        time: picture.now,
        nodes: picture
            .cluster
            .nodes
            .iter()
            .map(|one| node(picture, one))
            .collect(),
        jobs: jobs
            .filter(|job| picture.shown.has(job))
            .map(|one| job(picture, one))
            .collect(),
        notes: &picture.notes,
    };
    serde_json::to_string(&status).unwrap_or_default()
}

fn node<'a>(picture: &Picture, node: &'a Node) -> JsonNode<'a> {
    JsonNode {
        name: &node.name,
        state: &node.state,
        open: node.closed().is_none(),
        reason: node.reason.as_deref(),
        partitions: &node.partitions,
        gpus: node.gpus.iter().map(|one| gpu(picture, one)).collect(),
        unplaced_shards: &node.unplaced,
    }
}

fn gpu<'a>(picture: &Picture, gpu: &'a NodeGpu) -> JsonGpu<'a> {
    let purpose = Purpose::of_type(picture.policy.as_ref(), &gpu.kind, gpu.shards, picture.now);
    JsonGpu {
        index: gpu.index,
        r#type: &gpu.kind,
        purpose: match purpose {
            Purpose::Shared => "shared",
            Purpose::Whole => "whole",
            Purpose::Mig => "mig",
            Purpose::Reserved(_) => "reserved",
        },
        reserved_for: match purpose {
            Purpose::Reserved(holder) => Some(holder),
            Purpose::Shared | Purpose::Whole | Purpose::Mig => None,
        },
        shards: gpu.shards,
        shards_used: gpu.used,
        used_whole: gpu.whole,
        jobs: &gpu.jobs,
    }
}

fn job<'a>(picture: &'a Picture, job: &'a Job) -> JsonJob<'a> {
    let holding = holding(picture.policy.as_ref(), job);
    let asker = Asker {
        policy: picture.policy.as_ref(),
        user: picture.shown.own.as_deref(),
    };
    let waits = job.waits().then(|| asker.why(job));
    let known = |word: &'a str| Some(word).filter(|word| !word.is_empty());
    JsonJob {
        job: job.id,
        name: &job.name,
        user: &job.user,
        account: known(&job.account),
        class: picture.class(job),
        qos: known(&job.qos),
        partition: &job.partition,
        state: &job.state,
        gpus: holding.what,
        shards: job.slice().map(|(_, shards)| shards),
        memory_mib: holding.memory_mib,
        percent: holding
            .percent
            .map(|percent| f64::from(percent.0.percent_tenths()) / 10.0),
        start: job.start.as_deref(),
        waits: waits.map(|(words, code)| Waits { code, words }),
        live: picture.live(job),
    }
}
