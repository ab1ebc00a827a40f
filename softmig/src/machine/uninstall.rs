//! `softmig uninstall --hook`: takes the library out of new processes, and away. Packages remove all other files.

use crate::ask::monitor;
use crate::files::config_lock::{self, Etc, be_root, explained};
use crate::machine::install::{library, stacks};
use crate::machine::preload::{self, FOLDER, LIBRARY, Preload};
use crate::output::say::say;
use anyhow::{Context, ensure};
use clap::Args;
use softmig_node::dir::Dir;
use softmig_node::node::Node;
use std::iter;
use std::path::{Path, PathBuf};

/// Takes libsoftmig.so out of new processes. Packages remove all other files.
///
/// Takes softmig's own entry, and nothing else, out of /etc/ld.so.preload and the lists that install was given, and removes the library's file. Processes that run
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
    let spellings = take_out(Path::new(preload::PATH), &library, &etc)?;
    // Without the library no program could open a slice's GPU.
    let gate = Node::this_machine().gate;
    let removed = softmig_gate::remove(&gate);
    if removed.with_context(|| format!("removing the device gate, {}", gate.display()))? {
        say!("the device gate is gone");
    }
    tell_of(Path::new(preload::PATH), &spellings, &library);
    check_others(Path::new(preload::PATH), &library)?;
    from_other_lists(&library, &etc)?;
    remove(folder, &library)?;
    if monitor::runs() {
        say!(
            "softmig-monitor still runs, and measures jobs from outside; to end it: {}",
            monitor::STOP
        );
    }
    Ok(())
}

/// Takes the library out of a list, and gives the paths by which that named it.
fn take_out(list: &Path, library: &Path, etc: &Etc) -> anyhow::Result<Vec<PathBuf>> {
    let preload = Preload::read_from(list)?;
    let spellings = preload.spellings(library);
    if !spellings.is_empty() {
        preload.take_out(library, &etc.dir)?;
    }
    Ok(spellings)
}

fn tell_of(list: &Path, spellings: &[PathBuf], library: &Path) {
    let list = list.display();
    if spellings.is_empty() {
        say!("{list}: does not name {}", library.display());
    }
    for path in spellings {
        say!("{list}: names {} no more", path.display());
    }
}

/// The same of the lists of other loaders that install was given. Those that cannot be changed stay noted, and the file stays.
fn from_other_lists(library: &Path, etc: &Etc) -> anyhow::Result<()> {
    let (mut left, mut failed) = (Vec::new(), Vec::new());
    for list in stacks::noted(&etc.dir)? {
        if is_gone(&list) {
            say!("{}: is no more", list.display());
            continue;
        }
        let taken = take_out(&list, library, etc).and_then(|spellings| {
            tell_of(&list, &spellings, library);
            check_others(&list, library)
        });
        if let Err(error) = taken {
            failed.push(format!("{}: {error:#}", list.display()));
            left.push(list);
        }
    }
    stacks::note(&left, etc)?;
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

/// Whether a list's folder has gone, as of a stack that was removed.
fn is_gone(list: &Path) -> bool {
    list.parent().is_none_or(|folder| !folder.exists())
}

/// Fails while an entry is left that may be the library. Only the loader knows what some mean, such as one with
/// `$LIB`, and each process would complain about a library that is named but missing.
fn check_others(list: &Path, library: &Path) -> anyhow::Result<()> {
    let now = Preload::read_from(list)?;
    let others = now.named();
    ensure!(
        others.is_empty() && !now.names(library),
        "{} still names {}, so no file is removed; give its folder with --libdir, or take its line out by hand, then \
         do this again",
        list.display(),
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
    let ours = Dir::open(Path::new(config_lock::FOLDER), 0).map_err(explained)?;
    let others = ours.map_or(Ok(Vec::new()), |ours| stacks::noted(&ours))?;
    let others = others.into_iter().filter(|list| !is_gone(list));
    for list in iter::once(PathBuf::from(preload::PATH)).chain(others) {
        let spellings = Preload::read_from(&list)?.spellings(&path);
        if spellings.is_empty() {
            say!("{} does not name {library}", list.display());
        }
        for path in spellings {
            say!("would take {} out of {}", path.display(), list.display());
        }
    }
    match (path.exists(), library::came_with_command(&path)) {
        (false, _) => say!("{library} does not exist, so none is removed"),
        (true, true) => say!("would leave {library}: it came with this command"),
        (true, false) => say!("would remove {library}"),
    }
    Ok(())
}
