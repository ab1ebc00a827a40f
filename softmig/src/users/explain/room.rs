//! Whether a granted slice has room now, where Slurm can be asked.

use crate::ask::cluster::ask;
use crate::users::free::offers::{self, Query, sooner};
use softmig_policy::{Grant, Policy};

/// What to type instead, if the slice has no room now and a smaller one has. Without an answer of Slurm's nothing is said.
/// Of slices on several nodes neither.
pub(super) fn smaller(policy: &Policy, grant: &Grant, mut query: Query) -> Option<String> {
    if grant.request.min_nodes != Some(1) {
        return None;
    }
    query.memory = grant.memory;
    if let Some(partition) = &grant.terms.partition {
        query.partition = Some(partition.clone());
    }
    let commands = ask::commands().ok()?;
    let cluster = ask::cluster(&commands).ok()?;
    let offers = offers::all(policy, &cluster, &query);
    let own = offers.iter().find(|it| it.limits == Some(grant.limits))?;
    let other = sooner(&offers, own)?;
    let memory = other.limits?.memory_mib();
    Some(format!(
        "softmig: there is no room for it now, and for --gres={} ({memory} MiB) there is",
        other.gres
    ))
}
