//! Settings of slurm.conf and cgroup.conf that slices need.

use crate::site::check::facts::Cluster;
use crate::site::check::finding::{Code, Finding};
use crate::site::check::rules::control_groups;
use crate::site::check::rules::slices::shares;
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
    control_groups::check(cluster, &mut found);
    tag(policy, cluster, &mut found);
    private_data(policy, cluster, &mut found);
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

/// The programs at each job's start and end.
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
        found.push(if words.iter().all(|word| text(word).is_some()) {
            Finding::new(
                code,
                place,
                if words.is_empty() {
                    format!("it is not set, so {own} never runs")
                } else {
                    format!("it does not run {own}")
                },
                remedy,
            )
        } else {
            Finding::skip(
                place,
                format!("it cannot be read here, so it is unknown whether it runs {own}"),
            )
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
    // The second is the name since 25.11.
    let plugins = ["JobContainerType", "NamespaceType"].map(|key| settings.get(key));
    let private = |plugin: &&str| plugin.ends_with("/tmpfs") || plugin.ends_with("/linux");
    if let Some(plugin) = plugins.into_iter().find(private)
        && settings.has("PrologFlags", "RunInJob")
    {
        found.push(Finding::new(
            Code::PrologRunInJob,
            "PrologFlags",
            format!(
                "with RunInJob and {plugin} the prolog comes after the job's own mounts, and slices have no GPU unless the \
                 plugin's own file says that mounts are shared"
            ),
            "take RunInJob out, or look for Shared=true in job_container.conf, or for shared: true in \
             namespace.yaml",
        ));
    }
}

/// The plugins that translate requests.
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
            "write JobSubmitPlugins=lua, and copy /usr/share/softmig/examples/job_submit.lua beside slurm.conf",
        ));
    }
    if !loads("CliFilterPlugins") {
        found.push(Finding::new(
            Code::CliFilter,
            "CliFilterPlugins",
            "without lua srun cannot ask for a slice",
            "write CliFilterPlugins=lua, and copy /usr/share/softmig/examples/cli_filter.lua beside slurm.conf",
        ));
    }
}

/// The field of a job that carries its limits.
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
        // The modules also look for the setting, but only in slurm.conf itself.
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

/// Figures of jobs that Slurm hides.
fn private_data(policy: &Policy, cluster: &Cluster, found: &mut Vec<Finding>) {
    if !cluster.settings.has("PrivateData", "jobs") {
        return;
    }
    let metrics = &policy.node().metrics;
    let ways = [
        metrics.textfile.as_ref().map(|_| "textfile"),
        metrics.exporters.as_ref().map(|_| "exporters"),
    ];
    found.extend(ways.into_iter().flatten().map(|way| {
        Finding::new(
            Code::PrivateData,
            "[metrics] in policy.toml",
            format!("PrivateData=jobs hides other users' jobs, and {way} tells all users of them"),
            format!(
                "take {way} out, and have Prometheus ask softmig-exporter with --tls-client-ca"
            ),
        )
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::rules::example::{cluster, codes, policy, policy_with};

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
        for (key, plugin, codes) in [
            (
                "JobContainerType",
                "job_container/tmpfs",
                &["PROLOG_RUN_IN_JOB"][..],
            ),
            ("NamespaceType", "namespace/tmpfs", &["PROLOG_RUN_IN_JOB"]),
            ("NamespaceType", "namespace/linux", &["PROLOG_RUN_IN_JOB"]),
            ("JobContainerType", "job_container/none", &[]),
        ] {
            let found = found(|cluster| {
                let settings = &mut cluster.settings;
                settings.set("PrologFlags", "Alloc,Contain,RunInJob");
                settings.set(key, plugin);
            });
            assert_eq!(found, codes, "{plugin}");
        }
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

    #[test]
    fn what_slurm_hides_is_not_shown_by_metrics() {
        let textfile = "[metrics]\ntextfile = \"/var/lib/softmig/softmig.prom\"\n";
        let exporters =
            "[metrics]\nexporters = \"https://%n:9836\"\nexporters_ca = \"/etc/softmig/ca.pem\"\n";
        let mut cluster = cluster();
        for metrics in [textfile, exporters] {
            assert!(check(&policy_with(metrics), &cluster).is_empty());
        }
        cluster.settings.set("PrivateData", "accounts,jobs");
        assert!(check(&policy(), &cluster).is_empty());
        for metrics in [textfile, exporters] {
            assert_eq!(
                codes(&check(&policy_with(metrics), &cluster)),
                ["PRIVATE_DATA"]
            );
        }
    }
}
