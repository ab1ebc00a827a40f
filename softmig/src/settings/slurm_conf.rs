//! The settings of slurm.conf that a policy needs.

use crate::settings::accounting::{self, ENFORCE};
use softmig_policy::Policy;
use softmig_policy::config::choices::Placement;
use softmig_policy::slurm::conf::{pairs, value};
use softmig_policy::slurm::gres_list::Configured;
use softmig_policy::slurm::release::SlurmVersion;

/// Each key with its words; of a key that is no list, the only one.
pub(crate) type Wanted = Vec<(&'static str, Vec<String>)>;

/// Those of a policy, without the words of the site's own that `[slurm]` adds.
pub(crate) fn for_policy(policy: &Policy, version: SlurmVersion) -> Wanted {
    let words = |all: &[&str]| all.iter().map(|word| word.to_string()).collect();
    let spreads = policy.placement == Placement::Spread && version.spreads_shards();
    let parameters: &[&str] = if spreads {
        &["CR_Core_Memory", "LL_SHARED_GRES"]
    } else {
        &["CR_Core_Memory"]
    };
    let mut wanted = vec![
        ("SelectType", words(&["select/cons_tres"])),
        ("GresTypes", gres_types(policy)),
        ("SelectTypeParameters", words(parameters)),
        ("Prolog", words(&["/usr/libexec/softmig-prolog"])),
        ("Epilog", words(&["/usr/libexec/softmig-epilog"])),
        ("PrologFlags", words(&["Contain"])),
        ("JobSubmitPlugins", words(&["lua"])),
        ("CliFilterPlugins", words(&["lua"])),
        ("ProctrackType", words(&["proctrack/cgroup"])),
        ("TaskPlugin", words(&["task/cgroup"])),
    ];
    if let Some(accounting) = accounting::for_policy(policy) {
        let storage = words(&["accounting_storage/slurmdbd"]);
        wanted.push(("AccountingStorageType", storage));
        wanted.push(("AccountingStorageTRES", accounting.tres));
        wanted.push(("AccountingStorageEnforce", words(&ENFORCE)));
        if accounting.priority {
            wanted.push(("PriorityType", words(&["priority/multifactor"])));
            wanted.push(("PriorityWeightQOS", words(&["10000"])));
        }
    }
    wanted
}

fn gres_types(policy: &Policy) -> Vec<String> {
    let mut names = vec!["gpu".to_string(), "shard".to_string()];
    if policy.mps().is_some() {
        names.push("mps".to_string());
    }
    // GRES of the site's own, such as licences of a node.
    for nodes in policy.nodes() {
        let own = pairs(nodes.slurm());
        for gres in Configured::parse(value(&own, "Gres").unwrap_or_default()) {
            if !names.contains(&gres.name) {
                names.push(gres.name);
            }
        }
    }
    names
}
