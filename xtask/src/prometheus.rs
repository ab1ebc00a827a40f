//! Brings Prometheus and node_exporter, with which the exporter's metrics are tested, into target/prometheus.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::place::{run, target};
use crate::roots::as_root;
use crate::steps::cargo;

/// Debian's packages. They are unpacked and not installed: to install them starts their servers.
const PACKAGES: [&str; 2] = ["prometheus", "prometheus-node-exporter"];

/// Unpacks them where they are missing, a tree like `/`.
fn bring() -> Result<()> {
    let folder = target().join("prometheus");
    if folder.join("usr/bin/promtool").exists() {
        return Ok(());
    }
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    println!(
        "Unpacking {} into {}.",
        PACKAGES.join(" and "),
        folder.display()
    );
    let download = || {
        let mut apt = Command::new("apt-get");
        apt.args(["-q", "download"])
            .args(PACKAGES)
            .current_dir(&folder);
        run(&mut apt)
    };
    // The lists may be missing, or too old.
    if download().is_err() {
        run(as_root("apt-get").args(["-q", "update"]))?;
        download()?;
    }
    for entry in fs::read_dir(&folder)? {
        let deb = entry?.path();
        if deb.extension().is_some_and(|end| end == "deb") {
            run(Command::new("dpkg-deb").arg("-x").args([&deb, &folder]))?;
            fs::remove_file(&deb)?;
        }
    }
    Ok(())
}

/// Has a real Prometheus ask the dashboards' queries.
pub(crate) fn test() -> Result<()> {
    bring()?;
    run(
        cargo(&["test", "--locked", "-p", "softmig-exporter"]).args([
            "--features",
            "prometheus",
            "--test",
            "prometheus",
        ]),
    )
}
