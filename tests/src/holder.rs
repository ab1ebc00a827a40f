//! The process that holds a node's mounts: what makes several slurmd on one machine differ like machines.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::spec::NodeSpec;
use crate::{init, mounts};

/// Directories that every node has for itself, with their modes.
const OWN: [(&str, u32); 4] = [
    ("run", 0o755),
    ("tmp", 0o1777),
    ("var/log/softmig", 0o755),
    ("var/lib/softmig", 0o755),
];

/// Makes the node that standard input describes, answers with this process's number, and stays.
pub fn main() -> Result<()> {
    let mut stdin = BufReader::new(std::io::stdin());
    let mut line = String::new();
    stdin.read_line(&mut line).context("reading what to make")?;
    let (root, node): (PathBuf, NodeSpec) =
        serde_json::from_str(&line).context("reading what to make")?;

    let pid = init::host_pid()?;
    for (dir, mode) in OWN {
        mounts::tmpfs(&root.join(dir), mode)?;
    }
    mounts::dev(&root, &node.gpus)?;
    mounts::driver(&root, &node.gpus)?;
    mounts::move_into(&root)?;
    init::say(&pid)?;

    std::io::copy(&mut stdin.by_ref(), &mut std::io::sink()).ok();
    Ok(())
}
