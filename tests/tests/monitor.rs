//! The monitor on nodes with the fake driver: whose it says each process is and what each has, what it tells of jobs that
//! have too much, whom it ends, and what it says where there is nothing to be measured.

mod daemon;
pub mod ending;
mod measuring;
mod packed;
mod packs;
#[cfg(feature = "full")]
mod readers;
mod unit;
mod usage;

use anyhow::{Context, Result};
use serde_json::Value;
use softmig_fake_node::MIB;
use softmig_tests::programs::FOLDER;
use softmig_tests::requests::memory_mib;
use softmig_tests::softmig::stage;
use softmig_tests::{Cluster, Gpus, Machine, Output, Root, Slurm};

const MONITOR: &str = "/usr/libexec/softmig-monitor";
const UNIT: &str = "usr/lib/systemd/system/softmig-monitor.service";
const NODE_CONF: &str = "/etc/softmig/node.conf";

/// A quarter of an L40S, in bytes.
const QUARTER: u64 = memory_mib(1) as u64 * MIB;

/// A line of a job's script: a process in the background that holds this number of MiB until it is killed.
fn holds(mib: u32) -> String {
    format!("{FOLDER}/views hold {mib} &\n")
}

/// Starts a job with these processes, and returns its number and theirs.
fn job(cluster: &Cluster, user: &str, gres: &str, script: &str) -> Result<(u32, Vec<u64>)> {
    let of_user = cluster.user(user);
    let id = of_user.sbatch(&["--gres", gres], &format!("{script}wait\nsleep 1000"))?;
    let wanted = script.matches("hold").count();
    let pids = cluster.wait_for("its processes", || {
        let said = of_user.job_output(id)?;
        let pids = said.lines().filter_map(|line| line.strip_prefix("holds: "));
        let pids = pids.map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        Ok((pids.len() == wanted).then_some(pids))
    })?;
    Ok((id, pids))
}

/// The words before a command line that has no more rights than systemd gives to the monitor.
fn with_the_units_rights() -> Result<String> {
    let unit = std::fs::read_to_string(stage().join(UNIT))?;
    let rights = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let rights = rights.context("no rights in the unit")?.to_lowercase();
    let rights = rights.replace("cap_", "+").replace(' ', ",");
    Ok(format!(
        "setpriv --bounding-set=-all,{rights} --inh-caps=-all --no-new-privs"
    ))
}

/// Output and status of `--once --json`.
fn once(node: &softmig_tests::Node) -> Result<(Value, Option<i32>)> {
    let line = format!("{} {MONITOR} --once --json", with_the_units_rights()?);
    let output = node.run_as_root(&["sh", "-c", &line])?;
    let json = serde_json::from_str(&output.stdout).with_context(|| output.to_string())?;
    Ok((json, output.status.code()))
}

/// The entry whose `key` is this.
fn entry<'a>(list: &'a Value, key: &str, value: impl Into<Value>) -> Result<&'a Value> {
    let value = value.into();
    let found = list
        .as_array()
        .and_then(|list| list.iter().find(|entry| entry[key] == value));
    found.with_context(|| format!("no {key} {value} in {list}"))
}

fn memory(holding: &Value) -> u64 {
    holding["memory_bytes"].as_u64().unwrap_or_default()
}

fn root() -> Root {
    Root::new(Slurm::V22_05)
        .stage(stage())
        .node("n1", [Gpus::l40s(2)])
}

fn on_node(machine: &Machine, line: &str) -> Result<Output> {
    machine.nodes()[0].run_as_root(&["sh", "-c", line])
}

/// The same on a node of a cluster.
fn on_node_of(node: &softmig_tests::Node, line: &str) -> Result<Output> {
    node.run_as_root(&["sh", "-c", line])
}
