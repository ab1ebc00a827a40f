//! A GPU for one test, and clients that launch on it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use softmig_fake_node::{Description, Gpu, Node, PLACE_VARIABLE};
use softmig_tests::programs::{FOLDER, LIBRARY, tree};
use softmig_tests::softmig::stage;
use tempfile::TempDir;

/// A GPU.
pub struct Stand {
    dir: TempDir,
    _gpus: Node,
}

impl Stand {
    /// One H200.
    pub fn new() -> Result<Stand> {
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("nvidia0"), "")?;
        let description = Description::new(&[Gpu::h200(0)]).devices(dir.path());
        let gpus = Node::describe(dir.path().join("node"), description)?;
        Ok(Stand { dir, _gpus: gpus })
    }

    /// A client that is not limited.
    pub fn unlimited(&self, words: &[&str]) -> Command {
        let programs = tree().join(FOLDER.trim_start_matches('/'));
        let (program, arguments) = words.split_first().unwrap_or((&"", &[]));
        let mut command = Command::new(programs.join(program));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", softmig_tests::command::PATH)
            .env("LD_LIBRARY_PATH", tree().join("usr/lib/x86_64-linux-gnu"))
            .env(PLACE_VARIABLE, self.path("node"));
        command
    }

    /// The same with the library, and a share in percent.
    pub fn limited(&self, percent: &str, words: &[&str]) -> Command {
        let mut command = self.unlimited(words);
        command
            .env("LD_PRELOAD", stage().join(LIBRARY.trim_start_matches('/')))
            .env("CUDA_DEVICE_SM_LIMIT", percent);
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// The share of the GPU that a client had, in percent.
pub fn share(mut command: Command) -> Result<f64> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{command:?}: {output:?}");
    let share = said
        .split("share ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .with_context(|| format!("{command:?} said {said}"))?;
    Ok(share.parse::<f64>()? / 100.0)
}
