//! `softmig install`: makes this machine, or an image of one, what its role in the cluster needs. `--hook` alone puts the
//! library where every process of a node loads it.

use crate::files::config_lock::be_root;
use crate::machine::hook::Hook;
use crate::machine::node::Mode;
use crate::machine::preload::FOLDER;
use crate::machine::setup::plan::{self, Options};
use crate::machine::setup::role::Role;
use clap::Args;
use std::path::PathBuf;

/// Makes this machine what its roles in the cluster need; with --hook, only puts libsoftmig.so in its place.
///
/// The files come from the tree that this command is in (target/stage, or / where a package brought them). Each step is said,
/// done and checked; if one fails, all before it are undone. Each file takes its place by rename, so running programs keep
/// what they have. Files in /etc that are not softmig's, or that were changed, stay as they are. Can be repeated.
///
/// The library is first tried apart from the node, with programs of root's, of an ordinary user's and set-uid ones. Only if
/// none of them behaves differently is it placed and named in /etc/ld.so.preload; then all is tried again, and taken back on
/// any complaint.
///
/// Exit status: 0 done, 2 wrong usage, 1 all else; then the message says what holds.
#[derive(Args)]
pub(crate) struct Install {
    /// The roles of this machine in the cluster; one or several
    #[arg(required_unless_present = "hook", conflicts_with = "hook")]
    roles: Vec<Role>,
    /// Only put the library in its place (packages do it so)
    #[arg(long)]
    hook: bool,
    /// With --hook the library to install, else the tree; without this, what came with this command
    #[arg(long, value_name = "PATH")]
    from: Option<PathBuf>,
    /// The folder to put the library in
    #[arg(long, value_name = "DIR", default_value = FOLDER, requires = "hook")]
    libdir: PathBuf,
    /// The node's mode, if none was ever set; later 'softmig node MODE' changes it
    #[arg(long, value_name = "MODE", default_value = "observe")]
    mode: Mode,
    /// Install into the image of a diskless node in this folder
    #[arg(long, value_name = "DIR", conflicts_with = "hook")]
    root: Option<PathBuf>,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

impl Install {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        be_root("softmig install")?;
        if self.hook {
            let hook = Hook {
                from: self.from.clone(),
                libdir: self.libdir.clone(),
                mode: self.mode,
            };
            return if self.dry_run {
                hook.tell()
            } else {
                hook.run()
            };
        }
        let options = Options {
            from: self.from.clone(),
            root: self.root.clone(),
            mode: self.mode,
            dry_run: self.dry_run,
        };
        plan::install(&self.roles, &options)
    }
}

/// Brings a newer or an older softmig to this machine: what 'softmig install' did, out of another tree.
///
/// Without ROLE those that 'softmig install' wrote down. The library changes only after its trial, and the monitor starts
/// again; jobs keep their limits. Run it from the new tree: target/stage/usr/bin/softmig upgrade.
///
/// Exit status: 0 done, 2 wrong usage, 1 all else; then the message says what holds.
#[derive(Args)]
pub(crate) struct Upgrade {
    /// The roles of this machine in the cluster
    roles: Vec<Role>,
    /// The tree; without this, the one that this command is in
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Upgrade the image of a diskless node in this folder
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

impl Upgrade {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        be_root("softmig upgrade")?;
        let options = Options {
            from: self.from.clone(),
            root: self.root.clone(),
            mode: Mode::Observe,
            dry_run: self.dry_run,
        };
        plan::upgrade(&self.roles, &options)
    }
}
