//! reportseff from its package, on what a cluster's sacct says.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};

use crate::Cluster;

const PACKAGE: &str = "reportseff==2.10.3";

/// The GPU time and the GPU memory that it says of a job, in percent.
pub fn of(cluster: &Cluster, job: u32) -> Result<[f64; 2]> {
    let program = installed()?;
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
            return figures(&String::from_utf8(output.stdout)?);
        };
        fs::remove_file(&asked)?;
        let argv: Vec<&str> = words.lines().collect();
        let plain = |letter: char| match letter.is_ascii_alphanumeric() {
            true => letter,
            false => '_',
        };
        let name: String = argv.join(" ").chars().map(plain).collect();
        let answer = cluster.run("root", &argv)?.ok()?;
        fs::write(folder.path().join(name), answer)?;
    }
    bail!("reportseff asks without end")
}

/// The last two columns of its last line.
fn figures(said: &str) -> Result<[f64; 2]> {
    let line = said.lines().last().unwrap_or_default();
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [.., time, memory] = cells[..] else {
        bail!("reportseff: {said}");
    };
    let figure = |cell: &str| cell.parse().with_context(|| said.to_owned());
    Ok([figure(time)?, figure(memory)?])
}

/// In an environment of its own below target, which tests that run at the same time make once.
fn installed() -> Result<PathBuf> {
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/reportseff");
    let program = folder.join("bin/reportseff");
    if program.exists() {
        return Ok(program);
    }
    let run = |words: &[&str]| {
        let status = Command::new(words[0]).args(&words[1..]).status();
        status.is_ok_and(|status| status.success())
    };
    let (path, pip) = (folder.display().to_string(), folder.join("bin/pip"));
    let pip = pip.display().to_string();
    let is_there =
        run(&["python3", "-m", "venv", "--clear", &path]) && run(&[&pip, "install", PACKAGE]);
    ensure!(is_there, "pip cannot install {PACKAGE}");
    Ok(program)
}
