//! The slices that are or would be on offer, and the smallest of them that holds a job.

use crate::ask::sacct::Job;
use anyhow::{Context as _, bail};
use softmig_policy::config::clock;
use softmig_policy::config::gpu_types::GpuType;
use softmig_policy::slurm::hostlist;
use softmig_policy::{Context, Limits, MaybeKnown, Policy, Request, Submitter, Verdict, decide};
use std::collections::HashMap;
use std::sync::Arc;

/// A summary's figure for a GPU's memory may differ by this much from the policy's.
const TOLERANCE: f64 = 0.02;

/// The policy, with what it answered before.
pub(crate) struct Catalogue {
    policy: Policy,
    /// The type of GPUs that have none in the accounting.
    untyped: Option<String>,
    /// How much more memory a slice needs than the job's highest measured.
    headroom: f64,
    groups: HashMap<Arc<str>, Option<u32>>,
    answers: HashMap<Question, bool>,
}

/// A user's request for a slice.
type Question = (Arc<str>, Arc<str>, Arc<str>, String, u32);

/// Why a job cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Unknown {
    /// Its accounting has no type of GPU.
    Type,
    /// The type is not in the policy.
    OtherType,
    /// Its figure of memory is missing.
    Memory,
    /// Only its figure of utilization is missing.
    Utilization,
}

/// The fit of a job to a slice.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fit {
    Slice(u32, Limits),
    /// Only the whole GPU.
    Whole,
    /// A slice, which the policy's rules do not let this user have.
    Refused,
    Unknown(Unknown),
}

impl Catalogue {
    pub(crate) fn new(
        policy: Policy,
        untyped: Option<String>,
        headroom: f64,
    ) -> anyhow::Result<Self> {
        if let Some(kind) = untyped.as_deref().filter(|kind| policy.gpu(kind).is_none()) {
            bail!("--type={kind}: the policy has no such type");
        }
        Ok(Self {
            policy,
            untyped,
            headroom: 1.0 + headroom / 100.0,
            groups: HashMap::new(),
            answers: HashMap::new(),
        })
    }

    /// A policy of nothing but types, each `NAME=MIB`, of this many shards.
    pub(crate) fn plain(shards: u32, gpus: &[String]) -> anyhow::Result<Policy> {
        let mut text = String::new();
        for gpu in gpus {
            let (name, mib) = gpu
                .rsplit_once('=')
                .with_context(|| format!("--gpu={gpu}: write a type and its MiB: l40s=46068"))?;
            let name = serde_json::to_string(name)?;
            text +=
                &format!("[gpu.{name}]\nmemory_mib = {mib}\nreserved_mib = 0\nshards = {shards}\n");
        }
        Policy::parse_whole(&text).context("--gpu")
    }

    pub(crate) fn gpu(&self, kind: &str) -> Option<&GpuType> {
        self.policy.gpu(kind)
    }

    /// All types that can be cut.
    pub(crate) fn gpus(&self) -> impl Iterator<Item = &GpuType> {
        self.policy.gpus().filter(|gpu| !gpu.is_mig())
    }

    /// How many GPUs of a type the policy's inventory has; 0 if it has none.
    pub(crate) fn inventory(&self, kind: &str) -> u32 {
        let counts = self.policy.nodes().iter().map(|nodes| {
            let each: u32 = nodes
                .gpus()
                .iter()
                .filter(|gpus| gpus.kind == kind)
                .map(|gpus| gpus.count)
                .sum();
            let count = hostlist::expand(nodes.names()).len();
            each.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
        });
        counts.fold(0, u32::saturating_add)
    }

    /// The type of a job's GPUs: as Slurm counted it, else by the memory that a summary names, else as the caller says.
    pub(crate) fn kind(&self, job: &Job) -> Result<&str, Unknown> {
        if let Some(kind) = &job.gpus.kind {
            let gpu = self.policy.gpu(kind).filter(|gpu| !gpu.is_mig());
            return gpu.map(GpuType::name).ok_or(Unknown::OtherType);
        }
        if let Some(total) = job.used.total_bytes {
            let is_near = |mib: u32| {
                let bytes = f64::from(mib) * 1_048_576.0;
                (total as f64 - bytes).abs() <= bytes * TOLERANCE
            };
            let is_it = |gpu: &&GpuType| is_near(gpu.memory_mib()) || is_near(gpu.usable_mib());
            let mut all = self.gpus().filter(is_it);
            if let (Some(gpu), None) = (all.next(), all.next()) {
                return Ok(gpu.name());
            }
        }
        self.untyped.as_deref().ok_or(Unknown::Type)
    }

    /// The smallest slice that would have held a job with one whole GPU.
    pub(crate) fn fit(&mut self, job: &Job) -> Fit {
        let gpu = match self.kind(job).map(|kind| self.policy.gpu(kind)) {
            Ok(Some(gpu)) => gpu.clone(),
            Ok(None) => return Fit::Unknown(Unknown::OtherType),
            Err(unknown) => return Fit::Unknown(unknown),
        };
        let Some(peak) = job.used.peak_bytes else {
            return Fit::Unknown(Unknown::Memory);
        };
        let needed = peak as f64 * self.headroom;
        let holds = |limits: &Limits| needed <= f64::from(limits.memory_mib()) * 1_048_576.0;
        let slices = gpu
            .slices()
            .iter()
            .rev()
            .filter_map(|&size| Some((size, gpu.slice(size)?)));
        let mut held = slices.filter(|(_, limits)| holds(limits)).peekable();
        if held.peek().is_none() {
            return Fit::Whole;
        }
        let Some(utilization) = job.used.utilization else {
            return Fit::Unknown(Unknown::Utilization);
        };
        let mut held = held
            .filter(|(_, limits)| utilization <= 100.0 * limits.share().fraction())
            .peekable();
        if held.peek().is_none() {
            return Fit::Whole;
        }
        match held.find(|(size, _)| self.may_have(job, &gpu, *size)) {
            Some((size, limits)) => Fit::Slice(size, limits),
            None => Fit::Refused,
        }
    }

    /// Whether the policy grants the slice.
    fn may_have(&mut self, job: &Job, gpu: &GpuType, size: u32) -> bool {
        if !self.policy.looks_at_people() {
            return true;
        }
        let question = (
            job.user.clone(),
            job.account.clone(),
            job.partition.clone(),
            gpu.name().to_string(),
            size,
        );
        if let Some(answer) = self.answers.get(&question) {
            return *answer;
        }
        let slice = gpu.slice(size);
        let request = Request {
            tres_per_node: slice.map(|slice| slice.slice_request().to_string()),
            ..Request::default()
        };
        let context = Context {
            submitter: Submitter {
                user: Some(job.user.to_string()),
                group: self.group(&job.user),
                account: MaybeKnown::known(Some(job.account.to_string())),
                partition: MaybeKnown::known(Some(job.partition.to_string())),
                batch: true,
                ..Submitter::default()
            },
            now: clock::now(),
            ..Context::default()
        };
        let verdict = decide(&self.policy, &request, &context);
        let answer = matches!(verdict, Verdict::Granted(_));
        self.answers.insert(question, answer);
        answer
    }

    /// The number of a user's primary group, where this machine knows it and it matters.
    fn group(&mut self, user: &Arc<str>) -> Option<u32> {
        if !self.policy.names_groups() {
            return None;
        }
        let look = || Some(uzers::get_user_by_name(&**user)?.primary_group_id());
        *self.groups.entry(user.clone()).or_insert_with(look)
    }
}
