//! `softmig uninstall --hook`: takes the library out of new processes, and away. Packages remove all other files.

use crate::ask::monitor;
use crate::files::config_lock::{Etc, be_root, explained};
use crate::machine::install::library;
use crate::machine::preload::{self, FOLDER, LIBRARY, Preload};
use crate::output::say::say;
use anyhow::{Context, ensure};
use clap::Args;
use softmig_node::dir::Dir;
use softmig_node::node::Node;
use std::path::{Path, PathBuf};

/// Takes libsoftmig.so out of new processes. Packages remove all other files.
///
/// Takes softmig's own entry, and nothing else, out of /etc/ld.so.preload, and removes the library's file. Processes that run
/// keep the library until they end.
///
/// Exit status: 0 done, also when there was nothing to do; 2 wrong usage; 1 all else.
#[derive(Args)]
pub(crate) struct Uninstall {
    /// Confirms that new processes are not to load the library
    #[arg(long, required = true)]
    hook: bool,
    /// The folder that the library is in
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    libdir: PathBuf,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

impl Uninstall {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        be_root("softmig uninstall")?;
        // Not checked for trust: the less the folder is to be trusted, the more its entry has to go.
        let folder = self
            .libdir
            .canonicalize()
            .unwrap_or_else(|_| self.libdir.clone());
        if self.dry_run {
            tell(&folder)
        } else {
            uninstall(&folder)
        }
    }
}

fn uninstall(folder: &Path) -> anyhow::Result<()> {
    let etc = Etc::lock()?;
    let library = folder.join(LIBRARY);
    let preload = Preload::read()?;
    let spellings = preload.spellings(&library);
    if spellings.is_empty() {
        say!("{}: does not name {}", preload::PATH, library.display());
    } else {
        preload.take_out(&library, &etc.dir)?;
    }
    // Without the library no program could open a slice's GPU.
    let gate = Node::this_machine().gate;
    let removed = softmig_gate::remove(&gate);
    if removed.with_context(|| format!("removing the device gate, {}", gate.display()))? {
        say!("the device gate is gone");
    }
    for path in spellings {
        say!("{}: names {} no more", preload::PATH, path.display());
    }
    check_others(&library)?;
    remove(folder, &library)?;
    if monitor::runs() {
        say!(
            "softmig-monitor still runs, and measures jobs from outside; to end it: {}",
            monitor::STOP
        );
    }
    Ok(())
}

/// Fails while an entry is left that may be the library. Only the loader knows what some mean, such as one with
/// `$LIB`, and each process would complain about a library that is named but missing.
fn check_others(library: &Path) -> anyhow::Result<()> {
    let now = Preload::read()?;
    let others = now.named();
    ensure!(
        others.is_empty() && !now.names(library),
        "{} still names {}, so no file is removed; give its folder with --libdir, or take its line out by hand, then \
         do this again",
        preload::PATH,
        others.join(", ")
    );
    Ok(())
}

/// Removes the file; by now the list names it no more.
fn remove(folder: &Path, library: &Path) -> anyhow::Result<()> {
    if library::came_with_command(library) {
        say!("{} stays: it came with this command", library.display());
        return Ok(());
    }
    let removed = match Dir::open(folder, 0).map_err(explained)? {
        Some(dir) => library::remove(&dir)?,
        None => false,
    };
    if removed {
        say!("{} is removed", library.display());
    }
    Ok(())
}

fn tell(folder: &Path) -> anyhow::Result<()> {
    let path = folder.join(LIBRARY);
    let library = path.display();
    let spellings = Preload::read()?.spellings(&path);
    if spellings.is_empty() {
        say!("{} does not name {library}", preload::PATH);
    }
    for path in spellings {
        say!("would take {} out of {}", path.display(), preload::PATH);
    }
    match (path.exists(), library::came_with_command(&path)) {
        (false, _) => say!("{library} does not exist, so none is removed"),
        (true, true) => say!("would leave {library}: it came with this command"),
        (true, false) => say!("would remove {library}"),
    }
    Ok(())
}
