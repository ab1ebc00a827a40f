//! `softmig status`: what of each GPU is used and free, whose jobs have it, and why others wait.

mod json;
mod live;
mod picture;
mod text;

use crate::ask::cluster::all::Cluster;
use crate::ask::cluster::ask;
use crate::ask::squeue::Job;
use crate::files::policy_file;
use crate::output::say::say;
use crate::users::whose::{self, Whose};
use anyhow::{anyhow, bail};
use clap::Args;
use picture::{Picture, Shown};
use softmig_policy::Policy;
use softmig_policy::config::clock;
use softmig_policy::slurm::hostlist;
use std::path::PathBuf;

/// Shows what of each GPU is used and free, whose jobs have it, and why jobs wait
///
/// Lists your own jobs, or for root all jobs; what others hold counts either way, as far as Slurm shows it. On a GPU node,
/// you also see what your own slices there hold and used, and root and the group softmig that of each job; all users see it on
/// any machine if the nodes' exporters answer. 'watch -n 10 softmig status' shows it again every 10 seconds.
///
/// Exit status: 0 done, 2 wrong usage, 1 Slurm does not answer, or knows no such node or user.
#[derive(Args)]
pub(crate) struct Status {
    /// Only these nodes: gpu01, or gpu[01-04],gpu07
    #[arg(long, short = 'w', value_name = "NAMES")]
    node: Option<String>,
    #[command(flatten)]
    whose: Whose,
    /// Print one JSON object (docs/status.md)
    #[arg(long)]
    json: bool,
    /// The policy, which says what slices hold and classes may have
    #[arg(long, value_name = "FILE", default_value = Policy::PATH)]
    policy: PathBuf,
}

impl Status {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let nodes = self
            .node
            .as_deref()
            .map(hostlist::parse)
            .transpose()
            .map_err(|error| {
                anyhow!(
                    "--node={}: the list {error}",
                    self.node.as_deref().unwrap_or_default()
                )
            })?;
        if nodes.as_ref().is_some_and(Vec::is_empty) {
            bail!("--node: the list is empty; name a node, such as gpu01");
        }
        let mut cluster = ask::cluster(&ask::commands()?)?;
        if cluster.nodes.is_empty() {
            bail!("Slurm shows you no node with GPUs");
        }
        let shown = self.shown(&cluster)?;
        if let Some(nodes) = &nodes {
            only(&mut cluster, nodes)?;
        }
        let (policy, mut notes) = match policy_file::read(&self.policy) {
            Ok(file) => (Some(file.policy), Vec::new()),
            Err(error) => (
                None,
                vec![format!(
                    "without a policy, memory and classes are not known: {error:#}"
                )],
            ),
        };
        let metrics = policy.as_ref().map(|policy| &policy.node().metrics);
        let exporters = metrics.and_then(|metrics| metrics.exporters.as_ref());
        let (live, unknown) = live::figures(&cluster, &shown, exporters);
        notes.extend(unknown);
        let picture = Picture {
            live,
            cluster,
            policy,
            notes,
            shown,
            now: clock::now(),
        };
        let text = if self.json {
            json::encode(&picture)
        } else {
            text::lines(&picture).join("\n")
        };
        say!("{text}");
        Ok(())
    }

    fn shown(&self, cluster: &Cluster) -> anyhow::Result<Shown> {
        let uid = uzers::get_current_uid();
        let own = whose::name(uid);
        if let Some(name) = &self.whose.user {
            let has_jobs = cluster.jobs.iter().any(|job| job.user == *name);
            if !has_jobs && uzers::get_user_by_name(name).is_none() {
                bail!("--user={name}: the user does not exist, and has no job");
            }
        }
        let of = self.whose.listed(uid, own.clone());
        Ok(Shown { own, of })
    }
}

/// Keeps these nodes, and the jobs that are on them.
fn only(cluster: &mut Cluster, names: &[String]) -> anyhow::Result<()> {
    let known = |name: &String| cluster.nodes.iter().any(|node| node.name == *name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let all = cluster.nodes.iter().map(|node| node.name.as_str());
        bail!(
            "--node: {unknown} is not a node with GPUs; Slurm shows you {}",
            hostlist::compress(all)
        );
    }
    cluster.nodes.retain(|node| names.contains(&node.name));
    let is_here = |job: &Job| job.places.iter().any(|(node, _)| names.contains(node));
    cluster.jobs.retain(is_here);
    Ok(())
}
