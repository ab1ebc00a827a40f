//! cgroup.conf: the example that softmig comes with, since nothing in it hangs on the policy, and what a release needs
//! beside it.

use super::text::Generated;
use softmig_policy::slurm::release::SlurmVersion;

/// Names of control groups as earlier releases have them.
const JOB_ID_PATHS: &str = "
# Job 7's control group is called job_7, as in earlier releases, and not by its SLUID. Other tools on the nodes may look for
# that, and jobs from before an upgrade keep their limits.
";

pub(super) fn make(version: SlurmVersion) -> Generated {
    let mut text = include_str!("../../../../conf/cgroup.conf").to_string();
    if version.knows_job_id_paths() {
        text.push_str(JOB_ID_PATHS);
        text.push_str("CgroupJobIdPaths=yes\n");
    } else if version.names_cgroups_by_sluid() {
        let first = SlurmVersion::KNOWS_JOB_ID_PATHS;
        text.push_str(JOB_ID_PATHS);
        text.push_str(&format!(
            "# Slurm {first} or later has the setting; with an older one, slurmd does not start with it.\n\
             # CgroupJobIdPaths=yes\n"
        ));
    }
    Generated {
        name: "cgroup.conf",
        text,
        program: false,
    }
}
