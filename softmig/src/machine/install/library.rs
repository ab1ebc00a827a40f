//! The library's file: where it comes from, and how it comes to its place.
//!
//! A process that runs has the old file mapped. So a new one comes beside it and takes its name by rename; nothing is
//! ever written into a file that has the name.

use crate::files::config_lock::{Replaced, explained, fresh, fresh_name, old_name};
use crate::machine::preload::LIBRARY;
use anyhow::{Context, ensure};
use softmig_node::dir::Dir;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const MODE: u32 = 0o755;
/// The library has some ten thousand bytes. A far larger file is something else.
const LONGEST: u64 = 16 << 20;

/// The library as it was built.
#[derive(Debug)]
pub(crate) struct Source {
    /// Where it lies.
    pub(crate) path: PathBuf,
    bytes: Vec<u8>,
}

impl Source {
    /// Reads the file that the administrator names, or else the one that came with this command.
    pub(crate) fn read(from: Option<&Path>) -> anyhow::Result<Self> {
        let path = match from {
            Some(path) => path.to_path_buf(),
            None => beside_command()?,
        };
        let file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        let plain = file.metadata().is_ok_and(|file| file.is_file());
        let mut bytes = Vec::new();
        if plain {
            file.take(LONGEST)
                .read_to_end(&mut bytes)
                .with_context(|| format!("reading {}", path.display()))?;
        }
        ensure!(
            plain && !bytes.is_empty() && (bytes.len() as u64) < LONGEST,
            "{} is not a library; name the one to install with --from",
            path.display()
        );
        Ok(Self { path, bytes })
    }
}

/// Where the library lies in the tree or the folder that this command is in: `bin/softmig` has it in `lib/softmig/staged/`,
/// as a package and as an unpacked archive, and one that was copied somewhere may have it beside itself. It is never the
/// file that processes load: a newer tree that is unpacked over an older one overwrites nothing that is in use.
pub(crate) fn beside_command() -> anyhow::Result<PathBuf> {
    let command = std::env::current_exe().context("finding this command's own file")?;
    let folder = command.parent().unwrap_or(Path::new("/"));
    let tree = folder
        .parent()
        .unwrap_or(folder)
        .join("lib/softmig/staged")
        .join(LIBRARY);
    [tree.clone(), folder.join(LIBRARY)]
        .into_iter()
        .find(|path| path.is_file())
        .with_context(|| {
            format!(
                "{LIBRARY} is not in {} or beside this command; name one with --from",
                tree.display()
            )
        })
}

/// A library about to take its place.
#[derive(Debug)]
pub(crate) struct Candidate<'a> {
    dir: &'a Dir,
    /// Whether the place holds it already, as it should be.
    pub(crate) in_place: bool,
    /// The file to try.
    pub(crate) path: PathBuf,
}

impl<'a> Candidate<'a> {
    /// Puts a copy beside the place, unless the place has it.
    pub(crate) fn prepare(dir: &'a Dir, source: &Source) -> anyhow::Result<Self> {
        let in_place = holds(dir, &source.bytes)?;
        if !in_place {
            fresh(dir, LIBRARY, MODE, &source.bytes)?;
        }
        let name = if in_place {
            LIBRARY.to_string()
        } else {
            fresh_name(LIBRARY)
        };
        let path = dir.path().join(name);
        Ok(Self {
            dir,
            in_place,
            path,
        })
    }

    /// Gives it its place; `None` where it has that.
    pub(crate) fn place(self) -> anyhow::Result<Option<Replaced<'a>>> {
        (!self.in_place)
            .then(|| Replaced::by_fresh(self.dir, LIBRARY))
            .transpose()
    }

    /// Takes the copy away again.
    pub(crate) fn discard(self) -> anyhow::Result<()> {
        if !self.in_place {
            self.dir.remove(&fresh_name(LIBRARY)).map_err(explained)?;
        }
        Ok(())
    }
}

/// Whether the place holds exactly this, as root's.
fn holds(dir: &Dir, bytes: &[u8]) -> anyhow::Result<bool> {
    let Ok(Some(file)) = dir.open_file(LIBRARY) else {
        return Ok(false);
    };
    let stat = file
        .metadata()
        .with_context(|| format!("looking at {LIBRARY}"))?;
    let same = dir
        .read(LIBRARY, LONGEST)
        .map_err(explained)?
        .is_some_and(|there| there == bytes);
    Ok(same && stat.uid() == 0 && stat.mode() & 0o7777 == MODE)
}

/// Removes the library and what an interrupted installation left. Processes that have it mapped keep it.
pub(crate) fn remove(dir: &Dir) -> anyhow::Result<bool> {
    dir.remove(&old_name(LIBRARY)).map_err(explained)?;
    dir.remove(&fresh_name(LIBRARY)).map_err(explained)?;
    dir.remove(LIBRARY).map_err(explained)
}

/// Whether this file is the one that came with this command, in the tree that it is part of.
pub(crate) fn came_with_command(path: &Path) -> bool {
    let same = |own: PathBuf| {
        let (own, other) = (fs::metadata(own).ok()?, fs::metadata(path).ok()?);
        Some((own.dev(), own.ino()) == (other.dev(), other.ino()))
    };
    beside_command().ok().and_then(same).unwrap_or(false)
}
