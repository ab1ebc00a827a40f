//! The answers by account, where the account is not known.

use softmig_policy::{MaybeKnown, Policy, Submitter, Verdict};

/// An answer, and the accounts that get it.
pub(super) struct Case {
    /// The accounts that the policy names.
    pub(super) accounts: Vec<String>,
    /// Whether it is also that of every account which it does not name.
    pub(super) any_other: bool,
    /// Their answer.
    pub(super) verdict: Verdict,
}

impl Case {
    /// The answer for every account.
    pub(super) fn every(verdict: Verdict) -> Self {
        Self {
            accounts: Vec::new(),
            any_other: true,
            verdict,
        }
    }
}

/// The answer to a user with each account that the policy names, and with any other; the same answer once.
pub(super) fn by_account(
    policy: &Policy,
    submitter: &Submitter,
    decide: impl Fn(Submitter) -> Verdict,
) -> Vec<Case> {
    let with = |account: MaybeKnown| {
        decide(Submitter {
            account,
            ..submitter.clone()
        })
    };
    let mut cases: Vec<Case> = Vec::new();
    for name in policy.accounts() {
        let verdict = with(MaybeKnown::Is(name.to_string()));
        match cases.iter_mut().find(|case| case.verdict == verdict) {
            Some(case) => case.accounts.push(name.to_string()),
            None => cases.push(Case {
                accounts: vec![name.to_string()],
                any_other: false,
                verdict,
            }),
        }
    }
    let verdict = with(MaybeKnown::Missing);
    match cases.iter_mut().find(|case| case.verdict == verdict) {
        Some(case) => case.any_other = true,
        None => cases.push(Case::every(verdict)),
    }
    cases
}
