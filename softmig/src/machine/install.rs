//! `softmig install --hook`: puts the library where every process of the node loads it.
//!
//! gather, try apart, place, name, try in force. A kill between any two steps leaves a node that works: until the last
//! rename no process loads anything new, and what it then loads has been tried.

mod folder;
pub(crate) mod library;
mod program;
mod rehearsal;
pub(crate) mod stacks;
mod trial;

use crate::ask::monitor;
use crate::files::config_lock::{Etc, Replaced, be_root};
use crate::machine::install::library::{Candidate, Source};
use crate::machine::install::trial::Trial;
use crate::machine::node::{self, Mode, Settings};
use crate::machine::preload::{self, Change, FOLDER, LIBRARY, Preload};
use crate::output::say::say;
use anyhow::{Context, bail};
use clap::Args;
use softmig_policy::node::paths::NODE_CONF;
use std::path::{Path, PathBuf};

/// Puts libsoftmig.so where every process of a GPU node loads it. Packages bring all other files.
///
/// The library is first tried apart from the node, with programs of root's, of an ordinary user's and set-uid ones. Only if
/// none of them behaves differently is it placed and named in /etc/ld.so.preload; then all is tried again, and taken back on
/// any complaint. Can be repeated.
///
/// Exit status: 0 done, 2 wrong usage, 1 all else; then the message says what holds.
#[derive(Args)]
pub(crate) struct Install {
    // What changes every process of a machine is typed in full.
    /// Confirms that new processes are to load the library
    #[arg(long, required = true)]
    hook: bool,
    /// The library to install; without this, the one that came with this command
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// The folder to put it in
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    libdir: PathBuf,
    /// Name it in this list too, which the loader of another software stack reads, such as /etc/ld-nix.so.preload
    #[arg(long = "list", value_name = "FILE")]
    lists: Vec<PathBuf>,
    /// The node's mode, if none was ever set; later 'softmig node MODE' changes it
    #[arg(long, value_name = "MODE", default_value = "observe")]
    mode: Mode,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

impl Install {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        be_root("softmig install")?;
        if self.dry_run {
            return self.tell();
        }
        self.install()?;
        if !monitor::runs() {
            say!(
                "softmig-monitor does not run here, which divides each GPU's time among jobs: {}",
                monitor::START
            );
        }
        say!(
            "next: 'softmig check --node' measures on an idle GPU whether jobs can share it by its own scheduler, in some \
             seconds; without it the monitor believes the driver"
        );
        say!(
            "next: 'softmig node' shows the node's state; processes that already run go on without the library"
        );
        Ok(())
    }

    fn install(&self) -> anyhow::Result<()> {
        let source = Source::read(self.from.as_deref())?;
        let folder = folder::trusted(&self.libdir)?;
        let library = folder.join(LIBRARY);
        if Settings::read()?.is_none() {
            node::prepare(self.mode.into(), false)?;
        }
        let etc = Etc::lock()?;
        let preload = gather_preload(&library)?;
        install(&source, &folder, &preload, &etc)?;
        self.set_mode(&etc)
            .context("the library is in its place, but the mode is not set")?;
        stacks::name(&self.lists, &library, &etc)
            .context("the library is in its place, but not in all lists")?;
        warn_of_other_loader();
        Ok(())
    }

    /// A new node only observes: an installation under running jobs shows what it would refuse before it
    /// refuses anything.
    fn set_mode(&self, etc: &Etc) -> anyhow::Result<()> {
        match Settings::read_in(&etc.dir)? {
            None => node::switch(etc, self.mode.into()),
            Some(_) => {
                say!("{}: stays as it is", NODE_CONF);
                Ok(())
            }
        }
    }

    /// The dry run.
    fn tell(&self) -> anyhow::Result<()> {
        let source = Source::read(self.from.as_deref())?;
        let library = &folder::trusted(&self.libdir)?.join(LIBRARY);
        let preload = gather_preload(library)?;
        let (from, to) = (source.path.display(), library.display());
        say!(
            "would try {from} with programs of root, of user nobody and set-uid ones, apart from this node"
        );
        say!("would place it as {to}, owned by root, mode 0755");
        if preload.names(library) {
            say!("would leave {} alone: it names {to} already", preload::PATH);
        } else {
            say!("would add a line to {}: {to}", preload::PATH);
        }
        for list in &self.lists {
            say!("would add a line to {}: {to}", list.display());
        }
        say!(
            "would try the same programs on this node, and take all back if one of them behaves differently"
        );
        match Settings::read()? {
            None => say!(
                "would make {}, mode {}",
                NODE_CONF,
                softmig_policy::node::node_conf::NodeMode::from(self.mode)
            ),
            Some(_) => say!("would leave {} alone", NODE_CONF),
        }
        Ok(())
    }
}

/// A list of libraries holds for all loaders of a node, and this library is for one of them.
fn warn_of_other_loader() {
    const OTHER: &str = "/lib/ld-linux.so.2";
    if Path::new(OTHER).exists() {
        eprintln!(
            "softmig install: 32-bit programs run here too ({OTHER}): each will say that it cannot load the library"
        );
    }
}

/// Reads the list of libraries, and stops where it cannot be changed with good conscience.
fn gather_preload(library: &Path) -> anyhow::Result<Preload> {
    let preload = Preload::read()?;
    preload.check()?;
    if let Some(other) = preload.others(library).into_iter().next() {
        let folder = Path::new(&other)
            .parent()
            .unwrap_or(Path::new("/"))
            .display();
        bail!(
            "{} already names {other}, and two of them must not share a process; use --libdir {folder} to replace that \
             one, or take it out first: 'softmig uninstall --hook --libdir {folder}'",
            preload::PATH
        );
    }
    Ok(preload)
}

/// The steps that change the node.
fn install(source: &Source, folder: &Path, preload: &Preload, etc: &Etc) -> anyhow::Result<()> {
    let library = folder.join(LIBRARY);
    let dir = folder::open(folder)?;
    let candidate = Candidate::prepare(&dir, source)?;
    let trial = match Trial::rehearse(&candidate.path, &library, preload) {
        Ok(trial) => trial,
        Err(complaint) => {
            let in_force = candidate.in_place && preload.names(&library);
            candidate.discard()?;
            let outcome = if in_force {
                "it is still in force: take it out with 'softmig uninstall --hook'"
            } else {
                "nothing on this node has changed"
            };
            return Err(complaint.context(outcome));
        }
    };
    say!(
        "tried {} with {} programs: none behaves differently",
        source.path.display(),
        trial.programs()
    );
    let placed = candidate.place()?;
    let named = if preload.names(&library) {
        Ok(None)
    } else {
        preload.add(&library, &etc.dir).map(Some)
    };
    let named = match named {
        Ok(named) => named,
        Err(error) => return take_back(None, placed, error),
    };
    if let Err(complaint) = trial.in_force(&library) {
        return take_back(named, placed, complaint);
    }
    match named {
        Some(change) => {
            change.keep();
            say!(
                "{}: names {} now, and programs run as before",
                preload::PATH,
                library.display()
            );
        }
        None => say!("{}: named {} already", preload::PATH, library.display()),
    }
    if let Some(placed) = placed {
        placed.keep();
        say!("{}: placed anew", library.display());
    }
    Ok(())
}

/// Undoes what was done, last step first.
fn take_back(
    named: Option<Change<'_>>,
    placed: Option<Replaced<'_>>,
    why: anyhow::Error,
) -> anyhow::Result<()> {
    let undone = named
        .map_or(Ok(()), Change::undo)
        .and_then(|()| placed.map_or(Ok(()), Replaced::undo));
    match undone {
        Ok(()) => Err(why.context("all is as it was before")),
        Err(error) => bail!(
            "{why:#}; and that could not be taken back: {error:#}; remove softmig's line from {} by hand now",
            preload::PATH
        ),
    }
}
