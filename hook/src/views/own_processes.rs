//! The processes that a program may see: those of its own job.
//!
//! - In a job: those of that job.
//! - Under limits that the user set: the processes of the same `softmig run`, known by a variable. Without it, only
//!   itself.
//! - Outside every job, with the limits of the jobs on its GPUs: only itself.
//!
//! NVML's process numbers are those of the caller's own namespace.

use softmig_policy::node::identity::ProcessRules;
use softmig_policy::node::process_group::Group;

use crate::identity::gate;
use crate::identity::host::ThisNode;
use crate::os;

/// The processes that are shown: this one, and those of its group.
pub(super) struct OwnProcesses {
    us: u32,
    group: Group,
}

impl OwnProcesses {
    /// As seen from this process.
    pub(super) fn of_this_process() -> Self {
        let group = gate::with_finding(|finding| match finding.standing {
            ProcessRules::Job(_) => Group::of_job(finding.job),
            ProcessRules::Own(_) => Group::of_run(&ThisNode).unwrap_or(Group::None),
            ProcessRules::Neighbours | ProcessRules::Passive | ProcessRules::Denied(_) => {
                Group::None
            }
        });
        Self {
            us: os::process_id(),
            group,
        }
    }

    /// Whether a program may see this process.
    pub(super) fn has(&self, pid: u32) -> bool {
        pid == self.us || self.group.has(&ThisNode, pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_group_a_process_sees_itself_alone() {
        let own = OwnProcesses {
            us: os::process_id(),
            group: Group::None,
        };
        assert!(own.has(os::process_id()));
        assert!(!own.has(1) && !own.has(0) && !own.has(u32::MAX));
    }
}
