//! The installed and the running programs, in a few lines.

use crate::ask::monitor;
use crate::machine::preload::{FOLDER, LIBRARY};
use crate::site::check::facts::{Cluster, Machine};
use crate::site::check::finding::Findings;
use softmig_policy::node::node_conf::NodeConf;
use std::collections::BTreeMap;
use std::path::Path;

/// A name and a value for each.
pub(crate) fn check(
    roles: &[&str],
    machine: Option<&Machine>,
    cluster: Option<&Cluster>,
) -> Vec<(&'static str, String)> {
    let mut told = vec![
        ("softmig", env!("CARGO_PKG_VERSION").to_string()),
        (
            "machine",
            if roles.is_empty() {
                "it looks like none that needs softmig".into()
            } else {
                roles.join(", ")
            },
        ),
    ];
    if let Some(cluster) = cluster {
        let version = cluster.version.map(|version| version.to_string());
        told.push(("Slurm", version.unwrap_or_else(|| "release unknown".into())));
        let plugins = [&cluster.lua.job_submit.lua, &cluster.lua.cli_filter.lua];
        if let Some(lua) = plugins.into_iter().flatten().next() {
            told.push(("Lua", lua.slurm.to_string()));
        }
    }
    if let Some(machine) = machine {
        told.push(("mode", mode(machine)));
        told.push(("library", library(machine)));
        told.push(("monitor", running(machine)));
        if let Ok(devices) = &machine.nvml {
            let driver = devices.driver.clone();
            told.push(("driver", driver.unwrap_or_else(|| "unknown".into())));
        }
    }
    told
}

fn mode(machine: &Machine) -> String {
    match &machine.node_conf {
        Ok(Some(NodeConf { mode, .. })) => mode.to_string(),
        Ok(None) => "none: node.conf does not exist".into(),
        Err(_) => "unknown: node.conf cannot be read".into(),
    }
}

fn library(machine: &Machine) -> String {
    let path = Path::new(FOLDER).join(LIBRARY);
    let named = machine.preloaded.iter().flatten().next().is_some();
    let which = match (path.exists(), machine.upkeep.old_library) {
        (false, _) => "not installed",
        (true, true) => "another than that of this release",
        (true, false) => "of this release",
    };
    if named {
        format!("{which}, loaded into every process")
    } else {
        format!("{which}, loaded into none")
    }
}

fn running(machine: &Machine) -> String {
    let installed =
        monitor::version_of(Path::new(monitor::PROGRAM)).unwrap_or_else(|| "none".into());
    match (machine.monitor, &machine.upkeep.old_monitor) {
        (_, Some(old)) => format!("{old} runs; {installed} is installed"),
        (true, None) => format!("{installed}, runs"),
        (false, None) => format!("{installed}, does not run"),
    }
}

/// The public JSON form.
pub(crate) fn json(versions: &[(&'static str, String)], findings: &Findings) -> String {
    let versions: BTreeMap<String, &str> = versions
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.as_str()))
        .collect();
    let found: serde_json::Value = serde_json::from_str(&findings.to_json()).unwrap_or_default();
    serde_json::json!({ "machine": versions, "check": found }).to_string()
}
