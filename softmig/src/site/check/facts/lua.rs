//! The plugins by which Slurm asks softmig, the Lua that they are for, and softmig's modules.

use crate::ask::conf::Seen;
use std::path::PathBuf;

/// The two plugins by which Slurm asks softmig, as they are on this machine.
#[derive(Clone, Debug)]
pub(crate) struct LuaPlugins {
    /// In slurmctld.
    pub(crate) job_submit: LuaPlugin,
    /// In sbatch, salloc and srun.
    pub(crate) cli_filter: LuaPlugin,
}

/// A plugin of Slurm's that runs a Lua script, which loads softmig's module.
#[derive(Clone, Debug)]
pub(crate) struct LuaPlugin {
    /// Whether slurm.conf has it, and this machine needs it.
    pub(crate) used: bool,
    /// The script beside slurm.conf; `None` if it is needed but does not exist.
    pub(crate) script: Seen<Option<String>>,
    /// The Lua that the plugin is linked with, and softmig's module for it.
    pub(crate) lua: Seen<Lua>,
}

/// A version of Lua such as 5.1, or of the C library such as 2.17.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u16, pub(crate) u16);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The Lua of one of Slurm's plugins, and softmig's module for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lua {
    /// The Lua that the plugin is linked with.
    pub(crate) slurm: Version,
    /// A library that Slurm tries before that: its path, and its version.
    pub(crate) first: Option<(PathBuf, Version)>,
    /// The module that the script loads for that version.
    pub(crate) module: LuaModule,
}

/// One of softmig's Lua modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LuaModule {
    /// The path at which it belongs.
    pub(crate) path: PathBuf,
    /// The Lua that it is built for; `None` if it does not exist.
    pub(crate) built_for: Option<Seen<Version>>,
    /// The glibc that it needs and the machine's, if the machine's is older.
    pub(crate) newer_glibc: Option<(Version, Version)>,
}
