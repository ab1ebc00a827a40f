//! `softmig free`: the sizes that this person may have, and how many of each could start now.

pub(crate) mod estimate;
mod notes;
pub(crate) mod offers;
mod text;

use crate::ask::cluster::ask;
use crate::ask::sacctmgr::default_account;
use crate::files::policy_file;
use crate::output::say::say;
use anyhow::bail;
use clap::Args;
use offers::Query;
use softmig_node::slurmctld::Commands;
use softmig_policy::config::clock;
use softmig_policy::node::size::Bytes;
use softmig_policy::{MaybeKnown, Policy, Submitter};
use std::path::PathBuf;

/// Shows the sizes of slices that you may have, how many of each are free now, and what to type
///
/// Slurm decides which job starts first, so what is free now may be another's a moment later. --when asks Slurm for each
/// size when a job with it would start.
///
/// Exit status: 0 done, 2 wrong usage, 1 Slurm does not answer, or the policy cannot be read.
#[derive(Args)]
pub(crate) struct Free {
    /// Also ask Slurm when a job of each size would start: 'sbatch --test-only', which submits nothing
    #[arg(long)]
    when: bool,
    /// Only what has at least this GPU memory: 12g, 12000m
    #[arg(long, value_name = "SIZE", value_parser = Bytes::parse_memory)]
    memory: Option<Bytes>,
    /// As for sbatch: only what is free there
    #[arg(long, short = 'p', value_name = "NAME")]
    partition: Option<String>,
    /// As for sbatch: your class may depend on it; without it $SBATCH_ACCOUNT, or your default one
    #[arg(long, short = 'A', value_name = "NAME")]
    account: Option<String>,
    /// As for sbatch, with --when: a short job may start earlier
    #[arg(long, short = 't', value_name = "TIME", requires = "when", value_parser = wall_time)]
    time: Option<String>,
    /// Print one JSON object (docs/status.md)
    #[arg(long)]
    json: bool,
    /// The policy, which says what sizes there are
    #[arg(long, value_name = "FILE", default_value = Policy::PATH)]
    policy: PathBuf,
}

fn wall_time(text: &str) -> Result<String, String> {
    let is_time = softmig_policy::WallTime::parse(text).is_some();
    is_time
        .then(|| text.to_string())
        .ok_or_else(|| "write for example 4:00:00 or 7-00:00:00".to_string())
}

impl Free {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let policy = policy_file::read(&self.policy)?.policy;
        let commands = ask::commands()?;
        let cluster = ask::cluster(&commands)?;
        if let Some(partition) = &self.partition
            && !cluster
                .nodes
                .iter()
                .any(|node| node.partitions.contains(partition))
        {
            bail!("--partition={partition}: no node with GPUs that Slurm shows you is in it");
        }
        if cluster.nodes.is_empty() {
            bail!("Slurm shows you no node with GPUs");
        }
        let query = self.query(&policy, &commands);
        let mut offers = offers::all(&policy, &cluster, &query);
        if self.when {
            for offer in &mut offers {
                offer.estimate = Some(estimate::ask(&commands, &offer.gres, &self.words()));
            }
        }
        let notes = notes::all(&policy, &cluster, &query, &offers);
        if self.json {
            say!("{}", text::json(&offers, &notes, query.now));
        } else {
            say!(
                "{}",
                text::lines(&offers, &notes, self.memory.is_some()).join("\n")
            );
        }
        Ok(())
    }

    fn query(&self, policy: &Policy, commands: &Commands) -> Query {
        let user = uzers::get_user_by_uid(uzers::get_current_uid());
        let name = user.as_ref().and_then(|user| user.name().to_str());
        let set = || std::env::var("SBATCH_ACCOUNT").ok();
        // Only where classes go by it.
        let default = || {
            let name = name.filter(|_| !policy.accounts().is_empty())?;
            default_account(commands, name)
        };
        let account = self
            .account
            .clone()
            .or_else(set)
            .filter(|name| !name.is_empty())
            .or_else(default);
        Query {
            submitter: Submitter {
                user: name.map(str::to_string),
                group: user.as_ref().map(uzers::User::primary_group_id),
                account: MaybeKnown::typed(account),
                partition: MaybeKnown::typed(self.partition.clone()),
                named_partition: self.partition.is_some(),
                batch: true,
                ..Submitter::default()
            },
            partition: self.partition.clone(),
            memory: self.memory,
            now: clock::now(),
        }
    }

    /// The options that an estimate depends on.
    fn words(&self) -> Vec<String> {
        let options = [
            ("partition", &self.partition),
            ("account", &self.account),
            ("time", &self.time),
        ];
        let given = options
            .iter()
            .filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?)));
        given.collect()
    }
}
