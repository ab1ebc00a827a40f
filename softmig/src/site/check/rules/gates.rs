//! Gates for accounts of a class that do not apply to all members of that class.

use crate::site::check::facts::Cluster;
use crate::site::check::finding::{Code, Finding, listed};
use crate::site::check::rules::principals::knows_all_users;
use softmig_policy::config::gates::Gate;
use softmig_policy::{MaybeKnown, Policy, Submitter, gate_before};
use std::collections::BTreeSet;

pub(crate) fn check(policy: &Policy, cluster: &Cluster) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut told: BTreeSet<(&str, &str)> = BTreeSet::new();
    for gate in policy.gates() {
        let classes = policy
            .standings()
            .iter()
            .filter(|standing| standing.user.is_none());
        for class in classes.filter_map(|standing| standing.class.as_deref()) {
            let (_, accounts) = policy.members(class);
            let own = accounts.iter().find(|account| is_for(gate, account));
            // Exempt users pass on purpose.
            let meets = own.is_some_and(|own| !passes(policy, gate, class, Some(own)));
            let others = if meets {
                others(policy, cluster, gate, class)
            } else {
                continue;
            };
            if !others.is_empty() && told.insert((gate.what(), class)) {
                found.push(Finding::new(
                    Code::GateClass,
                    format!("[[gate]] for {}", gate.what()),
                    format!(
                        "it lists accounts [\"{}\"] of class {class}; these members of the class pass it: {}",
                        gate.accounts().join("\", \""),
                        others.join("; ")
                    ),
                    "leave accounts out, and name the classes that may pass in exempt_classes",
                ));
            }
        }
    }
    found
}

fn is_for(gate: &Gate, account: &str) -> bool {
    let mut own = gate.accounts().iter();
    own.any(|own| own.eq_ignore_ascii_case(account))
}

/// Whether a user of a class passes without a reservation, in any of the gate's partitions.
fn passes(policy: &Policy, gate: &Gate, class: &str, account: Option<&String>) -> bool {
    let passes_in = |partition: Option<&String>| {
        let submitter = Submitter {
            account: MaybeKnown::known(account.cloned()),
            partition: MaybeKnown::known(partition.cloned()),
            ..Submitter::default()
        };
        gate_before(policy, gate, Some(class), &submitter).is_none()
    };
    match gate.partitions() {
        [] => passes_in(None),
        partitions => partitions.iter().any(|name| passes_in(Some(name))),
    }
}

/// The members of a class whom no such gate stops, in words.
fn others(policy: &Policy, cluster: &Cluster, gate: &Gate, class: &str) -> Vec<String> {
    let mut others = Vec::new();
    let (users, accounts) = policy.members(class);
    let passing = accounts
        .iter()
        .filter(|account| !is_for(gate, account) && passes(policy, gate, class, Some(account)));
    others.extend(listed(passing).map(|accounts| format!("account {accounts}")));
    // They can submit under an account that no gate is for.
    if !passes(policy, gate, class, None) {
        return others;
    }
    let tables = policy
        .standings()
        .iter()
        .filter(|standing| standing.class.as_deref() == Some(class))
        .filter_map(|standing| standing.user.as_ref());
    let users: BTreeSet<&str> = users
        .iter()
        .chain(tables)
        .filter(|user| has_other_account(cluster, gate, user))
        .map(String::as_str)
        .collect();
    let users = listed(users.into_iter());
    others.extend(users.map(|users| format!("user {users} under another account")));
    if policy.has_groups(class) {
        others.push("members by groups under another account".to_string());
    }
    let of_others = policy.standing_of_others();
    if of_others.is_some_and(|others| others.class.as_deref() == Some(class)) {
        others.push(
            "all users in no other class (it is default_class), under another account".to_string(),
        );
    }
    others
}

/// Whether a user can submit under an account that the gate is not for, as far as that is known.
fn has_other_account(cluster: &Cluster, gate: &Gate, user: &str) -> bool {
    match &cluster.accounting {
        Ok(accounting) if knows_all_users(cluster) => {
            let mut own = accounting.associations.iter();
            own.any(|own| own.user.eq_ignore_ascii_case(user) && !is_for(gate, &own.account))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::rules::example::{association, cluster, codes, policy_with};

    /// The gate is for accounts a and b.
    fn policy(top: &str, gate: &str, members: &str, more: &str) -> Policy {
        policy_with(&format!(
            "{top}[defaults]\nshards = \"unlimited\"\nwhole_gpus = \"unlimited\"\n\
             [classes.student]\nmembers = {{ {members} }}\n[classes.staff]\nmembers = {{ accounts = [\"lab\"] }}\n\
             [[gate]]\nwhat = \"slice\"\nreservation = [\"r\"]\naccounts = [\"a\", \"B\"]\n{gate}\n{more}"
        ))
    }

    /// The findings on a cluster that does not say which accounts users have.
    fn found(policy: &Policy) -> Vec<String> {
        let mut cluster = cluster();
        cluster.accounting = Err("files do not have it".into());
        let found = check(policy, &cluster);
        found.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn others_of_a_class_that_a_gate_is_for_are_told() {
        let own = |members: &str| policy("", "", members, "");
        assert!(found(&own("accounts = [\"a\"]")).is_empty());
        assert!(found(&own("accounts = [\"A\", \"b\"]")).is_empty());
        // The gate is not for this class.
        assert!(found(&own("users = [\"alice\"], accounts = [\"c\"]")).is_empty());
        assert_eq!(
            found(&own(
                "users = [\"alice\"], accounts = [\"a\", \"c\"], groups = [7]"
            )),
            [
                "WARN  GATE_CLASS [[gate]] for slice: it lists accounts [\"a\", \"b\"] of class student; these members of the class \
                 pass it: account c; user alice under another account; members by groups under another account; leave accounts \
                 out, and name the classes that may pass in exempt_classes"
            ]
        );
        let table = policy(
            "",
            "",
            "accounts = [\"a\"]",
            "[users.bob]\nclass = \"student\"\nshards = 1\n",
        );
        assert!(found(&table)[0].contains("pass it: user bob under another account; leave"));
        let by_default = policy(
            "default_class = \"student\"\n",
            "",
            "accounts = [\"a\"]",
            "",
        );
        assert!(
            found(&by_default)[0]
                .contains("pass it: all users in no other class (it is default_class)")
        );
    }

    #[test]
    fn exempt_users_pass_on_purpose() {
        let exempt = "exempt_classes = [\"student\"]";
        assert!(
            found(&policy(
                "",
                exempt,
                "users = [\"alice\"], accounts = [\"a\"]",
                ""
            ))
            .is_empty()
        );
    }

    #[test]
    fn another_gate_of_the_same_kind_may_stop_them() {
        let members = "users = [\"alice\"], accounts = [\"a\", \"c\"]";
        let gate = |what: &str, words: &str| {
            let other = format!("[[gate]]\nwhat = \"{what}\"\nreservation = [\"x\"]\n{words}\n");
            found(&policy("", "", members, &other))
        };
        assert!(gate("slice", "").is_empty());
        assert!(gate("slice", "exempt_classes = [\"staff\"]").is_empty());
        assert_eq!(gate("whole", "").len(), 1);
        assert_eq!(gate("slice", "exempt_classes = [\"student\"]").len(), 1);
        assert_eq!(gate("slice", "partitions = [\"gpu\"]").len(), 1);
        // Account c meets that one; alice under a third account meets neither.
        let told = gate("slice", "accounts = [\"c\"]").remove(0);
        assert!(
            told.contains("pass it: user alice under another account; leave"),
            "{told}"
        );
        // Both gates are for this one partition.
        let there = "partitions = [\"gpu\"]";
        let other = format!("[[gate]]\nwhat = \"slice\"\nreservation = [\"x\"]\n{there}\n");
        assert!(found(&policy("", there, members, &other)).is_empty());
    }

    #[test]
    fn a_user_without_another_account_does_not_pass() {
        let policy = policy("", "", "users = [\"alice\"], accounts = [\"a\"]", "");
        let mut cluster = cluster();
        let with = |cluster: &mut Cluster, account: &str| {
            let associations = vec![association(account, "Alice", &["normal"])];
            cluster.accounting.as_mut().unwrap().associations = associations;
            codes(&check(&policy, cluster))
        };
        assert!(with(&mut cluster, "A").is_empty());
        assert_eq!(with(&mut cluster, "other"), ["GATE_CLASS"]);
    }
}
