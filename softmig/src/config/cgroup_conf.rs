//! cgroup.conf: the example that softmig comes with, since nothing in it hangs on the policy.

use super::text::Generated;

pub(super) fn make() -> Generated {
    Generated {
        name: "cgroup.conf",
        text: include_str!("../../../conf/cgroup.conf").to_string(),
        program: false,
    }
}
