//! slurm.conf and cgroup.conf against the settings that `softmig config` makes.

use crate::settings::slurm_conf;
use crate::site::check::facts::{Cluster, Settings};
use crate::site::check::finding::{Code, Finding};
use crate::site::check::rules::accounting::is_weighed;
use crate::site::check::rules::slices::shares;
use softmig_policy::Policy;
use softmig_policy::config::choices::{Placement, TagField};
use softmig_policy::slurm::conf::parses_extra;
use softmig_policy::slurm::release::SlurmVersion;

/// The settings of `softmig config` that are compared as they are: the key, the code of a missing word, and what goes wrong
/// without it. Without the first of the accounting ones the others do not matter.
const NEEDED: [(&str, Code, &str); 13] = rows! {
    "SelectType", SelectType, "Slurm does not count shards";
    "GresTypes", GresTypes, "Slurm does not know all GRES of its nodes";
    PARAMETERS, Placement, "Slurm packs, and policy.toml has shards = \"spread\" in [placement]";
    "PrologFlags", PrologFlags,
        "the prolog runs at a job's first step only, and a job without one has no limits on its node";
    "JobSubmitPlugins", JobSubmit, "nothing decides on requests for slices, and no class is held to its limits";
    "CliFilterPlugins", CliFilter, "srun cannot ask for a slice";
    "ProctrackType", Proctrack,
        "jobs have no control groups, and the library knows no job, unless node.conf says SOFTMIG_IDENTITY=env, which a job \
         can change";
    "TaskPlugin", ConstrainDevices,
        "ConstrainDevices does nothing: jobs see all GPUs on the node, so a slice's limits would apply to whichever GPU the \
         program opens";
    "AccountingStorageType", Accounting, "Slurm enforces none of the limits for users in policy.toml: that takes slurmdbd";
    "AccountingStorageTRES", AccountingTres,
        "Slurm does not count all that limits are on; slurmctld takes this list when it starts";
    "AccountingStorageEnforce", AccountingEnforce, "Slurm enforces none of the limits in policy.toml";
    "PriorityType", PriorityUnused, UNHEEDED;
    "PriorityWeightQOS", PriorityUnused, UNHEEDED;
};
const PARAMETERS: &str = "SelectTypeParameters";
const UNHEEDED: &str = "Slurm does not heed the priorities of QOS, and policy.toml has some";

/// Flags that make the prolog run at a job's allocation.
const AT_ALLOCATION: [&str; 7] = [
    "Alloc",
    "Contain",
    "X11",
    "NoHold",
    "DeferBatch",
    "RunInJob",
    "ForceRequeueOnFail",
];

pub(crate) fn check(policy: &Policy, cluster: &Cluster) -> Vec<Finding> {
    let mut found = Vec::new();
    needed(policy, cluster, &mut found);
    unwanted(policy, cluster, &mut found);
    programs(cluster, &mut found);
    match &cluster.cgroup {
        Err(why) => found.push(Finding::skip("cgroup.conf", why)),
        Ok(cgroup) => cgroup_conf(cluster, cgroup, &mut found),
    }
    tag(policy, cluster, &mut found);
    found
}

fn needed(policy: &Policy, cluster: &Cluster, found: &mut Vec<Finding>) {
    let settings = &cluster.settings;
    let version = cluster.version.unwrap_or(SlurmVersion::NEWEST);
    let wanted = slurm_conf::for_policy(policy, version);
    for (key, code, why) in NEEDED {
        let Some((_, words)) = wanted.iter().find(|(own, _)| *own == key) else {
            continue;
        };
        let counted = words
            .iter()
            .map(String::as_str)
            .filter(|word| counts(key, word));
        let serves = |word: &&str| settings.words(key).any(|own| serves(key, own, word));
        let missing: Vec<&str> = counted.filter(|word| !serves(word)).collect();
        let by_default = code == Code::SelectType
            && settings.get(key).is_empty()
            && version.counts_shards_by_default();
        let is_for_slices = matches!(code, Code::SelectType | Code::GresTypes | Code::Placement);
        if missing.is_empty() || by_default || (is_for_slices && !shares(policy)) {
            continue;
        }
        let one = words.join(",");
        let is_list = !key.ends_with("Type") && code != Code::PriorityUnused;
        let missing = missing.join(",");
        let (what, remedy) = match settings.get(key) {
            "" => (
                format!("it is not set, so {why}"),
                format!("write {key}={one}"),
            ),
            _ if is_list => (format!("without {missing} {why}"), format!("add {missing}")),
            own => (format!("with {own} {why}"), format!("write {key}={one}")),
        };
        found.push(Finding::new(code, key, what, in_full(key, remedy)));
        if code == Code::Accounting {
            break;
        }
    }
    if policy.mps().is_some() && !settings.has("GresTypes", "mps") {
        found.push(Finding::new(
            Code::LegacyMps,
            "GresTypes",
            "[legacy.mps] translates --gres=mps:N, and clients refuse that without cli_filter before anything is sent",
            "add mps to GresTypes; no node gets any",
        ));
    }
    let old = cluster.version.filter(|own| !own.spreads_shards());
    if let Some(version) = old
        && shares(policy)
        && policy.placement == Placement::Spread
    {
        let what = format!(
            "shards = \"spread\", and Slurm {version} always fills a node's first GPU first"
        );
        let first = SlurmVersion::SPREADS_SHARDS;
        let remedy = format!("write \"pack\", or update Slurm to {first} or later");
        let place = "[placement] in policy.toml";
        found.push(Finding::new(
            Code::PlacementAlwaysPacks,
            place,
            what,
            remedy,
        ));
    }
}

/// A remedy with what comes before it, or serves as well.
fn in_full(key: &str, remedy: String) -> String {
    const COPY: &str = "copy /usr/share/softmig/examples";
    match key {
        // Without its script slurmctld does not start.
        "JobSubmitPlugins" => {
            format!("{COPY}/job_submit.lua beside slurm.conf, then {remedy}")
        }
        // Without its script sbatch, salloc and srun refuse all jobs.
        "CliFilterPlugins" => {
            format!("{COPY}/cli_filter.lua beside slurm.conf, then {remedy}")
        }
        "PrologFlags" => {
            format!("{remedy} (or Alloc, where ProctrackType is not proctrack/cgroup)")
        }
        _ => remedy,
    }
}

/// Whether a word of `softmig config` has to be there: how CPUs are shared out is the site's, and mps has its own finding.
fn counts(key: &str, word: &str) -> bool {
    !(word == "mps" || (key == PARAMETERS && word.starts_with("CR_")))
}

/// Whether a word of Slurm's does what a wanted one does.
fn serves(key: &str, own: &str, wanted: &str) -> bool {
    let is = |word: &str| own.eq_ignore_ascii_case(word);
    match key {
        "PrologFlags" => AT_ALLOCATION.into_iter().any(is),
        "PriorityWeightQOS" => own != "0",
        "AccountingStorageEnforce" => {
            is("all")
                || is(wanted)
                || wanted == "associations"
                || (wanted == "limits" && is("safe"))
        }
        // A plugin may be named with its kind: task/cgroup.
        _ => {
            own.rsplit('/').next().map(str::to_ascii_lowercase)
                == wanted.rsplit('/').next().map(str::to_ascii_lowercase)
        }
    }
}

/// Words that do harm.
fn unwanted(policy: &Policy, cluster: &Cluster, found: &mut Vec<Finding>) {
    let settings = &cluster.settings;
    let metrics = &policy.node().metrics;
    let spreads = cluster.version.is_none_or(SlurmVersion::spreads_shards);
    let packs = spreads && policy.placement == Placement::Pack;
    // The second is the name since 25.11.
    let containers = ["JobContainerType", "NamespaceType"].map(|key| settings.get(key));
    let is_private = |plugin: &&str| plugin.ends_with("/tmpfs") || plugin.ends_with("/linux");
    for (applies, code, key, word, why, remedy) in rows! {
        shares(policy), MultipleSharingGresPj, PARAMETERS, "MULTIPLE_SHARING_GRES_PJ",
            "a slice is spread over several GPUs, and has less than it was promised", "take it out";
        shares(policy) && !spreads, LlSharedGresTooOld, PARAMETERS, "LL_SHARED_GRES",
            "this slurmctld does not start: only Slurm 23.11 and later know it", "take it out; this release always packs";
        shares(policy) && packs, Placement, PARAMETERS, "LL_SHARED_GRES",
            "Slurm spreads, so that jobs on whole GPUs may wait long, and policy.toml has shards = \"pack\" in [placement]",
            "take it out, or write \"spread\"";
        is_weighed(policy), BillingMaxTres, "PriorityFlags", "MAX_TRES",
            "a job's billing is not the sum of what it has, and limits on shards do not hold", "take it out";
        policy.node().tag_field == TagField::Extra, TagField, "SchedulerParameters", "extra_constraints",
            "Slurm reads extra as an expression and refuses the job, and policy.toml has field = \"extra\" in [tag]", TAG_REMEDY;
        metrics.textfile.is_some() || metrics.exporters.is_some(), PrivateData, "PrivateData", "jobs",
            "other users' jobs are hidden, and [metrics] of policy.toml tells all users of them",
            "take textfile and exporters out of [metrics], and have Prometheus ask softmig-exporter with --tls-client-ca";
        containers.iter().any(is_private), PrologRunInJob, "PrologFlags", "RunInJob",
            "the prolog comes after the mounts that the job has of its own, and slices have no GPU unless the plugin's own file \
             says that mounts are shared",
            "take it out, or look for Shared=true in job_container.conf, or for shared: true in namespace.yaml";
    } {
        if applies && settings.has(key, word) {
            let what = format!("with {word} {why}");
            found.push(Finding::new(code, key, what, remedy));
        }
    }
}

/// The programs at each job's start and end.
fn programs(cluster: &Cluster, found: &mut Vec<Finding>) {
    for (code, key, own) in [
        (Code::Prolog, "Prolog", "softmig-prolog"),
        (Code::Epilog, "Epilog", "softmig-epilog"),
    ] {
        let words: Vec<&str> = cluster.settings.words(key).collect();
        let texts: Vec<Option<&String>> = words
            .iter()
            .map(|word| cluster.own_scripts.get(*word))
            .collect();
        if words.iter().any(|word| word.ends_with(&format!("/{own}")))
            || texts.iter().flatten().any(|text| text.contains(own))
        {
            continue;
        }
        let place = format!("{key}={}", words.join(","));
        let remedy =
            format!("write {key}=/usr/libexec/{own}, or let the script of yours run it as root");
        found.push(if texts.iter().all(Option::is_some) {
            Finding::new(code, place, format!("it does not run {own}"), remedy)
        } else {
            let why = format!("it cannot be read here, so it is unknown whether it runs {own}");
            Finding::skip(place, why)
        });
    }
}

fn cgroup_conf(cluster: &Cluster, cgroup: &Settings, found: &mut Vec<Finding>) {
    const PLACE: &str = "cgroup.conf";
    for (is_so, code, what, remedy) in rows! {
        !cgroup.is_yes("ConstrainDevices"), ConstrainDevices,
            "ConstrainDevices is off: jobs see all GPUs on the node, so a slice's limits would apply to whichever GPU the program \
             opens",
            "write ConstrainDevices=yes";
        cgroup.is_yes("ConstrainDeviceMemory"), ConstrainDeviceMemory,
            "ConstrainDeviceMemory=yes (Slurm 26.11): where the driver takes part, the kernel also holds jobs with shards, to \
             their part of all of a GPU's memory; a slice is smaller by its part of reserved_mib, and the smaller one counts",
            "";
    } {
        if is_so {
            found.push(Finding::new(code, PLACE, what, remedy));
        }
    }
    // Only groups of version 2 can have names that are not jobs' numbers.
    let is_v2 = match cgroup.get("CgroupPlugin").to_ascii_lowercase().as_str() {
        "" | "autodetect" => !cluster.has_cgroup_v1,
        plugin => plugin.ends_with("/v2"),
    };
    let by_sluid = cluster.version.filter(|own| own.names_cgroups_by_sluid());
    if let Some(version) = by_sluid
        && is_v2
        && !cgroup.is_yes("CgroupJobIdPaths")
    {
        let first = SlurmVersion::KNOWS_JOB_ID_PATHS;
        found.push(Finding::new(
            Code::CgroupSluid,
            PLACE,
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
        ));
    }
}

const TAG_REMEDY: &str =
    "write field = \"comment\" in [tag] of policy.toml, or take extra_constraints out";

/// The field of a job that carries its limits.
fn tag(policy: &Policy, cluster: &Cluster, found: &mut Vec<Finding>) {
    let old = cluster.version.filter(|own| !own.passes_extra_to_prolog());
    let is_parsed = cluster
        .settings
        .has("SchedulerParameters", "extra_constraints");
    match (policy.node().tag_field, old) {
        (TagField::Extra, Some(version)) => found.push(Finding::new(
            Code::TagField,
            "[tag] in policy.toml",
            format!("field = \"extra\", and in Slurm {version} that does not reach the prolog"),
            "write field = \"comment\" or \"auto\"",
        )),
        // The modules also look for the setting, but only in slurm.conf itself.
        (TagField::Auto, None) if is_parsed => match &cluster.slurm_conf {
            Ok(text) if parses_extra(text) => {}
            Ok(_) => found.push(Finding::new(
                Code::TagField,
                "SchedulerParameters",
                "extra_constraints is set in a file that slurm.conf includes, and softmig's modules read slurm.conf alone: \
                 they would put limits into extra, which Slurm then reads as an expression",
                TAG_REMEDY,
            )),
            Err(why) => found.push(Finding::skip("slurm.conf", why)),
        },
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::rules::example::{LIMITS, cluster, codes, limited, policy_with};

    /// With these lines in the policy.
    fn found(more: &str, change: impl Fn(&mut Cluster)) -> Vec<&'static str> {
        let mut cluster = limited();
        change(&mut cluster);
        codes(&check(&policy_with(more), &cluster))
    }

    #[test]
    fn settings_that_serve_as_well_are_clean() {
        for (key, value) in [
            ("SelectType", ""),
            ("PrologFlags", "x11"),
            ("JobSubmitPlugins", "defaults,job_submit/lua"),
            ("AccountingStorageEnforce", "safe,qos"),
            ("AccountingStorageEnforce", "all"),
            ("PriorityWeightQOS", "1"),
            ("PriorityFlags", "MAX_TRES_GRES"),
            ("PrivateData", "jobs"),
            ("JobContainerType", "job_container/tmpfs"),
        ] {
            let found = found(LIMITS, |cluster| cluster.settings.set(key, value));
            assert!(found.is_empty(), "{key}={value}: {found:?}");
        }
    }

    #[test]
    fn each_word_that_is_missing_has_its_code() {
        for (key, value, code) in [
            ("GresTypes", "gpu", "GRES_TYPES"),
            ("AccountingStorageEnforce", "none", "ACCOUNTING_ENFORCE"),
            (
                "AccountingStorageEnforce",
                "associations,limits",
                "ACCOUNTING_ENFORCE",
            ),
            ("AccountingStorageEnforce", "qos", "ACCOUNTING_ENFORCE"),
            ("AccountingStorageType", "", "ACCOUNTING"),
            ("PriorityType", "priority/basic", "PRIORITY_UNUSED"),
        ] {
            let found = found(LIMITS, |cluster| cluster.settings.set(key, value));
            assert_eq!(found, [code], "{key}={value}");
        }
    }

    #[test]
    fn what_a_policy_does_not_have_needs_no_setting() {
        let mut cluster = cluster();
        for key in ["SelectType", "GresTypes", "AccountingStorageType"] {
            cluster.settings.set(key, "");
        }
        assert!(check(&Policy::parse("").unwrap(), &cluster).is_empty());
    }

    #[test]
    fn a_release_before_23_11_cannot_spread() {
        const SPREAD: &str = "[placement]\nshards = \"spread\"\n";
        let with = |version: &'static str, more: &str, parameters: &'static str| {
            found(more, |cluster| {
                cluster.version = version.parse().ok();
                cluster.settings.set("SelectTypeParameters", parameters);
            })
        };
        let spreads = "CR_Core,LL_SHARED_GRES";
        assert_eq!(with("22.05", "", spreads), ["LL_SHARED_GRES_TOO_OLD"]);
        assert_eq!(with("22.05", SPREAD, "CR_Core"), ["PLACEMENT_ALWAYS_PACKS"]);
        assert_eq!(with("23.11", SPREAD, "CR_Core"), ["PLACEMENT"]);
        assert!(with("23.11", SPREAD, spreads).is_empty());
    }

    #[test]
    fn a_prolog_of_the_sites_own_may_run_softmigs() {
        let found = found("", |cluster| {
            cluster.settings.set("Prolog", "/etc/slurm/prolog.sh");
            let text = "#!/bin/sh\n/usr/libexec/softmig-prolog || exit 1\n";
            let texts = &mut cluster.own_scripts;
            texts.insert("/etc/slurm/prolog.sh".into(), text.into());
        });
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_tag_does_not_travel_where_slurm_reads_it_as_an_expression() {
        let with = |more: &str, text: &'static str| {
            found(more, |cluster| {
                cluster
                    .settings
                    .set("SchedulerParameters", "extra_constraints");
                cluster.slurm_conf = Ok(text.into());
            })
        };
        assert!(with("", "SchedulerParameters=extra_constraints\n").is_empty());
        assert_eq!(with("", "Include more.conf\n"), ["TAG_FIELD"]);
        let extra = "[tag]\nfield = \"extra\"\n";
        assert_eq!(with(extra, ""), ["TAG_FIELD"]);
        assert!(found(extra, |_| {}).is_empty());
    }

    #[test]
    fn sluids_are_names_of_version_2_alone() {
        let with = |version: &'static str, key: &'static str, value: &'static str| {
            found("", move |cluster| {
                cluster.version = version.parse().ok();
                let pairs = [("ConstrainDevices", "yes"), (key, value)];
                cluster.cgroup = Ok(pairs.into_iter().collect());
            })
        };
        for plugin in ["autodetect", "cgroup/v2"] {
            assert_eq!(with("26.05.5", "CgroupPlugin", plugin), ["CGROUP_SLUID"]);
        }
        assert!(with("25.11.9", "CgroupPlugin", "").is_empty());
        assert!(with("26.05.5", "CgroupJobIdPaths", "yes").is_empty());
        assert!(with("26.05.5", "CgroupPlugin", "cgroup/v1").is_empty());
        let v1 = found("", |cluster| {
            cluster.version = "26.05.5".parse().ok();
            cluster.has_cgroup_v1 = true;
        });
        assert!(v1.is_empty());
    }
}
