//! The purpose of a type of GPUs.

use softmig_policy::Policy;

/// The purpose of a type of GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Slices and whole GPUs.
    Shared,
    /// Whole GPUs only.
    Whole,
    /// An instance of MIG that is had whole.
    Mig,
    /// Kept for these users or accounts.
    Reserved(String),
}

impl Purpose {
    /// Of a type with this many shards. Without a policy a MIG instance is known by the name that NVIDIA gives it.
    pub(crate) fn of_type(policy: Option<&Policy>, kind: &str, shards: u64, now: i64) -> Self {
        let reserved = policy.and_then(|policy| {
            let mut own = policy.reservables().iter().filter(|own| own.kind() == kind);
            own.find(|_| policy.is_reserved(kind, now))
        });
        if let Some(reserved) = reserved {
            return Self::Reserved(reserved.holder().called());
        }
        let gpu = policy.and_then(|policy| policy.gpu(kind));
        let is_mig = match (policy, gpu) {
            (_, Some(gpu)) => gpu.is_mig(),
            (Some(_), None) => false,
            (None, None) => has_profile(kind),
        };
        match (shards, gpu) {
            (2.., Some(gpu)) if gpu.slices().is_empty() => Self::Whole,
            (2.., _) => Self::Shared,
            _ if is_mig => Self::Mig,
            _ => Self::Whole,
        }
    }
}

/// Whether a type's name has a profile of MIG in it, such as `1g.10gb`.
fn has_profile(kind: &str) -> bool {
    kind.split(['_', '-']).any(|word| {
        let Some((slices, memory)) = word.split_once("g.") else {
            return false;
        };
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let memory = memory.split("gb").next();
        is_number(slices) && memory.is_some_and(is_number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_type_is_for_is_known_with_and_without_a_policy() {
        let policy = Policy::parse(
            "plain_types = [\"v100\"]\n\
             [gpu.l40s]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 4\n\
             [gpu.m]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 1\nmig = true\n\
             [[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\nuser = \"carol\"\nreason = \"x\"\n\
             start = 1970-01-01T00:01:00Z\nend = 1970-01-01T00:02:00Z\n",
        )
        .unwrap();
        let of = |kind: &str, shards| Purpose::of_type(Some(&policy), kind, shards, 60);
        assert_eq!(of("l40s", 4), Purpose::Shared);
        assert_eq!(of("l40s_r", 1), Purpose::Reserved("user carol".into()));
        assert_eq!(of("m", 1), Purpose::Mig);
        assert_eq!(of("v100", 0), Purpose::Whole);
        assert_eq!(
            Purpose::of_type(Some(&policy), "l40s_r", 1, 200),
            Purpose::Whole
        );
        let of = |kind: &str, shards| Purpose::of_type(None, kind, shards, 60);
        assert_eq!(of("l40s", 4), Purpose::Shared);
        for mig in ["h100_1g.10gb", "1g.10gb", "1g.10gb+me"] {
            assert_eq!(of(mig, 1), Purpose::Mig, "{mig}");
        }
        for whole in ["l40s", "a100-80gb", "g.1gb", "1g.gb"] {
            assert_eq!(of(whole, 1), Purpose::Whole, "{whole}");
        }
    }
}
