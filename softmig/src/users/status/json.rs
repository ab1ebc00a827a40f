//! The JSON object of `--json`. A newer release may have more fields; `schema_version` changes when one goes or changes its
//! meaning.

use super::picture::{Holding, Picture};
use crate::ask::cluster::purpose::Purpose;
use crate::ask::node::{Node, NodeGpu};
use crate::ask::squeue::Job;
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
    #[serde(flatten)]
    node: &'a Node,
    /// Whether jobs start here.
    open: bool,
    gpus: Vec<JsonGpu<'a>>,
}

#[derive(Serialize)]
struct JsonGpu<'a> {
    #[serde(flatten)]
    gpu: &'a NodeGpu,
    /// `shared`, `whole`, `mig` or `reserved`.
    purpose: &'static str,
    reserved_for: Option<String>,
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
    let nodes = picture.cluster.nodes.iter();
    let status = Status {
        schema_version: VERSION,
        time: picture.now,
        nodes: nodes.map(|one| node(picture, one)).collect(),
        jobs: picture.listed().map(|one| job(picture, one)).collect(),
        notes: &picture.notes,
    };
    serde_json::to_string(&status).unwrap_or_default()
}

fn node<'a>(picture: &Picture, node: &'a Node) -> JsonNode<'a> {
    JsonNode {
        node,
        open: node.closed().is_none(),
        gpus: node.gpus.iter().map(|one| gpu(picture, one)).collect(),
    }
}

fn gpu<'a>(picture: &Picture, gpu: &'a NodeGpu) -> JsonGpu<'a> {
    let (purpose, reserved_for) = match picture.purpose(gpu) {
        Purpose::Shared => ("shared", None),
        Purpose::Whole => ("whole", None),
        Purpose::Mig => ("mig", None),
        Purpose::Reserved(holder) => ("reserved", Some(holder)),
    };
    JsonGpu {
        gpu,
        purpose,
        reserved_for,
    }
}

fn job<'a>(picture: &'a Picture, job: &'a Job) -> JsonJob<'a> {
    let Holding { what, limits } = picture.holding(job);
    let waits = job.waits().then(|| picture.why(job));
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
        gpus: what,
        shards: job.slice().map(|(_, shards)| shards),
        memory_mib: limits.map(|limits| limits.memory_mib()),
        percent: limits.map(|limits| f64::from(limits.share().percent_tenths()) / 10.0),
        start: job.start.as_deref(),
        waits: waits.map(|(words, code)| Waits { code, words }),
        live: picture.live(job),
    }
}
