//! The messages between the test process and the supervisor: one line of JSON each way.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::gpus::Gpu;

/// A machine to be made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Spec {
    /// The Debian root, which is only read.
    pub root: PathBuf,
    /// Trees laid over the root by the kernel, which are only read too: what packages bring.
    #[serde(default)]
    pub layers: Vec<PathBuf>,
    /// The nodes, each a mount namespace of its own.
    pub nodes: Vec<NodeSpec>,
    /// Trees laid over the root, each arranged like `/`.
    pub stages: Vec<PathBuf>,
    /// Single files brought from outside.
    pub installs: Vec<Install>,
    /// Single files made from text.
    pub files: Vec<File>,
}

/// One node of the machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Slurm's NodeName.
    pub name: String,
    /// Its GPUs.
    pub gpus: Vec<Gpu>,
}

/// A file to be copied into the machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Install {
    /// Where it lies outside.
    pub from: PathBuf,
    /// Where it goes, an absolute path in the machine.
    pub to: PathBuf,
    /// Its mode there.
    pub mode: u32,
}

/// A file to be written into the machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct File {
    /// Where it goes, an absolute path in the machine.
    pub path: PathBuf,
    /// Its text.
    pub contents: String,
    /// Its mode.
    pub mode: u32,
}

/// The machine's answer once it is up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// It is up. The process numbers are those seen from outside.
    Up {
        /// Process 1 of the machine.
        init: i32,
        /// The holder of each node's mounts, in the order of [`Spec::nodes`].
        nodes: Vec<i32>,
    },
    /// It could not be made, and why.
    Failed(String),
}

impl File {
    /// A file with mode 0644, or 0755 for a script.
    pub fn new(path: impl Into<PathBuf>, contents: impl Into<String>) -> File {
        let contents = contents.into();
        let mode = if contents.starts_with("#!") {
            0o755
        } else {
            0o644
        };
        File {
            path: path.into(),
            contents,
            mode,
        }
    }
}
