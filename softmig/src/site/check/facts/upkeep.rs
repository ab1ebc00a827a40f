//! Facts about the installed parts that run, and the policy that is in force.

use std::path::PathBuf;

/// Whether slurmctld can read policy.toml, and the policy that counts if it cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InForce {
    /// `SlurmUser`.
    pub(crate) user: String,
    /// The file, or the folder on the way to it, that this user may not read.
    pub(crate) closed: Option<PathBuf>,
    /// The stored policy, if it differs from policy.toml.
    pub(crate) last_good: Option<PathBuf>,
}

/// Whether the parts that run on a machine are the installed ones, and have room for jobs' files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upkeep {
    /// Whether the library that processes load differs from the staged one.
    pub(crate) old_library: bool,
    /// How users other than root could change that library.
    pub(crate) open_library: Option<String>,
    /// The version of a running monitor whose file is gone.
    pub(crate) old_monitor: Option<String>,
    /// The GPUs with memory that jobs may have and others hold, and how many bytes, by the monitor.
    pub(crate) missing_memory: Vec<(u32, u64)>,
    /// Whether the folder of jobs' limits is full.
    pub(crate) full: Result<bool, String>,
}

impl Default for Upkeep {
    /// All is well.
    fn default() -> Self {
        Self {
            old_library: false,
            open_library: None,
            old_monitor: None,
            missing_memory: Vec::new(),
            full: Ok(false),
        }
    }
}
