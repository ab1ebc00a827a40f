//! reportseff from its package, on what a cluster's sacct says.

use crate::site::Site;
use anyhow::{Context, Result, bail};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "reportseff==2.10.3";

/// Its report on a job's GPU time and memory; `None` where the package cannot be had.
pub fn of(site: &Site, job: u32) -> Result<Option<String>> {
    let Some(program) = installed()? else {
        eprintln!("not tested: {PACKAGE} cannot be installed here");
        return Ok(None);
    };
    // Its questions to Slurm go to the cluster, and it is run again with the answer.
    let folder = tempfile::tempdir()?;
    let asked = folder.path().join("asked");
    for name in ["sacct", "scontrol"] {
        let script = format!(
            "#!/bin/sh\ncd {}\nname=$(printf %s \"{name} $*\" | tr -c A-Za-z0-9 _)\n\
             [ -e $name ] && exec cat $name\nprintf '%s\\n' {name} \"$@\" >asked\nexit 1\n",
            folder.path().display()
        );
        let path = folder.path().join(name);
        fs::write(&path, script)?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    }
    let search = format!("{}:/usr/bin:/bin", folder.path().display());
    for _ in 0..8 {
        let mut command = Command::new(&program);
        command.args(["--no-color", "--parsable", "--format=JobID,GPUEff,GPUMem"]);
        let output = command
            .arg(job.to_string())
            .env("PATH", &search)
            .output()
            .context("reportseff")?;
        let Ok(words) = fs::read_to_string(&asked) else {
            if !output.status.success() {
                bail!("{output:?}");
            }
            return Ok(Some(String::from_utf8(output.stdout)?.replace('|', " ")));
        };
        fs::remove_file(&asked)?;
        let argv: Vec<&str> = words.lines().collect();
        let plain = |letter: char| match letter.is_ascii_alphanumeric() {
            true => letter,
            false => '_',
        };
        let name: String = argv.join(" ").chars().map(plain).collect();
        let answer = site.cluster.run("root", &argv)?.ok()?;
        fs::write(folder.path().join(name), answer)?;
    }
    bail!("reportseff asks without end")
}

/// In an environment of its own below target.
fn installed() -> Result<Option<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/reportseff");
    let program = folder.join("bin/reportseff");
    if program.exists() {
        return Ok(Some(program));
    }
    let run = |words: &[&str]| {
        let status = Command::new(words[0]).args(&words[1..]).status();
        status.is_ok_and(|status| status.success())
    };
    let (path, pip) = (folder.display().to_string(), folder.join("bin/pip"));
    let pip = pip.display().to_string();
    let is_there = run(&["python3", "-m", "venv", &path]) && run(&[&pip, "install", PACKAGE]);
    Ok(is_there.then_some(program))
}
