//! One node of a cluster, as a test sees it: its own files, its own devices.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{Call, Output};
use crate::gpus::Gpu;
use crate::place;

/// A node. Its `/run`, `/tmp`, `/dev`, `/var/log/softmig` and `/var/lib/softmig` are its own, all else is shared.
#[derive(Clone, Debug)]
pub struct Node {
    name: String,
    pid: i32,
    gpus: Vec<Gpu>,
}

impl Node {
    pub(crate) fn new(name: &str, pid: i32, gpus: &[Gpu]) -> Node {
        Node {
            name: name.into(),
            pid,
            gpus: gpus.to_vec(),
        }
    }

    /// Slurm's name for it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its GPUs.
    pub fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// A command on this node, as one of its users.
    pub fn command(&self, user: &str, argv: &[impl AsRef<OsStr>]) -> Call {
        Call::new(self.pid, user, argv)
    }

    /// Runs a command on this node as root.
    pub fn run_as_root(&self, argv: &[impl AsRef<OsStr>]) -> Result<Output> {
        self.command("root", argv).output()
    }

    /// A program of this machine's, on the node's network.
    pub fn on_its_network(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let network = format!("--net=/proc/{}/ns/net", self.pid);
        command.args([&network, "--", program]);
        command
    }

    /// Where a path of the node is found from here.
    pub fn path(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        place::inside(&self.outside(), path.as_ref())
    }

    /// The text of a file, or nothing when it is not there.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Option<String>> {
        place::read(&self.outside(), path.as_ref())
    }

    /// Writes a file of root's, with mode 0644, or 0755 for a script.
    pub fn write(&self, path: impl AsRef<Path>, contents: &str) -> Result<()> {
        let mode = if contents.starts_with("#!") {
            0o755
        } else {
            0o644
        };
        place::write(&self.outside(), path.as_ref(), contents.as_bytes(), mode)
    }

    /// Whether there is anything by that name.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        Ok(self.path(path)?.symlink_metadata().is_ok())
    }

    /// The sorted names in a directory; of one that is not there, none.
    pub fn list(&self, dir: impl AsRef<Path>) -> Result<Vec<String>> {
        let place = self.path(dir)?;
        let entries = match std::fs::read_dir(&place) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(error).with_context(|| format!("reading {}", place.display()));
            }
        };
        let mut names = entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<std::io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn outside(&self) -> PathBuf {
        format!("/proc/{}/root", self.pid).into()
    }
}
