//! `softmig explain`: what would happen to a request, without submitting it.

mod answer;
mod cases;
mod offers;
mod pasted;
mod room;

use crate::files::policy_file;
use crate::output::exit_status::failure;
use crate::output::say::say;
use crate::users::free::offers::Query;
use answer::{Answer, JsonCases, Place, cases_for_people, for_people};
use cases::Case;
use clap::{Args, Parser};
use softmig_policy::config::clock;
use softmig_policy::node::size::Bytes;
use softmig_policy::slurm::cli_options::{Options, WHOLE_NODES, is_exclusive};
use softmig_policy::slurm::release::SlurmVersion;
use softmig_policy::{Context, MaybeKnown, Policy, Request, Submitter, Verdict, WallTime, decide};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use uzers::User;

/// Shows what would happen to a request for GPUs, without submitting it.
///
/// Takes sbatch's options, a script with #SBATCH lines, or a whole line that begins with sbatch, srun or salloc. Options that
/// the answer does not depend on are passed over. Without any of these it lists what can be asked for. The answer is the one
/// that slurmctld gives, from the same policy and the same code.
///
/// Exit status: 0 unchanged or granted, 3 refused, 4 it depends on the account, 2 wrong usage, 1 the policy cannot be read.
#[derive(Args)]
#[command(args_override_self = true)]
pub(crate) struct Explain {
    /// A script whose #SBATCH lines count, or the words of a line with sbatch, srun or salloc
    #[arg(
        value_name = "SCRIPT",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<String>,
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
    /// As for sbatch: n1, or n[1-2],n7
    #[arg(long, short = 'w', value_name = "NAMES")]
    nodelist: Option<String>,
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
    #[arg(long, value_name = "WORD", num_args = 0..=1, require_equals = true, default_missing_value = "exclusive", value_parser = EXCLUSIVE)]
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
    /// List what has at least this GPU memory, 12g or 12000m; --gres=gpu:l40s.12g:1 asks for it
    #[arg(long, value_name = "SIZE", conflicts_with = "json", value_parser = Bytes::parse_memory)]
    memory: Option<Bytes>,
    /// As for sbatch; without it $SBATCH_RESERVATION
    #[arg(long, value_name = "NAME[,...]")]
    reservation: Option<String>,
    /// As for sbatch; without it $SBATCH_PARTITION, and without that rules for partitions are not looked at
    #[arg(long, short = 'p', value_name = "NAME[,...]")]
    partition: Option<String>,
    /// As for sbatch; without it $SBATCH_ACCOUNT, and without that the answer for each account that the policy names
    #[arg(long, short = 'A', value_name = "NAME", value_parser = one_name)]
    account: Option<String>,
    /// As for sbatch; without it $SBATCH_QOS
    #[arg(long, short = 'q', value_name = "NAME")]
    qos: Option<String>,
    /// As for sbatch
    #[arg(long, short = 't', value_name = "TIME", value_parser = wall_time)]
    time: Option<WallTime>,
    /// The job has no script, as with salloc and srun; then it is $SALLOC_ACCOUNT and so on
    #[arg(long)]
    interactive: bool,
    /// Whose request it would be; yours without it. Then no variable is looked at: another user has others
    #[arg(long, short = 'u', value_name = "NAME", value_parser = one_name)]
    user: Option<String>,
    /// When it would be asked for; now without it. Without an offset it is this machine's time
    #[arg(long, value_name = "TIME", value_parser = clock::at)]
    at: Option<i64>,
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

/// The words of --exclusive. Those after the first two leave room for other jobs.
const EXCLUSIVE: [&str; 5] = [WHOLE_NODES[0], WHOLE_NODES[1], "user", "mcs", "topo"];

const REFUSED: u8 = 3;
const DEPENDS: u8 = 4;
const WRONG_USAGE: u8 = 2;

/// Options alone, as they are read from a script and from a pasted line.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Typed {
    #[command(flatten)]
    options: Explain,
}

impl Explain {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if self.words.is_empty() {
            return self.answer();
        }
        // The first one is the command's own name.
        let all: Vec<String> = std::env::args().skip(2).collect();
        let own = &all[..all.len().saturating_sub(self.words.len())];
        let pasted = pasted::read(&self.words, own, self.user.is_none()).map_err(wrong_usage)?;
        let typed = match Typed::try_parse_from(pasted.options) {
            Ok(typed) => typed.options,
            Err(error) => error.exit(),
        };
        if let Some(word) = typed.words.first() {
            return Err(wrong_usage(format!(
                "{word}: neither softmig explain nor sbatch, srun and salloc have this option"
            )));
        }
        let status = typed.answer()?;
        if !typed.json && !pasted.unseen.is_empty() {
            say!("{}", unseen_lines(&pasted.unseen).trim_start());
        }
        Ok(status)
    }

    fn answer(&self) -> anyhow::Result<ExitCode> {
        let request = self
            .options()
            .to_request(self.slurm_version)
            .map_err(wrong_usage)?;
        let policy = policy_file::read(&self.policy)?.policy;
        let submitter = self.submitter(&policy).map_err(wrong_usage)?;
        let now = self.at.unwrap_or_else(clock::now);
        if request == Request::default() && !self.json {
            let context = Context {
                submitter,
                now,
                ..Context::default()
            };
            let listed = offers::list(&policy, &context, self.memory);
            say!("{}", listed.text);
            return Ok(match listed.is_empty {
                false => ExitCode::SUCCESS,
                true => ExitCode::from(REFUSED),
            });
        }
        if self.memory.is_some() {
            let rule = "--memory lists what has so much GPU memory, and this asks for a job; ask for --gres=gpu:TYPE.SIZE:1, for \
                        example gpu:l40s.12g:1";
            return Err(wrong_usage(rule));
        }
        let verdict = |submitter: Submitter| {
            let context = Context {
                prefix: Some(self.slurm_version.prefix()),
                submitter,
                now,
                is_change: false,
            };
            decide(&policy, &request, &context)
        };
        let unseen = unseen(&policy, &request, &submitter);
        let query = Query {
            submitter: submitter.clone(),
            partition: self.partition.clone(),
            memory: None,
            now,
        };
        let (partition, reservation) = (submitter.partition.clone(), submitter.reservation.clone());
        let place = Place {
            partition: match &partition {
                MaybeKnown::Is(name) => Some(name),
                MaybeKnown::Unknown | MaybeKnown::Missing => None,
            },
            reservation: reservation.as_deref(),
        };
        let cases = match submitter.account {
            MaybeKnown::Unknown => cases::by_account(&policy, &submitter, verdict),
            MaybeKnown::Missing | MaybeKnown::Is(_) => vec![Case::every(verdict(submitter))],
        };
        let refused = |case: &Case| matches!(case.verdict, Verdict::Refused(_));
        let refused = cases.iter().filter(|case| refused(case)).count();
        // A refusal leaves nothing open.
        let unseen = if refused == cases.len() {
            Vec::new()
        } else {
            unseen
        };
        let text = match (cases.as_slice(), self.json) {
            ([case], true) => Answer::new(&case.verdict, &unseen).to_json(),
            ([case], false) => with_unseen(for_people(&policy, place, &case.verdict), &unseen),
            (cases, true) => JsonCases::new(cases, &unseen).to_json(),
            (cases, false) => with_unseen(cases_for_people(&policy, place, cases), &unseen),
        };
        say!("{text}");
        // Of this cluster, now, and for people.
        let is_here = self.policy == Path::new(Policy::PATH) && self.at.is_none() && !self.json;
        if let (
            [
                Case {
                    verdict: Verdict::Granted(grant),
                    ..
                },
            ],
            true,
        ) = (cases.as_slice(), is_here)
            && let Some(line) = room::smaller(&policy, grant, query)
        {
            say!("{line}");
        }
        Ok(match refused {
            0 => ExitCode::SUCCESS,
            count if count == cases.len() => ExitCode::from(REFUSED),
            _ => ExitCode::from(DEPENDS),
        })
    }

    /// The submitter, as slurmctld knows them, as far as it is given here.
    fn submitter(&self, policy: &Policy) -> Result<Submitter, String> {
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
        let partition = self.or_set(&self.partition, "PARTITION");
        let set_time = self
            .or_set(&None, "TIMELIMIT")
            .and_then(|time| WallTime::parse(&time));
        Ok(Submitter {
            user: name.map(str::to_string),
            group: user.as_ref().map(User::primary_group_id),
            account: MaybeKnown::typed(self.or_set(&self.account, "ACCOUNT")),
            named_partition: partition.is_some(),
            partition: MaybeKnown::typed(partition),
            reservation: self.or_set(&self.reservation, "RESERVATION"),
            qos: self.or_set(&self.qos, "QOS"),
            time_limit: self.time.or(set_time).map(WallTime::minutes),
            batch: !self.interactive,
            ..Submitter::default()
        })
    }

    /// An option, or else the variable that sbatch or salloc takes it from. Another user has other variables.
    fn or_set(&self, option: &Option<String>, name: &str) -> Option<String> {
        let command = if self.interactive { "SALLOC" } else { "SBATCH" };
        let set = || std::env::var(format!("{command}_{name}")).ok();
        let own = self.user.is_none().then(set).flatten();
        option.clone().or(own.filter(|value| !value.is_empty()))
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
            nodelist: self.nodelist.clone(),
            ntasks: self.ntasks,
            ntasks_per_node: self.ntasks_per_node,
            cpus_per_task: self.cpus_per_task,
            sockets_per_node: self.sockets_per_node,
            exclusive: self.exclusive.as_deref().is_some_and(is_exclusive),
            mem_per_gpu: self.mem_per_gpu.clone(),
            cpus_per_gpu: self.cpus_per_gpu,
            ntasks_per_gpu: self.ntasks_per_gpu,
            gpu_freq: self.gpu_freq.clone(),
            mem: self.mem.clone(),
            mem_per_cpu: self.mem_per_cpu.clone(),
        }
    }
}

/// The open points of the answer.
fn unseen(policy: &Policy, request: &Request, submitter: &Submitter) -> Vec<&'static str> {
    let by_time = || {
        policy
            .routes()
            .iter()
            .any(|route| route.max_time().is_some())
    };
    let rules = [
        (
            submitter.partition == MaybeKnown::Unknown && policy.names_partitions(),
            "rules for partitions; add --partition=NAME, Slurm's default if the job names none",
        ),
        (
            !submitter.named_partition && submitter.time_limit.is_none() && by_time(),
            "routes of jobs up to a time, which take none without --time",
        ),
        (
            request.exclusive && policy.looks_at_people(),
            "which node it gets: on one with GPUs --exclusive takes all of them, and the job waits for ever where its class may \
             not hold as many",
        ),
    ];
    let open = rules.into_iter().filter(|(is_open, _)| *is_open);
    open.map(|(_, what)| what).collect()
}

/// One name, for an option that takes no list.
fn one_name(name: &str) -> Result<String, String> {
    match name {
        "" => Err("a name is missing".to_string()),
        name if name.contains([',', ' ']) => {
            Err("one name is asked for, and this is a list".to_string())
        }
        name => Ok(name.to_string()),
    }
}

fn with_unseen(text: String, unseen: &[&str]) -> String {
    text + &unseen_lines(unseen)
}

/// A line of its own for each.
fn unseen_lines(unseen: &[impl std::fmt::Display]) -> String {
    let lines = unseen
        .iter()
        .map(|what| format!("\nsoftmig: not looked at: {what}"));
    lines.collect()
}

fn wall_time(text: &str) -> Result<WallTime, String> {
    WallTime::parse(text).ok_or_else(|| "write for example 4:00:00 or 7-00:00:00".to_string())
}

fn wrong_usage(error: impl std::fmt::Display) -> anyhow::Error {
    failure(WRONG_USAGE, error)
}
