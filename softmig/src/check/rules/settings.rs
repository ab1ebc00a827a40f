//! slurm.conf and cgroup.conf: what slices need of them.

use crate::check::facts::Cluster;
use crate::check::finding::{Code, Finding};
use crate::check::rules::slices::shares;
use softmig_policy::Policy;
use softmig_policy::config::choices::{Placement, TagField};
use softmig_policy::slurm::conf::parses_extra;
use softmig_policy::slurm::release::SlurmVersion;

const SPREADS: SlurmVersion = SlurmVersion::SPREADS_SHARDS;

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
    if shares(policy) {
        selection(policy, cluster, &mut found);
    }
    programs(cluster, &mut found);
    plugins(cluster, &mut found);
    control_groups(cluster, &mut found);
    tag(policy, cluster, &mut found);
    if policy.mps().is_some() && !cluster.settings.has("GresTypes", "mps") {
        found.push(Finding::new(
            Code::LegacyMps,
            "GresTypes",
            "[legacy.mps] translates --gres=mps:N, and clients refuse that without cli_filter before anything is sent",
            "add mps to GresTypes; no node gets any",
        ));
    }
    found
}

/// How Slurm picks the GPU for a slice.
fn selection(policy: &Policy, cluster: &Cluster, found: &mut Vec<Finding>) {
    const PARAMETERS: &str = "SelectTypeParameters";
    let settings = &cluster.settings;
    let plugin = settings.get("SelectType");
    let by_default = plugin.is_empty()
        && cluster
            .version
            .is_none_or(SlurmVersion::counts_shards_by_default);
    if plugin != "select/cons_tres" && !by_default {
        let what = match plugin {
            "" => "it is not set, and this release does not count shards then".to_string(),
            other => format!("{other} does not count shards"),
        };
        let remedy = "write SelectType=select/cons_tres";
        found.push(Finding::new(Code::SelectType, "SelectType", what, remedy));
    }
    let missing: Vec<&str> = ["gpu", "shard"]
        .into_iter()
        .filter(|name| !settings.has("GresTypes", name))
        .collect();
    if !missing.is_empty() {
        found.push(Finding::new(
            Code::GresTypes,
            "GresTypes",
            format!("it lacks {}", missing.join(" and ")),
            "write GresTypes=gpu,shard",
        ));
    }
    if settings.has(PARAMETERS, "MULTIPLE_SHARING_GRES_PJ") {
        found.push(Finding::new(
            Code::MultipleSharingGresPj,
            PARAMETERS,
            "with MULTIPLE_SHARING_GRES_PJ a slice is spread over several GPUs, and has less than it was promised",
            "take MULTIPLE_SHARING_GRES_PJ out",
        ));
    }
    let spreads = settings.has(PARAMETERS, "LL_SHARED_GRES");
    let old = cluster.version.filter(|own| !own.spreads_shards());
    match (old, policy.placement) {
        (Some(version), _) if spreads => found.push(Finding::new(
            Code::LlSharedGresTooOld,
            PARAMETERS,
            format!("slurmctld {version} does not start with LL_SHARED_GRES, which is for {SPREADS} and later"),
            "take LL_SHARED_GRES out; this release always packs",
        )),
        (Some(version), Placement::Spread) => found.push(Finding::new(
            Code::PlacementAlwaysPacks,
            "[placement] in policy.toml",
            format!("shards = \"spread\", and Slurm {version} always fills a node's first GPU first"),
            format!("write \"pack\", or update Slurm to {SPREADS} or later"),
        )),
        (None, Placement::Spread) if !spreads => found.push(Finding::new(
            Code::Placement,
            PARAMETERS,
            "policy.toml has shards = \"spread\" in [placement], and Slurm packs",
            "add LL_SHARED_GRES",
        )),
        (None, Placement::Pack) if spreads => found.push(Finding::new(
            Code::Placement,
            PARAMETERS,
            "policy.toml has shards = \"pack\" in [placement], and with LL_SHARED_GRES Slurm spreads, so that jobs on whole \
             GPUs may wait long",
            "take LL_SHARED_GRES out, or write \"spread\"",
        )),
        _ => {}
    }
}

/// What runs at each job's start and end.
fn programs(cluster: &Cluster, found: &mut Vec<Finding>) {
    let settings = &cluster.settings;
    for (code, key, own) in [
        (Code::Prolog, "Prolog", "softmig-prolog"),
        (Code::Epilog, "Epilog", "softmig-epilog"),
    ] {
        let remedy =
            format!("write {key}=/usr/libexec/{own}, or let the script of yours run it as root");
        let words: Vec<&str> = settings.words(key).collect();
        let is_own = |word: &&str| word.rsplit('/').next() == Some(own);
        let text = |word: &&str| cluster.own_scripts.get(*word);
        if words.iter().any(is_own) || words.iter().filter_map(text).any(|text| text.contains(own))
        {
            continue;
        }
        let place = match words.as_slice() {
            [] => key.to_string(),
            words => format!("{key}={}", words.join(",")),
        };
        found.push(match words.iter().all(|word| text(word).is_some()) {
            true => Finding::new(
                code,
                place,
                match words.is_empty() {
                    true => format!("it is not set, so {own} never runs"),
                    false => format!("it does not run {own}"),
                },
                remedy,
            ),
            false => Finding::skip(
                place,
                format!("it cannot be read here, so it is unknown whether it runs {own}"),
            ),
        });
    }
    if !AT_ALLOCATION
        .iter()
        .any(|flag| settings.has("PrologFlags", flag))
    {
        found.push(Finding::new(
            Code::PrologFlags,
            "PrologFlags",
            "the prolog runs at a job's first step only, and a job without one has no limits on its node",
            "write PrologFlags=Contain (or Alloc, where ProctrackType is not proctrack/cgroup)",
        ));
    }
    let private = settings.get("JobContainerType").ends_with("tmpfs");
    if private && settings.has("PrologFlags", "RunInJob") {
        found.push(Finding::new(
            Code::PrologRunInJob,
            "PrologFlags",
            "with RunInJob and job_container/tmpfs the prolog comes after the job's own mounts, and slices have no GPU \
             unless job_container.conf says Shared=true",
            "take RunInJob out, or look for Shared=true in job_container.conf",
        ));
    }
}

/// What translates requests.
fn plugins(cluster: &Cluster, found: &mut Vec<Finding>) {
    let loads = |key: &str| {
        let mut words = cluster.settings.words(key);
        words.any(|word| word.rsplit('/').next() == Some("lua"))
    };
    if !loads("JobSubmitPlugins") {
        found.push(Finding::new(
            Code::JobSubmit,
            "JobSubmitPlugins",
            "without lua nothing decides on requests for slices, and no class is held to its limits",
            "write JobSubmitPlugins=lua, and take conf/job_submit.lua",
        ));
    }
    if !loads("CliFilterPlugins") {
        found.push(Finding::new(
            Code::CliFilter,
            "CliFilterPlugins",
            "without lua srun cannot ask for a slice",
            "write CliFilterPlugins=lua, and take conf/cli_filter.lua",
        ));
    }
}

/// What keeps jobs apart.
fn control_groups(cluster: &Cluster, found: &mut Vec<Finding>) {
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
            let sluid = cluster
                .version
                .is_some_and(SlurmVersion::names_cgroups_by_sluid);
            if sluid && !cgroup.is_yes("CgroupJobIdPaths") {
                found.push(Finding::new(
                    Code::CgroupSluid,
                    "cgroup.conf",
                    "this release names jobs' control groups by SLUID; softmig knows them by a second name that its prolog \
                     makes, other tools on the nodes may not",
                    "write CgroupJobIdPaths=yes to have jobs' numbers",
                ));
            }
        }
    }
}

/// Where a job's limits travel.
fn tag(policy: &Policy, cluster: &Cluster, found: &mut Vec<Finding>) {
    const PARAMETERS: &str = "SchedulerParameters";
    const REMEDY: &str =
        "write field = \"comment\" in [tag] of policy.toml, or take extra_constraints out";
    let parsed = cluster.settings.has(PARAMETERS, "extra_constraints");
    let old = cluster.version.filter(|own| !own.passes_extra_to_prolog());
    match policy.node().tag_field {
        TagField::Comment => {}
        TagField::Extra => {
            if let Some(version) = old {
                found.push(Finding::new(
                    Code::TagField,
                    "[tag] in policy.toml",
                    format!("field = \"extra\", and in Slurm {version} that does not reach the prolog"),
                    "write field = \"comment\" or \"auto\"",
                ));
            }
            if parsed {
                found.push(Finding::new(
                    Code::TagField,
                    PARAMETERS,
                    "field = \"extra\" in [tag] of policy.toml, and with extra_constraints Slurm reads extra as an \
                     expression and refuses the job",
                    REMEDY,
                ));
            }
        }
        // The modules look by themselves, at the one file.
        TagField::Auto if parsed && old.is_none() => match &cluster.slurm_conf {
            Ok(text) if parses_extra(text) => {}
            Ok(_) => found.push(Finding::new(
                Code::TagField,
                PARAMETERS,
                "extra_constraints is set in a file that slurm.conf includes, and softmig's modules read slurm.conf alone: \
                 they would put limits into extra, which Slurm then reads as an expression",
                REMEDY,
            )),
            Err(why) => found.push(Finding::skip("slurm.conf", why)),
        },
        TagField::Auto => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::rules::example::{cluster, codes, policy, policy_with};

    fn found(change: impl Fn(&mut Cluster)) -> Vec<&'static str> {
        let mut cluster = cluster();
        change(&mut cluster);
        codes(&check(&policy(), &cluster))
    }

    #[test]
    fn a_right_configuration_is_clean() {
        assert!(found(|_| {}).is_empty());
    }

    #[test]
    fn each_setting_that_slices_need_is_missed() {
        for (key, value, code) in [
            ("SelectType", "select/linear", "SELECT_TYPE"),
            (
                "SelectTypeParameters",
                "CR_Core,MULTIPLE_SHARING_GRES_PJ",
                "MULTIPLE_SHARING_GRES_PJ",
            ),
            (
                "SelectTypeParameters",
                "CR_CORE_MEMORY,LL_SHARED_GRES",
                "PLACEMENT",
            ),
            ("GresTypes", "gpu", "GRES_TYPES"),
            ("Prolog", "", "PROLOG"),
            ("Epilog", "", "EPILOG"),
            ("PrologFlags", "", "PROLOG_FLAGS"),
            ("PrologFlags", "Serial", "PROLOG_FLAGS"),
            ("JobSubmitPlugins", "defaults", "JOB_SUBMIT"),
            ("CliFilterPlugins", "", "CLI_FILTER"),
            ("ProctrackType", "proctrack/linuxproc", "PROCTRACK"),
            ("TaskPlugin", "task/affinity", "CONSTRAIN_DEVICES"),
        ] {
            let found = found(|cluster| cluster.settings.set(key, value));
            assert_eq!(found, [code], "{key}={value}");
        }
    }

    #[test]
    fn a_release_before_23_11_cannot_spread() {
        let old = |cluster: &mut Cluster| cluster.version = "22.05".parse().ok();
        let parameters = "CR_Core,LL_SHARED_GRES";
        let with = found(|cluster| {
            old(cluster);
            cluster.settings.set("SelectTypeParameters", parameters);
        });
        assert_eq!(with, ["LL_SHARED_GRES_TOO_OLD"]);
        let mut cluster = cluster();
        let spread = policy_with("[placement]\nshards = \"spread\"\n");
        assert_eq!(codes(&check(&spread, &cluster)), ["PLACEMENT"]);
        old(&mut cluster);
        assert_eq!(codes(&check(&spread, &cluster)), ["PLACEMENT_ALWAYS_PACKS"]);
        cluster.version = "23.11".parse().ok();
        cluster.settings.set("SelectTypeParameters", parameters);
        assert!(check(&spread, &cluster).is_empty());
    }

    #[test]
    fn a_prolog_of_the_sites_own_has_to_run_softmigs() {
        for (text, code) in [
            (
                Some("#!/bin/sh\n/usr/libexec/softmig-prolog || exit 1\n"),
                None,
            ),
            (Some("#!/bin/sh\nexit 0\n"), Some("PROLOG")),
            (None, Some("NOT_LOOKED_AT")),
        ] {
            let found = found(|cluster| {
                cluster.settings.set("Prolog", "/etc/slurm/prolog.sh");
                if let Some(text) = text {
                    let texts = &mut cluster.own_scripts;
                    texts.insert("/etc/slurm/prolog.sh".into(), text.into());
                }
            });
            assert_eq!(found.first().copied(), code, "{text:?}");
        }
    }

    #[test]
    fn a_prolog_in_the_jobs_own_mounts_is_warned_of() {
        let found = found(|cluster| {
            cluster
                .settings
                .set("PrologFlags", "Alloc,Contain,RunInJob");
            cluster
                .settings
                .set("JobContainerType", "job_container/tmpfs");
        });
        assert_eq!(found, ["PROLOG_RUN_IN_JOB"]);
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
        let new = |cluster: &mut Cluster| cluster.version = "26.05".parse().ok();
        assert_eq!(found(new), ["CGROUP_SLUID"]);
        let by_number = found(|cluster| {
            new(cluster);
            let pairs = [("ConstrainDevices", "yes"), ("CgroupJobIdPaths", "yes")];
            cluster.cgroup = Ok(pairs.into_iter().collect());
        });
        assert!(by_number.is_empty());
    }

    #[test]
    fn a_tag_does_not_travel_where_slurm_reads_it_as_an_expression() {
        let parses = |cluster: &mut Cluster| {
            cluster
                .settings
                .set("SchedulerParameters", "extra_constraints");
        };
        let text = |text: &'static str| {
            found(move |cluster| {
                parses(cluster);
                cluster.slurm_conf = Ok(text.into());
            })
        };
        assert!(text("SchedulerParameters=extra_constraints\n").is_empty());
        assert_eq!(text("Include more.conf\n"), ["TAG_FIELD"]);
        let extra = policy_with("[tag]\nfield = \"extra\"\n");
        let mut cluster = cluster();
        assert!(check(&extra, &cluster).is_empty());
        parses(&mut cluster);
        assert_eq!(codes(&check(&extra, &cluster)), ["TAG_FIELD"]);
        cluster.settings.set("SchedulerParameters", "");
        cluster.version = "22.05".parse().ok();
        assert_eq!(codes(&check(&extra, &cluster)), ["TAG_FIELD"]);
    }

    #[test]
    fn units_of_mps_need_their_gres() {
        let legacy = policy_with("[legacy.mps]\ntype = \"l40s\"\nunits_per_gpu = 320\n");
        let mut cluster = cluster();
        assert_eq!(codes(&check(&legacy, &cluster)), ["LEGACY_MPS"]);
        cluster.settings.set("GresTypes", "gpu,mps,shard");
        assert!(check(&legacy, &cluster).is_empty());
    }
}
