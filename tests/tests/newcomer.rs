//! The site of a newcomer, as it was before softmig: job_submit.lua, settings, slurmdbd and fair share of its own, GPU nodes
//! and one without GPUs. A script installs softmig on it as the pages say, and nothing that was there is lost.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use softmig_tests::builder::unique_tag;
use softmig_tests::config::{FIRST_NODE_PORT, cgroups_usable};
use softmig_tests::softmig::stage;
use softmig_tests::{Accounting, Cluster, Gpus, Slurm, on_each_slurm};

on_each_slurm!(the_sites_own_settings_hold_beside_softmigs);

/// The findings of softmig's first trial on such a site, by the numbers of that report, and the tests that provoke them:
/// a file below the workspace, and a function in it.
const FINDINGS: [(u8, &str, &str); 15] = [
    // Programs crashed in an upgrade.
    (
        1,
        "tests/tests/setup/upgrades.rs",
        "fifty_upgrades_and_downgrades_crash_nothing_and_lose_no_job",
    ),
    (
        1,
        "tests/tests/packages.rs",
        "packages_change_under_running_programs",
    ),
    // `softmig node` said of an observing node that nothing would have been refused.
    (
        2,
        "tests/tests/newcomer.rs",
        "an_observing_node_counts_memory",
    ),
    (
        2,
        "tests/tests/node.rs",
        "softmig_node_shows_the_findings_of_the_library",
    ),
    // Without the client's script or module no job could be submitted.
    (
        3,
        "tests/tests/scripts.rs",
        "a_machine_without_the_client_module_runs_its_jobs",
    ),
    // Jobs on CPUs were free in fair share.
    (4, "tests/tests/newcomer.rs", "jobs_on_cpus_count"),
    (
        4,
        "softmig/src/site/check/rules/whole_gpus.rs",
        "partitions_without_gpus_keep_the_weight_of_cpus",
    ),
    // softmig.conf overrode the site's settings.
    (6, "tests/tests/newcomer.rs", "own_settings_hold"),
    // `softmig check` did not see what kept slurmctld from starting.
    (
        7,
        "tests/tests/scripts.rs",
        "a_fault_that_stops_slurmctld_is_found_without_it",
    ),
    // The reservation of a kept GPU moved to another node.
    (
        8,
        "tests/tests/config.rs",
        "a_kept_gpu_is_reserved_where_slurm_can",
    ),
    (
        8,
        "tests/tests/accounting/reservations.rs",
        "a_reservation_stays_on_its_node_where_it_is_static",
    ),
    // An older policy on a login node gave another slice than was typed.
    (
        9,
        "tests/tests/typed.rs",
        "a_machine_with_another_policy_gives_no_other_slice",
    ),
    // Generated files lost the site's lines.
    (11, "tests/tests/newcomer.rs", "own_lines_stay"),
    (
        11,
        "softmig/src/site/config/merge.rs",
        "lines_of_other_nodes_and_cores_stay",
    ),
    (
        11,
        "softmig/src/site/config/merge.rs",
        "settings_of_cgroup_conf_stay",
    ),
];

#[test]
fn each_finding_has_its_test() -> Result<()> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (number, file, test) in FINDINGS {
        let text = std::fs::read_to_string(workspace.join(file)).context(file)?;
        ensure!(
            text.contains(&format!("fn {test}(")),
            "finding {number}: no {test} in {file}"
        );
    }
    Ok(())
}

const JOB_SUBMIT: &str = "\
-- ours
function slurm_job_submit(job, partitions, uid)
    if job.name == \"forbidden\" then
        slurm.log_user(\"ours: no such name\")
        return slurm.ERROR
    end
    return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
    return slurm.SUCCESS
end
return slurm.SUCCESS
";

/// The administrator's commands on the controller, whose files all machines of the test share.
const INSTALL: &str = "set -e
install -D -m 0644 /root/policy.toml /etc/softmig/policy.toml
cp /usr/share/softmig/examples/cli_filter.lua /etc/slurm
# The lines for the site's own job_submit.lua, before its return.
sed -i '/^return slurm.SUCCESS$/d' /etc/slurm/job_submit.lua
cat /usr/share/softmig/examples/job_submit.lua >>/etc/slurm/job_submit.lua
softmig config --write /etc/slurm --force
weights=$(grep -o 'TRESBillingWeights=\"[^\"]*\"' /etc/slurm/softmig.conf | head -n 1)
sed -i.before -e '1i include softmig.conf' -e '/^NodeName=TAGn[12] /d' -e '/^GresTypes=/d' -e '/^AccountingStorageTRES=/d' \\
    -e \"s|^PartitionName=main Nodes=ALL|PartitionName=main Nodes=TAGn[1-2] $weights|\" /etc/slurm/slurm.conf
";

fn policy(tag: &str) -> String {
    // As many CPUs as there are: control groups cannot give out others.
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    let node = |number: u16| {
        let port = FIRST_NODE_PORT + number - 1;
        format!(
            "[[nodes]]\nnames = \"{tag}n{number}\"\ngpus = [\"l40s:4\"]\n\
             slurm = \"NodeHostname=softmig NodeAddr=127.0.0.1 Port={port} CPUs={cpus} CoresPerSocket={cpus} RealMemory=16000\"\n"
        )
    };
    format!(
        "default_class = \"student\"\n[classes.student]\nshards = 2\nwhole_gpus = 0\n\
         [gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n{}{}",
        node(1),
        node(2)
    )
}

fn root(cluster: &Cluster, script: &str) -> Result<String> {
    cluster.run("root", &["sh", "-c", script])?.ok()
}

/// The site, with softmig's packages unpacked and not yet set up.
fn site(slurm: Slurm, tag: &str) -> Result<Cluster> {
    Cluster::builder(slurm)
        .tag(tag)
        .nodes(3)
        .gpus([Gpus::l40s(4).shards(0)])
        .gpus_of(2, [])
        .gres_types("gpu")
        .accounting(
            Accounting::new()
                .tres(&["gres/gpu"])
                .enforce("associations,limits,qos,safe"),
        )
        .slurm_conf(format!("PartitionName=cpu Nodes={tag}n3"))
        .programs()
        .layer(stage())
        .file("/etc/slurm/job_submit.lua", JOB_SUBMIT)
        .file("/root/policy.toml", policy(tag))
        .start()
}

fn the_sites_own_settings_hold_beside_softmigs(slurm: Slurm) -> Result<()> {
    let tag = unique_tag();
    let cluster = site(slurm, &tag)?;
    root(&cluster, &INSTALL.replace("TAG", &tag))?;
    for node in &cluster.nodes()[..2] {
        node.run_as_root(&["softmig", "install", "--hook"])?.ok()?;
    }
    for node in cluster.nodes() {
        cluster.kill_slurmd(node)?;
    }
    cluster.restart_slurmctld()?;
    for node in cluster.nodes() {
        cluster.start_slurmd(node)?;
    }
    cluster.wait_until("every node is idle", || {
        Ok(cluster.sinfo_states()?.iter().all(|state| state == "idle"))
    })?;
    root(&cluster, "sh /etc/slurm/softmig-qos.sh")?;
    cluster.settle_accounts()?;
    let check = cluster.run("root", &["softmig", "check", "--slurm"])?;
    ensure!(check.stdout.contains("softmig check: 0 errors"), "{check}");

    own_settings_hold(&cluster, &check.stdout)?;
    own_lines_stay(&cluster)?;
    jobs_on_cpus_count(&cluster)?;
    an_observing_node_counts_memory(&cluster)
}

fn own_settings_hold(cluster: &Cluster, check: &str) -> Result<()> {
    let config = root(cluster, "scontrol show config")?;
    let set = |key: &str, value: &str| {
        let mut lines = config.lines().filter(|line| line.starts_with(key));
        lines.any(|line| line.ends_with(value))
    };
    ensure!(set("AccountingStorageEnforce", ",safe"), "{config}");
    ensure!(set("DefMemPerCPU", " 100"), "{config}");
    // It is said where the site's counts and softmig's does not.
    ensure!(check.contains("SETTING_TWICE DefMemPerCPU: "), "{check}");
    Ok(())
}

fn own_lines_stay(cluster: &Cluster) -> Result<()> {
    let alice = cluster.user("alice");
    let said = alice
        .try_sbatch(&["--job-name=forbidden"], "true")?
        .refused()?;
    ensure!(said.contains("ours: no such name"), "{said}");
    let said = alice
        .try_sbatch(&["--gres=gpu:l40s.3:1"], "true")?
        .refused()?;
    ensure!(said.contains("[SLICE_SIZE]"), "{said}");
    if cgroups_usable() {
        let text = cluster
            .read("/etc/slurm/cgroup.conf")?
            .context("no cgroup.conf")?;
        ensure!(text.contains("CgroupMountpoint=/sys/fs/cgroup"), "{text}");
    }
    Ok(())
}

fn jobs_on_cpus_count(cluster: &Cluster) -> Result<()> {
    let alice = cluster.user("alice");
    let job = alice.sbatch(&["--partition=cpu"], "sleep 60")?;
    cluster.wait_job(job, "RUNNING")?;
    let shown = root(cluster, &format!("scontrol show job {job}"))?;
    ensure!(shown.contains("billing=1"), "{shown}");
    root(cluster, &format!("scancel {job}")).map(drop)
}

/// A quarter has 11366 MiB of 46068, and the program takes all that it gets.
fn an_observing_node_counts_memory(cluster: &Cluster) -> Result<()> {
    let node = cluster.node(0);
    let _driver = node.start_driver()?;
    let here = format!("--nodelist={}", node.name());
    let options = [&here, "--gres=gpu:l40s.4:1"];
    let takes = "/opt/programs/takes cuMemAlloc_v2 536870912 fill";
    let job = cluster.user("alice").sbatch(&options, takes)?;
    cluster.wait_job(job, "COMPLETED")?;
    cluster.wait_until("the job's log is kept", || {
        let said = node.run_as_root(&["softmig", "node"])?.ok()?;
        Ok(said.contains("would have refused, by the logs of 1 job "))
    })
}
