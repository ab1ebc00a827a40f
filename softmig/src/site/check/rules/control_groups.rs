//! Settings of slurm.conf and cgroup.conf that keep jobs apart.

use crate::site::check::facts::{Cluster, Settings};
use crate::site::check::finding::{Code, Finding};
use softmig_policy::slurm::release::SlurmVersion;

pub(crate) fn check(cluster: &Cluster, found: &mut Vec<Finding>) {
    let settings = &cluster.settings;
    if settings.get("ProctrackType") != "proctrack/cgroup" {
        found.push(Finding::new(
            Code::Proctrack,
            "ProctrackType",
            format!(
                "with {} jobs have no control groups, and the library knows no job, unless node.conf says \
                 SOFTMIG_IDENTITY=env, which a job can change",
                match settings.get("ProctrackType") {
                    "" => "nothing said",
                    other => other,
                }
            ),
            "write ProctrackType=proctrack/cgroup and TaskPlugin=task/cgroup",
        ));
    }
    const FENCE: &str = "jobs see all GPUs on the node, so a slice's limits would apply to whichever GPU the program opens";
    if !settings
        .words("TaskPlugin")
        .any(|word| word.ends_with("cgroup"))
    {
        found.push(Finding::new(
            Code::ConstrainDevices,
            "TaskPlugin",
            format!("without task/cgroup ConstrainDevices does nothing: {FENCE}"),
            "add task/cgroup",
        ));
    }
    match &cluster.cgroup {
        Err(why) => found.push(Finding::skip("cgroup.conf", why)),
        Ok(cgroup) => {
            if !cgroup.is_yes("ConstrainDevices") {
                found.push(Finding::new(
                    Code::ConstrainDevices,
                    "cgroup.conf",
                    format!("ConstrainDevices is off: {FENCE}"),
                    "write ConstrainDevices=yes",
                ));
            }
            found.extend(sluid(cluster, cgroup));
        }
    }
}

/// Control groups whose names are not jobs' numbers. Only groups of version 2 can have other names.
fn sluid(cluster: &Cluster, cgroup: &Settings) -> Option<Finding> {
    let version = cluster.version?;
    let is_v2 = match cgroup.get("CgroupPlugin").to_ascii_lowercase().as_str() {
        "" | "autodetect" => !cluster.has_cgroup_v1,
        plugin => plugin.ends_with("/v2"),
    };
    if !is_v2 || !version.names_cgroups_by_sluid() || cgroup.is_yes("CgroupJobIdPaths") {
        return None;
    }
    let first = SlurmVersion::KNOWS_JOB_ID_PATHS;
    Some(Finding::new(
        Code::CgroupSluid,
        "cgroup.conf",
        "this release names jobs' control groups by SLUID; softmig knows them by a second name of a job's limits, other \
         tools on the nodes may not. The limits of a job that began before Slurm was upgraded have no such name",
        if version.knows_job_id_paths() {
            "write CgroupJobIdPaths=yes to have jobs' numbers".to_string()
        } else {
            format!(
                "with Slurm {first} or later write CgroupJobIdPaths=yes to have jobs' numbers; {version} does not start \
                 with that line"
            )
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::rules::example::{cluster, codes};

    fn findings(change: impl Fn(&mut Cluster)) -> Vec<Finding> {
        let mut cluster = cluster();
        change(&mut cluster);
        let mut found = Vec::new();
        check(&cluster, &mut found);
        found
    }

    fn found(change: impl Fn(&mut Cluster)) -> Vec<&'static str> {
        codes(&findings(change))
    }

    #[test]
    fn devices_have_to_be_fenced() {
        let off = found(|cluster| {
            cluster.cgroup = Ok([("ConstrainDevices", "no")].into_iter().collect())
        });
        assert_eq!(off, ["CONSTRAIN_DEVICES"]);
        let unseen = found(|cluster| cluster.cgroup = Err("no such file".into()));
        assert_eq!(unseen, ["NOT_LOOKED_AT"]);
    }

    #[test]
    fn sluids_are_warned_of() {
        let with = |version: &'static str, key: &'static str, value: &'static str| {
            move |cluster: &mut Cluster| {
                cluster.version = version.parse().ok();
                let pairs = [("ConstrainDevices", "yes"), (key, value)];
                cluster.cgroup = Ok(pairs.into_iter().collect());
            }
        };
        for plugin in ["", "autodetect", "cgroup/v2"] {
            let v2 = with("26.05.5", "CgroupPlugin", plugin);
            assert_eq!(found(v2), ["CGROUP_SLUID"], "{plugin}");
        }
        assert!(found(with("25.11.9", "CgroupPlugin", "")).is_empty());
        assert!(found(with("26.05.5", "CgroupJobIdPaths", "yes")).is_empty());
        // Groups of version 1 are named by jobs' numbers in any release.
        assert!(found(with("26.05.5", "CgroupPlugin", "cgroup/v1")).is_empty());
        assert!(found(with("26.05.5", "CgroupPlugin", "disabled")).is_empty());
        let v1 = found(|cluster| {
            cluster.version = "26.05.5".parse().ok();
            cluster.has_cgroup_v1 = true;
        });
        assert!(v1.is_empty());
    }

    #[test]
    fn a_word_that_a_release_does_not_know_is_not_proposed_to_it() {
        for (version, remedy) in [
            ("26.05.5", "write CgroupJobIdPaths=yes to"),
            (
                "26.05.1",
                "with Slurm 26.05.2 or later write CgroupJobIdPaths=yes",
            ),
        ] {
            let found = findings(|cluster| cluster.version = version.parse().ok());
            assert!(found[0].remedy.starts_with(remedy), "{:?}", found[0]);
        }
    }
}
