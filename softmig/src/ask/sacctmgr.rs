//! What sacctmgr lists of slurmdbd: the one place that asks it and reads its answer.

use crate::ask::conf::{Accounting, Association, Qos, Seen, Settings};
use softmig_node::slurmctld::Commands;

/// The columns of a QOS, by sacctmgr's names.
const QOS_COLUMNS: [&str; 13] = [
    "Name",
    "Priority",
    "Flags",
    "MaxTRESPerUser",
    "MaxTRES",
    "MaxJobsPU",
    "MaxWall",
    "GrpTRES",
    "MaxTRESPerAccount",
    "MaxTRESPerNode",
    "GrpTRESMins",
    "MaxTRESMins",
    "GrpTRESRunMins",
];

/// The columns of an association. The last ones are limits.
const ASSOCIATION_COLUMNS: [&str; 8] = [
    "Account",
    "User",
    "QOS",
    "GrpTRES",
    "MaxTRES",
    "MaxTRESPerNode",
    "GrpTRESMins",
    "MaxTRESMins",
];

/// The QOS and associations of the cluster that has these settings.
pub(crate) fn accounting(commands: &Commands, settings: &Settings) -> Seen<Accounting> {
    if !settings.get("AccountingStorageType").ends_with("slurmdbd") {
        return Err("Slurm does not use slurmdbd here, so it has no QOS".into());
    }
    let sacctmgr = |words: &[&str]| {
        let answer = commands.long_answer("sacctmgr", &[&["-nP", "show"], words].concat());
        answer.map_err(|error| format!("slurmdbd did not say: {error}"))
    };
    let format = |columns: &[&str]| format!("format={}", columns.join(","));
    let qos = sacctmgr(&["qos", &format(&QOS_COLUMNS)])?;
    let cluster = format!("cluster={}", settings.get("ClusterName"));
    let associations = sacctmgr(&["assoc", &cluster, &format(&ASSOCIATION_COLUMNS)])?;
    Ok(Accounting {
        qos: qos.lines().filter_map(qos_of).collect(),
        associations: associations.lines().filter_map(association_of).collect(),
    })
}

fn qos_of(line: &str) -> Option<Qos> {
    let fields: Settings = QOS_COLUMNS.into_iter().zip(line.split('|')).collect();
    let name = fields.get("Name").to_string();
    (!name.is_empty()).then_some(Qos { name, fields })
}

fn association_of(line: &str) -> Option<Association> {
    let mut columns = line.split('|');
    let account = columns.next().filter(|name| !name.is_empty())?.to_string();
    let user = columns.next()?.to_string();
    let qos = columns
        .next()?
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_string)
        .collect();
    let limits: Vec<&str> = columns.filter(|limit| !limit.is_empty()).collect();
    Some(Association {
        account,
        user,
        qos,
        limits: limits.join(","),
    })
}

/// The account that a user's jobs are booked on where they name none.
pub(crate) fn default_account(commands: &Commands, user: &str) -> Option<String> {
    let words = ["-nP", "show", "user", user, "format=DefaultAccount"];
    let answer = commands.answer("sacctmgr", &words).ok()?;
    let account = answer.lines().next()?.trim();
    (!account.is_empty()).then(|| account.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sacctmgr_prints_is_read() {
        let qos =
            qos_of("student|10|DenyOnLimit|billing=2|gres/shard=2|3|1-00:00:00||||||").unwrap();
        assert_eq!(qos.fields.get("MaxTRESPerUser"), "billing=2");
        let association = association_of("teaching|alice|normal,student|gres/gpu=4||||").unwrap();
        assert_eq!(association.called(), "alice in teaching");
        assert_eq!(association.qos, ["normal", "student"]);
        assert_eq!(association.limits, "gres/gpu=4");
        assert!(association_of("").is_none());
    }
}
