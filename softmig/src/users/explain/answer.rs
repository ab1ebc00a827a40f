//! The answer: for people, and as JSON.

use super::cases::Case;
use serde::Serialize;
use softmig_policy::config::gpu_types::PackKey;
use softmig_policy::node::limits::{Ceiling, Mode, Percent};
use softmig_policy::{Grant, Limits, Policy, Terms, Verdict};

const UNCHANGED: &str = "nothing in this request asks for part of a GPU; Slurm gets it as it is";

/// Where the job would run.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) partition: Option<&'a str>,
    pub(super) reservation: Option<&'a str>,
}

pub(super) fn for_people(policy: &Policy, place: Place<'_>, verdict: &Verdict) -> String {
    match verdict {
        Verdict::Refused(refusal) => refusal.to_string(),
        Verdict::Unchanged { terms, .. } => {
            format!("softmig: unchanged: {UNCHANGED}{}", set_besides(terms))
        }
        Verdict::Granted(grant) => {
            let limits = &grant.limits;
            format!(
                "softmig: granted: {}\n  GPU memory  {} MiB\n  GPU time    {} % ({}){}\n  Slurm gets  {}, on {}{}",
                granted(grant),
                limits.memory_mib(),
                limits.percent(),
                ceiling(limits),
                together(policy, place, grant),
                grant.request.tres_per_node.as_deref().unwrap_or_default(),
                nodes(grant),
                host(grant) + &set_besides(&grant.terms)
            )
        }
    }
}

/// How far the job may exceed its share, and what it saves up.
fn ceiling(limits: &Limits) -> String {
    let Mode { ceiling, burst_ms } = limits.mode();
    let saved = match burst_ms {
        Mode::BURST_MS => String::new(),
        burst_ms => format!("; it saves up {} s", f64::from(burst_ms) / 1000.0),
    };
    match ceiling {
        Ceiling::Share => format!("a cap, also while the GPU is idle{saved}"),
        Ceiling::Percent(_) => format!(
            "up to {} % while no other job wants it{saved}",
            Percent(limits.mode().ceiling_of(limits.share()))
        ),
        Ceiling::Gpu => "more while no other job wants it".to_owned(),
    }
}

/// Whose jobs run there at the same time.
fn together(policy: &Policy, place: Place<'_>, grant: &Grant) -> String {
    let gpu = policy.gpu(grant.limits.gpu_type().as_str());
    let partition = grant.terms.partition.as_deref().or(place.partition);
    // Of several ones, Slurm has not chosen yet.
    let partition = partition.filter(|names| !names.contains(','));
    let jobs = match gpu.map_or(PackKey::No, |gpu| gpu.pack_in(partition)) {
        PackKey::User => "your jobs",
        PackKey::Account => "jobs of one account",
        PackKey::Reservation if place.reservation.is_some() => "jobs in one reservation",
        PackKey::No | PackKey::Reservation => return String::new(),
    };
    format!("\n  together    {jobs} on one GPU run at the same time, in their shares together")
}

fn nodes(grant: &Grant) -> String {
    match grant.request.min_nodes.unwrap_or(1) {
        1 => "one node".to_string(),
        nodes => format!("each of {nodes} nodes"),
    }
}

/// The job's part of the host, where that is said.
fn host(grant: &Grant) -> String {
    let mut text = String::new();
    if let Some(cpus) = grant.request.cpus_per_task {
        text += &format!("\n  CPUs        {cpus} for each task");
    }
    if let Some(mib) = grant.request.memory_per_node {
        text += &match mib {
            0 => "\n  memory      all of the node's".to_string(),
            mib => format!("\n  memory      {mib} MiB of the node's"),
        };
    }
    text
}

fn set_besides(terms: &Terms) -> String {
    let mut text = String::new();
    for (name, value) in [("QOS", &terms.qos), ("partition", &terms.partition)] {
        if let Some(value) = value {
            text += &format!("\n  {name:<10}  {value}");
        }
    }
    if let Some(notice) = &terms.notice {
        text += &format!("\n{notice}");
    }
    text
}

fn granted(grant: &Grant) -> String {
    let share = grant.limits.share();
    // By memory it is not said otherwise.
    let slice = grant
        .memory
        .map(|_| format!("{}, ", grant.limits.slice_request()));
    format!(
        "{} is {}{} of {} shards of one {}",
        grant.asked,
        slice.unwrap_or_default(),
        share.shards(),
        share.per_gpu(),
        grant.limits.gpu_type()
    )
}

/// The public JSON form.
#[derive(Serialize)]
pub(super) struct Answer<'a> {
    verdict: &'static str,
    code: Option<&'static str>,
    message: String,
    hint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    site: Option<&'a str>,
    tres_per_node: Option<&'a str>,
    limits: Option<JsonLimits<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    qos: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    not_looked_at: &'a [&'static str],
}

#[derive(Serialize)]
struct JsonLimits<'a> {
    r#type: &'a str,
    shards: u32,
    shards_per_gpu: u32,
    memory_mib: u32,
    compute_percent: f64,
}

impl<'a> JsonLimits<'a> {
    fn new(limits: &'a Limits) -> Self {
        Self {
            r#type: limits.gpu_type().as_str(),
            shards: limits.share().shards(),
            shards_per_gpu: limits.share().per_gpu(),
            memory_mib: limits.memory_mib(),
            compute_percent: f64::from(limits.share().percent_tenths()) / 10.0,
        }
    }
}

impl<'a> Answer<'a> {
    pub(super) fn new(verdict: &'a Verdict, not_looked_at: &'a [&'static str]) -> Self {
        let terms = verdict.terms();
        let answer = Self {
            verdict: "unchanged",
            code: None,
            message: UNCHANGED.to_string(),
            hint: String::new(),
            site: None,
            tres_per_node: None,
            limits: None,
            qos: terms.and_then(|terms| terms.qos.as_deref()),
            partition: terms.and_then(|terms| terms.partition.as_deref()),
            notice: terms.and_then(|terms| terms.notice.as_deref()),
            not_looked_at,
        };
        match verdict {
            Verdict::Unchanged { .. } => answer,
            Verdict::Granted(grant) => Self {
                verdict: "granted",
                message: granted(grant),
                tres_per_node: grant.request.tres_per_node.as_deref(),
                limits: Some(JsonLimits::new(&grant.limits)),
                ..answer
            },
            Verdict::Refused(refusal) => Self {
                verdict: "refused",
                code: Some(refusal.code().as_str()),
                message: refusal.message(),
                hint: refusal.hint(),
                site: refusal.site(),
                ..answer
            },
        }
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The answer by the account that the job is booked on, where that is not known.
#[derive(Serialize)]
pub(super) struct JsonCases<'a> {
    verdict: &'static str,
    message: &'static str,
    accounts: Vec<JsonCase<'a>>,
}

#[derive(Serialize)]
struct JsonCase<'a> {
    names: &'a [String],
    /// Whether it is also that of every account which is named nowhere.
    any_other: bool,
    answer: Answer<'a>,
}

impl<'a> JsonCases<'a> {
    pub(super) fn new(cases: &'a [Case], not_looked_at: &'a [&'static str]) -> Self {
        let cases = cases.iter().map(|case| JsonCase {
            names: &case.accounts,
            any_other: case.any_other,
            answer: Answer::new(&case.verdict, not_looked_at),
        });
        Self {
            verdict: "depends",
            message: DEPENDS,
            accounts: cases.collect(),
        }
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

const DEPENDS: &str = "it depends on the account; add --account=NAME, the user's default account if the job names none";

/// The same for people.
pub(super) fn cases_for_people(policy: &Policy, place: Place<'_>, cases: &[Case]) -> String {
    let mut text = format!("softmig: {DEPENDS}");
    for case in cases {
        let names = case.accounts.iter().map(|name| format!("account {name}"));
        let other = case.any_other.then(|| "any other account".to_string());
        let names: Vec<String> = names.chain(other).collect();
        text += &format!(
            "\nsoftmig: with {}:\n{}",
            names.join(" or "),
            for_people(policy, place, &case.verdict)
        );
    }
    text
}
