//! The users, accounts and GRES that the policy names, against those that Slurm knows.

use crate::site::check::facts::{Accounting, Cluster};
use crate::site::check::finding::{Code, Finding, listed};
use crate::site::check::rules::accounting::has_slurmdbd;
use softmig_policy::Policy;
use softmig_policy::config::reservable::{Holder, Window};

pub(crate) fn check(policy: &Policy, cluster: &Cluster, now: i64) -> Vec<Finding> {
    let mut found = gres(policy, cluster);
    // Otherwise users need not be known to slurmdbd.
    if !knows_all_users(cluster) {
        return found;
    }
    match &cluster.accounting {
        Ok(accounting) => {
            found.extend(gates(policy, accounting));
            found.extend(members(policy, accounting));
            found.extend(holders(policy, accounting, now));
        }
        Err(_) if !names_people(policy) => {}
        // The words are the same as for QOS, so that the finding appears once.
        Err(why) => found.push(Finding::skip("QOS and associations", why)),
    }
    found
}

/// Whether only users and accounts of slurmdbd can submit: the other words of the option contain the first.
pub(crate) fn knows_all_users(cluster: &Cluster) -> bool {
    let words = ["associations", "limits", "qos", "safe", "wckeys", "all"];
    let enforces = |word: &&str| cluster.settings.has("AccountingStorageEnforce", word);
    has_slurmdbd(cluster) && words.iter().any(enforces)
}

fn names_people(policy: &Policy) -> bool {
    policy.names_users() || !policy.accounts().is_empty()
}

/// Each GRES of the policy has to be one of Slurm's.
fn gres(policy: &Policy, cluster: &Cluster) -> Vec<Finding> {
    let gates = policy.gates().iter();
    let found = gates.filter_map(|gate| {
        let name = gate.gres_name()?;
        let mut known = cluster.settings.words("GresTypes");
        (!known.any(|word| word == name)).then(|| {
            Finding::new(
                Code::GateGres,
                format!("[[gate]] for {name}"),
                format!("{name} is not in GresTypes, so no job can request it and this gate has no effect"),
                "correct it in policy.toml: \"slice\", \"whole\", \"mig\", or a GRES of GresTypes letter for letter",
            )
        })
    });
    found.collect()
}

fn is_account(accounting: &Accounting, name: &str) -> bool {
    let mut own = accounting.associations.iter();
    own.any(|own| own.account.eq_ignore_ascii_case(name))
}

fn is_user(accounting: &Accounting, name: &str) -> bool {
    let mut own = accounting.associations.iter();
    own.any(|own| own.user.eq_ignore_ascii_case(name))
}

fn gates(policy: &Policy, accounting: &Accounting) -> Vec<Finding> {
    let found = policy.gates().iter().filter_map(|gate| {
        let accounts = gate.accounts().iter();
        let unknown = listed(accounts.filter(|name| !is_account(accounting, name)))?;
        Some(Finding::new(
            Code::GateAccount,
            format!("[[gate]] for {}", gate.what()),
            format!("account {unknown} does not exist, so this gate has no effect for it"),
            "correct it in policy.toml, or add the account with sacctmgr",
        ))
    });
    found.collect()
}

fn members(policy: &Policy, accounting: &Accounting) -> Vec<Finding> {
    let mut found = Vec::new();
    for standing in policy.standings() {
        let (place, (users, accounts)) = match (&standing.user, &standing.class) {
            (Some(user), _) => (
                format!("[users.{user}]"),
                (std::slice::from_ref(user), &[][..]),
            ),
            (None, Some(class)) => (
                format!("members of [classes.{class}]"),
                policy.members(class),
            ),
            (None, None) => continue,
        };
        let users = listed(users.iter().filter(|name| !is_user(accounting, name)));
        let accounts = listed(accounts.iter().filter(|name| !is_account(accounting, name)));
        for (what, unknown) in [("user", users), ("account", accounts)] {
            found.extend(unknown.map(|names| {
                let what = format!("slurmdbd has no {what} {names}");
                let remedy = "correct it in policy.toml, or add it with sacctmgr";
                Finding::new(Code::ClassMembers, &place, what, remedy)
            }));
        }
    }
    found
}

fn holders(policy: &Policy, accounting: &Accounting, now: i64) -> Vec<Finding> {
    let reservables = policy.reservables().iter();
    let unknown = reservables.filter(|one| {
        let is_known = match one.holder() {
            Holder::User(name) => is_user(accounting, name),
            Holder::Account(name) => is_account(accounting, name),
        };
        one.window(now) != Window::Over && !is_known
    });
    let found = unknown.map(|one| {
        let holder = one.holder().called();
        Finding::new(
            Code::ReservableHolder,
            format!("[[reservable]] {}", one.kind()),
            format!("its holder, {holder}, is not in slurmdbd, so the GPU is reserved and no job can use it"),
            "correct it in policy.toml, or add the holder with sacctmgr",
        )
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::rules::example::{KEPT, cluster, codes, policy_with};

    fn found(more: &str) -> Vec<Finding> {
        check(&policy_with(more), &cluster(), 60)
    }

    #[test]
    fn gates_are_for_accounts_and_gres_that_exist() {
        let gate = |what: &str, accounts: &str| {
            found(&format!(
                "[[gate]]\nwhat = \"{what}\"\nreservation = [\"course\"]\naccounts = [{accounts}]\n"
            ))
        };
        assert!(gate("slice", "\"teaching\"").is_empty());
        assert!(gate("slice", "\"Teaching\"").is_empty());
        let unknown = gate("slice", "\"teaching\", \"teachings\"").remove(0);
        assert_eq!(
            unknown.to_string(),
            "ERROR GATE_ACCOUNT [[gate]] for slice: account teachings does not exist, so this gate has no effect for it; \
             correct it in policy.toml, or add the account with sacctmgr"
        );
        assert_eq!(codes(&gate("fpga", "\"teaching\"")), ["GATE_GRES"]);
        let mut with_fpga = cluster();
        with_fpga.settings.set("GresTypes", "gpu,shard,fpga");
        let fpga = policy_with("[[gate]]\nwhat = \"fpga\"\nreservation = [\"course\"]\n");
        assert!(check(&fpga, &with_fpga, 60).is_empty());
        let other_case = policy_with("[[gate]]\nwhat = \"Fpga\"\nreservation = [\"course\"]\n");
        assert_eq!(codes(&check(&other_case, &with_fpga, 60)), ["GATE_GRES"]);
    }

    const NOBODY_LIMITED: &str = "[defaults]\nshards = \"unlimited\"\nwhole_gpus = \"unlimited\"\n";

    #[test]
    fn members_are_users_and_accounts_of_slurmdbd() {
        let class = |members: &str| {
            found(&format!(
                "{NOBODY_LIMITED}[classes.student]\nmembers = {{ {members} }}\n"
            ))
        };
        assert!(class("users = [\"alice\"], accounts = [\"teaching\", \"ROOT\"]").is_empty());
        let unknown = class("users = [\"alice\", \"alcie\"], accounts = [\"lab\"]");
        assert_eq!(codes(&unknown), ["CLASS_MEMBERS", "CLASS_MEMBERS"]);
        assert_eq!(unknown[0].place, "members of [classes.student]");
        assert_eq!(unknown[0].what, "slurmdbd has no user alcie");
        assert_eq!(unknown[1].what, "slurmdbd has no account lab");
        let many = class("users = [\"a\", \"b\", \"c\", \"d\", \"e\", \"f\", \"g\"]").remove(0);
        assert_eq!(many.what, "slurmdbd has no user a, b, c, d, e and 2 others");
        let single = found(&format!("{NOBODY_LIMITED}[users.carol]\nshards = 1\n")).remove(0);
        assert_eq!(single.place, "[users.carol]");
    }

    #[test]
    fn a_kept_gpu_is_kept_for_a_user() {
        assert!(found(KEPT).is_empty());
        let for_nobody = policy_with(&KEPT.replace("alice", "alcie"));
        assert_eq!(
            codes(&check(&for_nobody, &cluster(), 60)),
            ["RESERVABLE_HOLDER"]
        );
        // Another rule says that its time is over.
        assert!(check(&for_nobody, &cluster(), 120).is_empty());
    }

    #[test]
    fn where_all_may_submit_slurmdbd_need_not_know_them() {
        let names = policy_with(&KEPT.replace("alice", "alcie"));
        let mut cluster = cluster();
        cluster.accounting = Err("slurmdbd did not say".into());
        assert_eq!(codes(&check(&names, &cluster, 60)), ["NOT_LOOKED_AT"]);
        assert!(check(&policy_with(""), &cluster, 60).is_empty());
        cluster.settings.set("AccountingStorageEnforce", "");
        assert!(check(&names, &cluster, 60).is_empty());
    }
}
