//! /etc/ld.so.preload: the list of libraries that the loader puts into every process.
//!
//! It belongs to the administrator. softmig adds one line at its end and takes that away again; whatever else is
//! there stays as it is, byte for byte. A reader finds the old file or the new one, never a part.

pub(crate) mod entries;

use crate::files::config_lock::{Replaced, explained, fresh, fresh_name, old_name};
use crate::machine::preload::entries::{entries, with, without};
use anyhow::{Context, ensure};
use rustix::fs::{Gid, Uid, fchown};
use softmig_node::dir::Dir;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const NAME: &str = "ld.so.preload";

/// Where it is, for messages.
pub(crate) const PATH: &str = "/etc/ld.so.preload";

/// Where the library goes.
pub(crate) const FOLDER: &str = "/usr/lib/softmig";
/// The library's file name.
pub(crate) const LIBRARY: &str = "libsoftmig.so";

/// In softmig's own folder: a note that softmig made the list, so that it may remove it when it is empty. A comment in
/// the list would say it better, but glibc takes only the first comment of a file for one in every case, and that one
/// is the administrator's.
const MADE_BY_US: &str = ".made-ld.so.preload";

/// No loader gets through a longer one in reasonable time.
const LONGEST: u64 = 1 << 20;

/// The file as it was found.
#[derive(Debug)]
pub(crate) struct Preload {
    etc: Dir,
    found: Option<Found>,
}

#[derive(Debug, PartialEq, Eq)]
struct Found {
    text: Vec<u8>,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Preload {
    /// Reads the file.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let etc = Dir::open(Path::new("/etc"), 0)
            .map_err(explained)?
            .context("/etc does not exist")?;
        let Some(file) = etc.open_file(NAME).map_err(|error| match etc.stat_of(NAME) {
            Ok(Some(stat)) if stat.st_mode & 0o170_000 == 0o120_000 => anyhow::anyhow!(
                "{PATH} is a link; put a file in its place that says the same, since softmig changes no other file"
            ),
            _ => explained(error),
        })?
        else {
            return Ok(Self { etc, found: None });
        };
        let stat = file
            .metadata()
            .with_context(|| format!("looking at {PATH}"))?;
        let text = etc
            .read(NAME, LONGEST)
            .map_err(explained)?
            .unwrap_or_default();
        ensure!(
            stat.len() < LONGEST,
            "{PATH} is too long to be a list of libraries; look at it by hand"
        );
        let found = Found {
            text,
            mode: stat.mode() & 0o7777,
            uid: stat.uid(),
            gid: stat.gid(),
        };
        Ok(Self {
            etc,
            found: Some(found),
        })
    }

    /// Fails when others than root could change it.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if let Some(Found { mode, uid, .. }) = &self.found {
            ensure!(
                *uid == 0 && mode & 0o022 == 0,
                "{PATH} can be changed by others than root (owner {uid}, mode {mode:04o}); \
                 use 'chown root:root {PATH}' and 'chmod 644 {PATH}'"
            );
        }
        Ok(())
    }

    /// Its text.
    pub(crate) fn text(&self) -> &[u8] {
        self.found.as_ref().map_or(&[], |found| &found.text)
    }

    /// Whether it names this library, by whichever path.
    pub(crate) fn names(&self, library: &Path) -> bool {
        !self.spellings(library).is_empty()
    }

    /// The entries that are this library. `/lib` is often a link to `/usr/lib`, so one file has several paths.
    pub(crate) fn spellings(&self, library: &Path) -> Vec<PathBuf> {
        let paths = entries(self.text()).map(|entry| PathBuf::from(OsStr::from_bytes(entry)));
        paths.filter(|path| is_same(path, library)).collect()
    }

    /// Its text without the library.
    pub(crate) fn text_without(&self, library: &Path) -> Vec<u8> {
        let spellings = self.spellings(library);
        spellings
            .iter()
            .fold(self.text().to_vec(), |text, path| without(&text, path))
    }

    /// The libraries of softmig's name in it that are other files than this one.
    pub(crate) fn others(&self, library: &Path) -> Vec<String> {
        let mut named = self.named();
        named.retain(|path| !is_same(Path::new(path), library));
        named
    }

    /// All libraries of softmig's name in it.
    pub(crate) fn named(&self) -> Vec<String> {
        entries(self.text())
            .filter(|entry| {
                Path::new(OsStr::from_bytes(entry)).file_name() == Some(LIBRARY.as_ref())
            })
            .map(|entry| entry.escape_ascii().to_string())
            .collect()
    }

    /// Makes it name the library too.
    pub(crate) fn add<'a>(&'a self, library: &Path, ours: &'a Dir) -> anyhow::Result<Change<'a>> {
        self.check_unchanged()?;
        if self.found.is_none() {
            ours.open_or_create(MADE_BY_US, 0o600).map_err(explained)?;
        }
        self.prepare(&with(self.text(), library))?;
        Ok(Change {
            replaced: Replaced::by_fresh(&self.etc, NAME)?,
            made_by_us: self.found.is_none().then_some(ours),
        })
    }

    /// Makes it name the library no more. A file that softmig made goes with its last entry.
    pub(crate) fn take_out(&self, library: &Path, ours: &Dir) -> anyhow::Result<()> {
        self.check_unchanged()?;
        let text = self.text_without(library);
        self.etc.remove(&old_name(NAME)).map_err(explained)?;
        let made_by_us = ours.stat_of(MADE_BY_US).map_err(explained)?.is_some();
        if !(text.is_empty() && made_by_us) {
            self.prepare(&text)?;
            return self.etc.rename(&fresh_name(NAME), NAME).map_err(explained);
        }
        self.etc.remove(NAME).map_err(explained)?;
        ours.remove(MADE_BY_US).map(drop).map_err(explained)
    }

    /// Others may have changed it while the library was tried.
    fn check_unchanged(&self) -> anyhow::Result<()> {
        ensure!(
            Self::read()?.found == self.found,
            "{PATH} was changed by another program just now; look at it and try again"
        );
        Ok(())
    }

    /// Makes the file that is to come in its place, with its mode and owner.
    fn prepare(&self, text: &[u8]) -> anyhow::Result<()> {
        let mode = self.found.as_ref().map_or(0o644, |found| found.mode);
        let file = fresh(&self.etc, NAME, mode, text)?;
        if let Some(Found { uid, gid, .. }) = self.found {
            fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
                .with_context(|| format!("giving {PATH} its owner"))?;
        }
        Ok(())
    }
}

/// Whether two paths lead to the same file, or would if it were there.
fn is_same(entry: &Path, library: &Path) -> bool {
    let file = |path: &Path| {
        let stat = path.metadata().ok()?;
        Some((stat.dev(), stat.ino()))
    };
    let place = |path: &Path| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    entry == library
        || file(entry).is_some_and(|found| file(library) == Some(found))
        || place(entry).is_some_and(|found| place(library) == Some(found))
}

/// The libraries of softmig's name that the loader loads now.
pub(crate) fn named_libraries() -> anyhow::Result<Vec<String>> {
    Ok(Preload::read()?.named())
}

/// Those among them without a file. A path with a `$` only the loader can find.
pub(crate) fn missing_libraries() -> anyhow::Result<Vec<String>> {
    let mut named = named_libraries()?;
    named.retain(|path| !path.contains('$') && !Path::new(path).exists());
    Ok(named)
}

/// A change that can still be taken back.
#[derive(Debug)]
#[must_use]
pub(crate) struct Change<'a> {
    replaced: Replaced<'a>,
    /// The folder with the note, where there was no list.
    made_by_us: Option<&'a Dir>,
}

impl Change<'_> {
    /// Brings back the very file that was there.
    pub(crate) fn undo(self) -> anyhow::Result<()> {
        self.replaced.undo()?;
        if let Some(ours) = self.made_by_us {
            ours.remove(MADE_BY_US).map_err(explained)?;
        }
        Ok(())
    }

    /// Leaves it so.
    pub(crate) fn keep(self) {
        self.replaced.keep();
    }
}
