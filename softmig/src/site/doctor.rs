//! `softmig doctor`: what softmig is on this machine, what is wrong with it, and what to type.

mod local;
mod versions;

use crate::files::policy_file;
use crate::output::say::say;
use crate::site::check::facts::{Cluster, Machine};
use crate::site::check::finding::{Finding, Findings, Level};
use crate::site::check::gather::{self, machine};
use crate::site::check::rules;
use clap::Args;
use local::Local;
use softmig_policy::{Policy, now};
use std::path::Path;
use std::process::ExitCode;

/// Says what softmig is on this machine, what is wrong with it, and what to type.
///
/// Looks at the files, the programs that run, /etc/ld.so.preload, the policy, Slurm's configuration here and, where slurmctld
/// answers, at the running Slurm. 'softmig check' is part of it. Changes nothing. docs/check.md explains each code.
///
/// Exit status: 0 no errors, 3 errors, 2 wrong usage, 1 this machine could not be looked at.
#[derive(Args)]
pub(crate) struct Doctor {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const ERRORS: u8 = 3;

impl Doctor {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let local = Local::look();
        let mut found = Vec::new();
        let cluster = cluster(&local, &mut found);
        let machine = machine::is_node().then(machine::look);
        found.extend(against_policy(machine.as_ref(), cluster.as_ref()));
        let findings = Findings::sorted(found);
        let versions = versions::check(&local.roles(), machine.as_ref(), cluster.as_ref());
        if self.json {
            say!("{}", versions::json(&versions, &findings));
        } else {
            for (name, value) in &versions {
                say!("{name:<9} {value}");
            }
            say!("\n{}", findings.told_by("softmig doctor"));
        }
        Ok(match findings.count(Level::Error) {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::from(ERRORS),
        })
    }
}

/// Slurm's configuration: the one that is in force, or the files here.
fn cluster(local: &Local, found: &mut Vec<Finding>) -> Option<Cluster> {
    let asked = gather::commands().and_then(|commands| gather::running(&commands, false));
    let cluster = asked.or_else(|why| {
        found.push(Finding::skip("the running Slurm", format!("{why:#}")));
        local.cluster()
    });
    cluster
        .map_err(|why| found.push(Finding::skip("Slurm's files", format!("{why:#}"))))
        .ok()
}

/// The findings of 'softmig check' here, or as many of them as there are without a policy.
fn against_policy(machine: Option<&Machine>, cluster: Option<&Cluster>) -> Vec<Finding> {
    let policy = match policy_file::read(Path::new(Policy::PATH)) {
        Ok(file) => file.policy,
        Err(error) => {
            let mut found = vec![rules::no_policy(&error)];
            found.extend(rules::without_policy(machine, cluster));
            return found;
        }
    };
    let mut found = Vec::new();
    if let Some(cluster) = cluster {
        found.extend(rules::cluster(&policy, cluster, now()));
    }
    if let Some(machine) = machine {
        found.extend(rules::machine(&policy, machine, cluster, now()));
    }
    found
}
