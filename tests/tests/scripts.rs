//! Slurm's Lua scripts on machines where softmig's modules are missing or wrong: no job is lost by that, and `softmig check`
//! tells of it with and without a slurmctld.

use anyhow::{Context, Result, ensure};
use softmig_tests::softmig::installed;
use softmig_tests::{Cluster, Output, Slurm, on_each_slurm};

on_each_slurm!(
    a_machine_without_the_client_module_runs_its_jobs,
    a_fault_that_stops_slurmctld_is_found_without_it,
);

const MODULES: &str = "/usr/lib/softmig/lua/5.1";

fn shell(cluster: &Cluster, script: &str) -> Result<String> {
    cluster.run("root", &["sh", "-c", script])?.ok()
}

fn check(cluster: &Cluster, words: &[&str]) -> Result<Output> {
    cluster.run("root", &[&["softmig", "check"], words].concat())
}

fn a_machine_without_the_client_module_runs_its_jobs(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let module = format!("{MODULES}/softmig_cli_filter.so");
    for breaks in [
        format!(
            "cp /usr/lib/softmig/lua/5.4/softmig_cli_filter.so {module}.new; mv {module}.new {module}"
        ),
        format!("rm {module}"),
    ] {
        shell(&cluster, &breaks)?;
        let alice = cluster.user("alice");
        // Without GPUs, and with a slice: job_submit translates that.
        let plain = alice.sbatch(&[], "srun true")?;
        cluster.wait_job(plain, "COMPLETED")?;
        let slice = alice.sbatch(&["--gres=gpu:l40s.4:1"], "srun true")?;
        cluster.wait_job(slice, "COMPLETED")?;
        let said = cluster.run("alice", &["srun", "-v", "true"])?;
        ensure!(said.success(), "{said}");
        ensure!(
            said.stderr
                .contains("softmig: cli_filter does nothing here: "),
            "{said}"
        );
        // Without -v nothing is said.
        let said = cluster.run("alice", &["srun", "true"])?;
        ensure!(!said.stderr.contains("softmig"), "{said}");
        let said = check(&cluster, &["--slurm"])?;
        ensure!(
            said.stdout.contains("LUA_VERSION") || said.stdout.contains("LUA_MODULE"),
            "{said}"
        );
    }
    // No script at all is another matter.
    shell(&cluster, "rm /etc/slurm/cli_filter.lua")?;
    let said = cluster.run("alice", &["srun", "true"])?;
    ensure!(!said.success(), "{said}");
    for words in [&["--slurm"][..], &["--node"]] {
        let said = check(&cluster, words)?;
        ensure!(said.stdout.contains("ERROR CLI_FILTER_SCRIPT "), "{said}");
    }
    Ok(())
}

fn a_fault_that_stops_slurmctld_is_found_without_it(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let version = slurm.to_string();
    let files = [
        "--slurm-conf=/etc/slurm/slurm.conf",
        "--slurm-version",
        &version,
    ];
    let said = check(&cluster, &files)?;
    ensure!(
        !said.stdout.contains("LUA_") && !said.stdout.contains("Lua"),
        "{said}"
    );
    let pid = cluster.slurmctld_pid()?.context("slurmctld")?;
    let module = format!("{MODULES}/softmig_job_submit.so");
    shell(
        &cluster,
        &format!(
            "cp /usr/lib/softmig/lua/5.4/softmig_job_submit.so {module}.new; mv {module}.new {module}; kill {pid}; \
                  while kill -0 {pid}; do sleep 0.1; done"
        ),
    )?;
    for words in [&["--slurm"][..], &files, &[]] {
        let said = check(&cluster, words)?;
        ensure!(said.status.code() == Some(3), "{said}");
        ensure!(
            said.stdout.contains(&format!(
                "ERROR LUA_VERSION {module}: it is for Lua 5.4, and Slurm's plugin for 5.1"
            )),
            "{said}"
        );
    }
    Ok(())
}
