//! Brings Chromium, and Grafana's components into target/grafana. The dashboards are drawn with them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow};

use crate::packages::need;
use crate::place::{project, run, target};

/// The names and hashes of all packages of Node.js.
const LOCK: &str = "package-lock.json";

/// Brings what is missing.
pub(crate) fn bring() -> Result<()> {
    need("node", "nodejs", "runs Grafana's components")?;
    need("npm", "npm", "downloads packages of Node.js")?;
    // Both take half a minute and more, and neither waits for the other.
    std::thread::scope(|scope| {
        let browser = scope.spawn(|| {
            let package = "chromium-headless-shell";
            need(package, package, "draws the dashboards")
        });
        components()?;
        browser
            .join()
            .map_err(|_| anyhow!("the installation of Chromium panicked"))?
    })
}

/// Downloads the packages again if the lock is another one.
fn components() -> Result<()> {
    let wanted = project().join("contrib/grafana/draw");
    let folder = target().join("grafana");
    let lock = |folder: &Path| fs::read(folder.join(LOCK));
    if lock(&folder).ok() == lock(&wanted).ok() {
        return Ok(());
    }
    println!(
        "Downloading Grafana's components into {}.",
        folder.display()
    );
    // Beside its place until it is whole, so that an interrupted download is done again.
    let fresh = target().join(".grafana");
    let _ = fs::remove_dir_all(&fresh);
    fs::create_dir_all(&fresh).with_context(|| format!("making {}", fresh.display()))?;
    for name in ["package.json", LOCK] {
        fs::copy(wanted.join(name), fresh.join(name)).with_context(|| format!("copying {name}"))?;
    }
    run(Command::new("npm")
        .args([
            "ci",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
        ])
        .current_dir(&fresh))?;
    let _ = fs::remove_dir_all(&folder);
    fs::rename(&fresh, &folder).with_context(|| format!("placing {}", folder.display()))
}
