//! `softmig check`: whether Slurm and this node are what policy.toml needs them to be.
//!
//! `gather` looks at things, `facts` is what it saw, `rules` make `finding`s of that.

pub(crate) mod facts;
pub(crate) mod finding;
pub(crate) mod gather;
pub(crate) mod rules;

use crate::ask::here;
use crate::files::policy_file::{self, PolicyFile};
use crate::output::say::say;
use clap::Args;
use facts::{Answer, Cluster, Difference, LuaPlugins, Machine};
use finding::{Finding, Findings, Level};
use softmig_policy::slurm::release::SlurmVersion;
use softmig_policy::{Policy, now};
use std::path::PathBuf;
use std::process::ExitCode;

/// Compares policy.toml with Slurm's configuration, and with this node.
///
/// Looks at the running Slurm, or with --slurm-conf at files; on a machine with GPUs also at the library, the monitor,
/// control groups and NVML. Prints a line for each finding: its level, its code, where, what, and what to do. Changes
/// nothing. docs/check.md explains each code.
///
/// Exit status: 0 no errors, 3 errors, 2 wrong usage, 1 something that was asked for could not be looked at.
#[derive(Args)]
pub(crate) struct Check {
    /// The policy
    #[arg(long, value_name = "FILE", default_value = Policy::PATH)]
    policy: PathBuf,
    /// Look at this slurm.conf, and at gres.conf and cgroup.conf beside it, instead of the running Slurm
    #[arg(long, value_name = "FILE", conflicts_with_all = ["node", "nodes"])]
    slurm_conf: Option<PathBuf>,
    /// The Slurm release that the files are for; without this, that of the Slurm on this machine, if there is one
    #[arg(long, value_name = "YY.MM", requires = "slurm_conf")]
    slurm_version: Option<SlurmVersion>,
    /// Look at Slurm only, and not at this machine
    #[arg(long)]
    slurm: bool,
    /// Look at this machine only, as a node with GPUs
    #[arg(long, conflicts_with_all = ["nodes", "slurm"])]
    node: bool,
    /// Also run 'softmig check --node' on these nodes, or on all with GPUs, each as a job step of a minute at most
    #[arg(long, value_name = "LIST", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    nodes: Option<String>,
    /// With --nodes: run there in this reservation, for nodes that are in one
    #[arg(long, value_name = "NAME", requires = "nodes")]
    reservation: Option<String>,
    /// Report when the policy here is another than this one; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "slurm_conf")]
    same_as: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const ERRORS: u8 = 3;

/// All that was looked at.
struct Seen {
    cluster: Option<Cluster>,
    machine: Option<Machine>,
    /// Slurm's Lua plugins, where no slurmctld answered for the cluster.
    lua: Option<LuaPlugins>,
    answers: Vec<Answer>,
    /// Where the policy is another one than it should be.
    difference: Option<Difference>,
    /// Facts that were asked for and could not be looked at.
    missing: Vec<Finding>,
}

impl Check {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let PolicyFile { text, policy } = match policy_file::read(&self.policy) {
            Ok(file) => file,
            // A caller who asked for a node wants to hear of it: 'softmig check --nodes' would take no answer for a busy node.
            Err(error) if self.node => {
                let found = vec![rules::no_policy(&error)];
                return Ok(self.tell(&Findings::sorted(found), false));
            }
            Err(error) => return Err(error),
        };
        let seen = self.look(text.as_bytes(), &policy)?;
        let failed = !seen.missing.is_empty();
        let findings = check(&policy, seen, now());
        Ok(self.tell(&findings, failed))
    }

    /// Prints them, and says how to end.
    fn tell(&self, findings: &Findings, failed: bool) -> ExitCode {
        if self.json {
            say!("{}", findings.to_json());
        } else {
            say!("{}", findings.told_by("softmig check"));
        }
        match findings.count(Level::Error) {
            0 if failed => ExitCode::FAILURE,
            0 => ExitCode::SUCCESS,
            _ => ExitCode::from(ERRORS),
        }
    }

    fn look(&self, text: &[u8], policy: &Policy) -> anyhow::Result<Seen> {
        let mut missing = Vec::new();
        let mut answers = Vec::new();
        let cluster = match &self.slurm_conf {
            Some(path) => Some(gather::given(
                path,
                self.slurm_version.or_else(here::version),
            )?),
            None if self.node => None,
            None => match gather::commands().and_then(|commands| {
                let cluster = gather::running(&commands, !policy.reservables().is_empty())?;
                if let Some(list) = &self.nodes {
                    let srun = commands.folder().join("srun");
                    answers = gather::across::ask(
                        &cluster,
                        list,
                        self.reservation.as_deref(),
                        text,
                        &srun,
                    );
                }
                Ok(cluster)
            }) {
                Ok(cluster) => Some(cluster),
                Err(error) => {
                    missing.push(Finding::skip("Slurm", format!("{error:#}")));
                    None
                }
            },
        };
        let slurm_only = self.slurm || self.slurm_conf.is_some();
        let here = self.node || (!slurm_only && gather::machine::is_node());
        let same_as = self.same_as.as_deref();
        let difference = same_as.map(|other| gather::machine::compare(&self.policy, other));
        let lua = match cluster {
            Some(_) => None,
            None => gather::lua::here(),
        };
        Ok(Seen {
            cluster,
            lua,
            machine: here.then(gather::machine::look),
            answers,
            difference: difference.transpose()?,
            missing,
        })
    }
}

fn check(policy: &Policy, seen: Seen, now: i64) -> Findings {
    let mut found = seen.missing;
    if let Some(cluster) = &seen.cluster {
        found.extend(rules::cluster(policy, cluster, now));
    }
    if let Some(plugins) = &seen.lua {
        found.extend(rules::lua_plugins(plugins));
    }
    if let Some(machine) = &seen.machine {
        found.extend(rules::machine(policy, machine, seen.cluster.as_ref(), now));
    }
    found.extend(rules::windows(policy, seen.cluster.as_ref(), now));
    found.extend(rules::difference(seen.difference.as_ref()));
    found.extend(rules::answers(&seen.answers));
    Findings::sorted(found)
}
