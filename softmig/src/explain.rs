//! `softmig explain`: what would happen to a request, without submitting it.

use anyhow::{Context as _, anyhow};
use clap::Args;
use serde::Serialize;
use softmig_policy::options::{Options, SlurmVersion};
use softmig_policy::{
    Asker, Context, Fact, Grant, Limits, Policy, Terms, Verdict, WallTime, decide, now,
};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use uzers::User;

/// Shows what would happen to a request for GPUs, without submitting it.
///
/// Takes those of sbatch's options that the answer depends on; leave out the rest, and the script. The answer is the one
/// that slurmctld gives, from the same policy and the same code.
///
/// Exit status: 0 unchanged or granted, 3 refused, 2 wrong usage, 1 the policy cannot be read.
#[derive(Args)]
pub(crate) struct Explain {
    /// As for sbatch: gpu:l40s.4:1 is a quarter of an L40S
    #[arg(long, value_name = "LIST")]
    gres: Option<String>,
    /// As for sbatch: l40s.4:1
    #[arg(long, short = 'G', value_name = "[TYPE:]N")]
    gpus: Option<String>,
    /// As for sbatch
    #[arg(long, value_name = "[TYPE:]N")]
    gpus_per_node: Option<String>,
    /// As for sbatch
    #[arg(long, value_name = "[TYPE:]N")]
    gpus_per_task: Option<String>,
    /// As for sbatch
    #[arg(long, value_name = "[TYPE:]N")]
    gpus_per_socket: Option<String>,
    /// As for sbatch from Slurm 23.11 on: gres/gpu:l40s.4=1
    #[arg(long, value_name = "LIST")]
    tres_per_task: Option<String>,
    /// As for sbatch: 2, or 1-4
    #[arg(long, short = 'N', value_name = "N[-M]")]
    nodes: Option<String>,
    /// As for sbatch
    #[arg(long, short = 'n', value_name = "N")]
    ntasks: Option<u32>,
    /// As for sbatch
    #[arg(long, value_name = "N")]
    ntasks_per_node: Option<u32>,
    /// As for sbatch
    #[arg(long, short = 'c', value_name = "N")]
    cpus_per_task: Option<u32>,
    /// As for sbatch
    #[arg(long, value_name = "N")]
    sockets_per_node: Option<u32>,
    /// As for sbatch
    #[arg(long, value_name = "WORD", num_args = 0..=1, require_equals = true, default_missing_value = "exclusive")]
    exclusive: Option<String>,
    /// As for sbatch
    #[arg(long, value_name = "SIZE")]
    mem_per_gpu: Option<String>,
    /// As for sbatch
    #[arg(long, value_name = "N")]
    cpus_per_gpu: Option<u32>,
    /// As for sbatch
    #[arg(long, value_name = "N")]
    ntasks_per_gpu: Option<u32>,
    /// As for sbatch
    #[arg(long, value_name = "WORD")]
    gpu_freq: Option<String>,
    /// As for sbatch
    #[arg(long, value_name = "SIZE")]
    mem: Option<String>,
    /// As for sbatch
    #[arg(long, value_name = "SIZE")]
    mem_per_cpu: Option<String>,
    /// As for sbatch
    #[arg(long, value_name = "NAME[,...]")]
    reservation: Option<String>,
    /// As for sbatch; without it rules for partitions are not looked at
    #[arg(long, short = 'p', value_name = "NAME[,...]")]
    partition: Option<String>,
    /// As for sbatch; without it rules for accounts are not looked at
    #[arg(long, short = 'A', value_name = "NAME")]
    account: Option<String>,
    /// As for sbatch
    #[arg(long, short = 'q', value_name = "NAME")]
    qos: Option<String>,
    /// As for sbatch
    #[arg(long, short = 't', value_name = "TIME", value_parser = wall_time)]
    time: Option<WallTime>,
    /// The job has no script, as with salloc and srun
    #[arg(long)]
    interactive: bool,
    /// Whose request it would be; yours without it
    #[arg(long, short = 'u', value_name = "NAME")]
    user: Option<String>,
    /// The policy to decide by
    #[arg(long, value_name = "FILE", default_value = Policy::PATH)]
    policy: PathBuf,
    /// The Slurm release whose spelling to use
    #[arg(long, value_name = "YY.MM", default_value_t = SlurmVersion::NEWEST)]
    slurm_version: SlurmVersion,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const REFUSED: u8 = 3;
const WRONG_USAGE: u8 = 2;
const POLICY_UNREADABLE: u8 = 1;

impl Explain {
    pub(crate) fn run(&self) -> ExitCode {
        let request = match self.options().to_request(self.slurm_version) {
            Ok(request) => request,
            Err(error) => return fail(WRONG_USAGE, &error),
        };
        let policy = match read_policy(&self.policy) {
            Ok(policy) => policy,
            Err(error) => return fail(POLICY_UNREADABLE, &format!("{error:#}")),
        };
        let asker = match self.asker(&policy) {
            Ok(asker) => asker,
            Err(error) => return fail(WRONG_USAGE, &error),
        };
        let context = Context {
            prefix: Some(self.slurm_version.prefix()),
            asker,
            now: now(),
            is_change: false,
        };
        let verdict = decide(&policy, &request, &context);
        let unseen = self.unseen(&policy);
        if self.json {
            println!("{}", Answer::of(&verdict, &unseen).to_json());
        } else {
            println!("{}", for_people(&verdict));
            for what in unseen {
                println!("softmig: not looked at: {what}");
            }
        }
        match verdict {
            Verdict::Refused(_) => ExitCode::from(REFUSED),
            Verdict::Granted(_) | Verdict::Unchanged { .. } => ExitCode::SUCCESS,
        }
    }

    /// Who asks; the same that slurmctld knows, as far as it is given here.
    fn asker(&self, policy: &Policy) -> Result<Asker, String> {
        let user = match &self.user {
            Some(name) => uzers::get_user_by_name(name),
            None => uzers::get_user_by_uid(uzers::get_current_uid()),
        };
        if let (Some(name), None) = (&self.user, &user)
            && policy.names_groups()
        {
            return Err(format!(
                "--user={name}: this machine knows no such user, and classes go by primary groups; run this where {name} can \
                 log in"
            ));
        }
        let known = user.as_ref().and_then(|user| user.name().to_str());
        let name = self.user.as_deref().or(known);
        Ok(Asker {
            user: name.map(str::to_string),
            group: user.as_ref().map(User::primary_group_id),
            account: Fact::typed(self.account.clone()),
            partition: Fact::typed(self.partition.clone()),
            named_partition: self.partition.is_some(),
            reservation: self.reservation.clone(),
            qos: self.qos.clone(),
            time_limit: self.time.map(WallTime::minutes),
            batch: !self.interactive,
            ..Asker::default()
        })
    }

    /// What the answer leaves open.
    fn unseen(&self, policy: &Policy) -> Vec<&'static str> {
        let rules = [
            (
                self.account.is_none() && policy.names_accounts(),
                "rules for Slurm accounts; add --account=NAME, the user's default account if the job names none",
            ),
            (
                self.partition.is_none() && policy.names_partitions(),
                "rules for partitions; add --partition=NAME, Slurm's default if the job names none",
            ),
        ];
        let open = rules.into_iter().filter(|(is_open, _)| *is_open);
        open.map(|(_, what)| what).collect()
    }

    fn options(&self) -> Options {
        Options {
            gres: self.gres.clone(),
            gpus: self.gpus.clone(),
            gpus_per_node: self.gpus_per_node.clone(),
            gpus_per_task: self.gpus_per_task.clone(),
            gpus_per_socket: self.gpus_per_socket.clone(),
            tres_per_task: self.tres_per_task.clone(),
            nodes: self.nodes.clone(),
            ntasks: self.ntasks,
            ntasks_per_node: self.ntasks_per_node,
            cpus_per_task: self.cpus_per_task,
            sockets_per_node: self.sockets_per_node,
            exclusive: self.exclusive.as_deref() == Some("exclusive"),
            mem_per_gpu: self.mem_per_gpu.clone(),
            cpus_per_gpu: self.cpus_per_gpu,
            ntasks_per_gpu: self.ntasks_per_gpu,
            gpu_freq: self.gpu_freq.clone(),
            mem: self.mem.clone(),
            mem_per_cpu: self.mem_per_cpu.clone(),
        }
    }
}

fn wall_time(text: &str) -> Result<WallTime, String> {
    WallTime::parse(text).ok_or_else(|| "write for example 4:00:00 or 7-00:00:00".to_string())
}

pub(crate) fn read_policy(path: &Path) -> anyhow::Result<Policy> {
    let name = path.display();
    let bytes = std::fs::read(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "{name}: there is none; use --policy FILE, or run this where softmig is installed"
        ),
        _ => anyhow!("{name}: {error}"),
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = error.as_bytes().get(..error.utf8_error().valid_up_to());
        let line = good
            .unwrap_or_default()
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count()
            + 1;
        anyhow!("{name}: line {line}: a letter that is not UTF-8; save the file as UTF-8")
    })?;
    Policy::parse(&text).with_context(|| format!("{}", path.display()))
}

fn fail(code: u8, error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("softmig explain: {error}");
    ExitCode::from(code)
}

const UNCHANGED: &str = "nothing in this request asks for part of a GPU; Slurm gets it as it is";

fn for_people(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Refused(refusal) => refusal.to_string(),
        Verdict::Unchanged { terms, .. } => {
            format!("softmig: unchanged: {UNCHANGED}{}", set_besides(terms))
        }
        Verdict::Granted(grant) => {
            let limits = &grant.limits;
            format!(
                "softmig: granted: {}\n  GPU memory  {} MiB\n  GPU time    {} % ({})\n  Slurm gets  {}, on one node{}",
                granted(grant),
                limits.memory_mib(),
                limits.percent(),
                match limits.mode() {
                    softmig_policy::limits::Mode::Hard => "a cap, also while the GPU is idle",
                    softmig_policy::limits::Mode::Soft => "more while nobody else wants it",
                },
                grant.request.tres_per_node.as_deref().unwrap_or_default(),
                host(grant) + &set_besides(&grant.terms)
            )
        }
    }
}

/// What the job has of the host, where that is said.
fn host(grant: &Grant) -> String {
    let mut text = String::new();
    if let Some(cpus) = grant.request.cpus_per_task {
        text += &format!("\n  CPUs        {cpus} for each task");
    }
    if let Some(mib) = grant.request.memory_per_node {
        text += &format!("\n  memory      {mib} MiB of the node's");
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
    format!(
        "{} is {} of {} shards of one {}",
        grant.asked,
        share.shards(),
        share.per_gpu(),
        grant.limits.gpu_type()
    )
}

/// The public JSON form.
#[derive(Serialize)]
struct Answer<'a> {
    verdict: &'static str,
    code: Option<&'static str>,
    message: String,
    hint: &'a str,
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
    fn of(limits: &'a Limits) -> Self {
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
    fn of(verdict: &'a Verdict, not_looked_at: &'a [&'static str]) -> Self {
        let terms = verdict.terms();
        let answer = Self {
            verdict: "unchanged",
            code: None,
            message: UNCHANGED.to_string(),
            hint: "",
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
                limits: Some(JsonLimits::of(&grant.limits)),
                ..answer
            },
            Verdict::Refused(refusal) => Self {
                verdict: "refused",
                code: Some(refusal.code.as_str()),
                message: refusal.message.clone(),
                hint: &refusal.hint,
                site: refusal.site.as_deref(),
                ..answer
            },
        }
    }

    fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
