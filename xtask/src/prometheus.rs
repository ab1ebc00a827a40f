//! Brings Prometheus and node_exporter, with which the metrics are tested, into target/prometheus.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::grafana;
use crate::place::{run, target};
use crate::roots::as_root;
use crate::steps::cargo;

/// Debian's packages. They are unpacked and not installed: to install them starts their servers.
const PACKAGES: [&str; 2] = ["prometheus", "prometheus-node-exporter"];

/// Unpacks them where they are missing, a tree like `/`, which clusters lay over theirs. It has `usr` alone: a folder `lib` would
/// hide their link of that name.
pub(crate) fn bring() -> Result<()> {
    let folder = target().join("prometheus");
    let usr = folder.join("usr");
    if usr.exists() {
        return Ok(());
    }
    println!(
        "Unpacking {} into {}.",
        PACKAGES.join(" and "),
        folder.display()
    );
    let unpacked = folder.join("unpacked");
    // An earlier run may have been ended on the way.
    drop(fs::remove_dir_all(&unpacked));
    fs::create_dir_all(&unpacked).with_context(|| format!("making {}", unpacked.display()))?;
    let download = || {
        let mut apt = Command::new("apt-get");
        apt.args(["-q", "download"])
            .args(PACKAGES)
            .current_dir(&unpacked);
        run(&mut apt)
    };
    // The lists may be missing, or too old.
    if download().is_err() {
        run(as_root("apt-get").args(["-q", "update"]))?;
        download()?;
    }
    for entry in fs::read_dir(&unpacked)? {
        let deb = entry?.path();
        if deb.extension().is_some_and(|end| end == "deb") {
            run(Command::new("dpkg-deb").arg("-x").args([&deb, &unpacked]))?;
        }
    }
    fs::rename(unpacked.join("usr"), &usr).context("moving the programs")?;
    fs::remove_dir_all(&unpacked).context("removing the packages")
}

/// Has a real Prometheus ask the dashboards' queries, and Grafana's components draw its answers.
pub(crate) fn test() -> Result<()> {
    grafana::bring()?;
    run(
        cargo(&["test", "--locked", "-p", "softmig-exporter"]).args([
            "--features",
            "prometheus",
            "--test",
            "prometheus",
        ]),
    )
}
