//! Facts about the installed parts that run, and the policy that is in force.

use std::path::PathBuf;

/// The obstacle between slurmctld and policy.toml, and the policy that counts then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InForce {
    /// `SlurmUser`.
    pub(crate) user: String,
    /// The file, or the folder on the way to it, that this user may not read.
    pub(crate) closed: Option<PathBuf>,
    /// The stored policy, where it is another one.
    pub(crate) last_good: Option<PathBuf>,
}

/// Whether what is at work on a machine is what is installed there, and has room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upkeep {
    /// Whether the library that processes load is another one than the staged one.
    pub(crate) old_library: bool,
    /// How others than root could change it.
    pub(crate) open_library: Option<String>,
    /// The version of a running monitor whose file is gone.
    pub(crate) old_monitor: Option<String>,
    /// Whether the folder of jobs' limits has no room.
    pub(crate) full: Result<bool, String>,
}

impl Default for Upkeep {
    /// All is well.
    fn default() -> Self {
        Self {
            old_library: false,
            open_library: None,
            old_monitor: None,
            full: Ok(false),
        }
    }
}
