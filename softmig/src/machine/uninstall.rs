//! `softmig uninstall`: takes softmig away from this machine; `--hook` alone takes the library out of new processes.

use crate::files::config_lock::be_root;
use crate::machine::hook::unhook;
use crate::machine::preload::FOLDER;
use crate::machine::setup::removal::{self, Removal};
use clap::Args;
use std::path::PathBuf;

/// Takes softmig away from this machine; with --hook, only libsoftmig.so.
///
/// Stops, and changes nothing, while jobs have slices here or Slurm's configuration still names softmig: what is to be typed
/// first is said. Then takes the library out of /etc/ld.so.preload, stops the monitor and removes the files. Names what is
/// left; --purge removes that too. Processes that run keep the library until they end.
///
/// With --hook nothing but softmig's own entry goes from the list, and the library's file.
///
/// Exit status: 0 done, also when there was nothing to do; 2 wrong usage; 1 all else.
#[derive(Args)]
pub(crate) struct Uninstall {
    /// Only take the library out
    #[arg(long)]
    hook: bool,
    /// The folder that the library is in
    #[arg(long, value_name = "DIR", default_value = FOLDER, requires = "hook")]
    libdir: PathBuf,
    /// Remove softmig's settings, logs and what else would be left as well
    #[arg(long, conflicts_with = "hook")]
    purge: bool,
    /// Uninstall from the image of a diskless node in this folder
    #[arg(long, value_name = "DIR", conflicts_with = "hook")]
    root: Option<PathBuf>,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

impl Uninstall {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        be_root("softmig uninstall")?;
        if self.hook {
            return unhook::run(&self.libdir, self.dry_run);
        }
        removal::run(&Removal {
            purge: self.purge,
            root: self.root.clone(),
            dry_run: self.dry_run,
        })
    }
}
