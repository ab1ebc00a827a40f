//! /etc/ld.so.preload: the list of libraries that the loader puts into every process. Loaders of software stacks have lists of their
//! own ([`loaders`](super::loaders)).
//!
//! A list belongs to the administrator. softmig adds one line at its end and takes that away again; whatever else is
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

/// Where the system's is.
pub(crate) const PATH: &str = "/etc/ld.so.preload";

/// Where the library goes.
pub(crate) const FOLDER: &str = "/usr/lib/softmig";
/// The library's file name.
pub(crate) const LIBRARY: &str = "libsoftmig.so";

/// The beginning of the name of a note in softmig's own folder: that softmig made the list, so that it may remove it when it is empty.
/// A comment in the list would say it better, but glibc takes only the first comment of a file for one in every case, and that one is
/// the administrator's.
const MADE_BY_US: &str = ".made-";

/// No loader gets through a longer one in reasonable time.
const LONGEST: u64 = 1 << 20;

/// The file as it was found.
#[derive(Debug)]
pub(crate) struct Preload {
    folder: Dir,
    path: PathBuf,
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
    /// Reads the system's list.
    pub(crate) fn read() -> anyhow::Result<Self> {
        Self::read_from(Path::new(PATH))
    }

    /// Reads a list.
    pub(crate) fn read_from(path: &Path) -> anyhow::Result<Self> {
        let (shown, in_folder) = (path.display(), path.parent().unwrap_or(path));
        let folder = Dir::open(in_folder, 0)
            .map_err(explained)?
            .with_context(|| format!("{} does not exist", in_folder.display()))?;
        let mut list = Self {
            folder,
            path: path.to_path_buf(),
            found: None,
        };
        let (folder, name) = (&list.folder, list.name());
        let is_link = || matches!(folder.stat_of(name), Ok(Some(stat)) if stat.st_mode & 0o170_000 == 0o120_000);
        let opened = folder.open_file(name).map_err(|error| match is_link() {
            true => anyhow::anyhow!(
                "{shown} is a link; put a file in its place that says the same, since softmig changes no other file"
            ),
            false => explained(error),
        });
        let Some(file) = opened? else {
            return Ok(list);
        };
        let stat = file
            .metadata()
            .with_context(|| format!("looking at {shown}"))?;
        let text = folder.read(name, LONGEST).map_err(explained)?;
        ensure!(
            stat.len() < LONGEST,
            "{shown} is too long to be a list of libraries; look at it by hand"
        );
        list.found = Some(Found {
            text: text.unwrap_or_default(),
            mode: stat.mode() & 0o7777,
            uid: stat.uid(),
            gid: stat.gid(),
        });
        Ok(list)
    }

    /// Its name in its folder.
    fn name(&self) -> &str {
        let name = self.path.file_name().and_then(OsStr::to_str);
        name.unwrap_or_default()
    }

    /// The name of the note that softmig made it.
    fn note(&self) -> String {
        match self.path == Path::new(PATH) {
            true => format!("{MADE_BY_US}{}", self.name()),
            false => format!(
                "{MADE_BY_US}{}",
                self.path.display().to_string().replace('/', "-")
            ),
        }
    }

    /// Fails when others than root could change it.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if let Some(Found { mode, uid, .. }) = &self.found {
            let path = self.path.display();
            ensure!(
                *uid == 0 && mode & 0o022 == 0,
                "{path} can be changed by others than root (owner {uid}, mode {mode:04o}); \
                 use 'chown root:root {path}' and 'chmod 644 {path}'"
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
        self.prepare(&with(self.text(), library))?;
        if self.found.is_none() {
            ours.open_or_create(&self.note(), 0o600)
                .map_err(explained)?;
        }
        Ok(Change {
            replaced: Replaced::by_fresh(&self.folder, self.name())?,
            made_by_us: self.found.is_none().then(|| (ours, self.note())),
        })
    }

    /// Makes it name the library no more. A file that softmig made goes with its last entry.
    pub(crate) fn take_out(&self, library: &Path, ours: &Dir) -> anyhow::Result<()> {
        self.check_unchanged()?;
        let text = self.text_without(library);
        let (folder, name, note) = (&self.folder, self.name(), self.note());
        folder.remove(&old_name(name)).map_err(explained)?;
        let made_by_us = ours.stat_of(&note).map_err(explained)?.is_some();
        if !(text.is_empty() && made_by_us) {
            self.prepare(&text)?;
            return folder.rename(&fresh_name(name), name).map_err(explained);
        }
        folder.remove(name).map_err(explained)?;
        ours.remove(&note).map(drop).map_err(explained)
    }

    /// Others may have changed it while the library was tried.
    fn check_unchanged(&self) -> anyhow::Result<()> {
        ensure!(
            Self::read_from(&self.path)?.found == self.found,
            "{} was changed by another program just now; look at it and try again",
            self.path.display()
        );
        Ok(())
    }

    /// Makes the file that is to come in its place, with its mode and owner.
    fn prepare(&self, text: &[u8]) -> anyhow::Result<()> {
        let mode = self.found.as_ref().map_or(0o644, |found| found.mode);
        let file = fresh(&self.folder, self.name(), mode, text)?;
        if let Some(Found { uid, gid, .. }) = self.found {
            fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
                .with_context(|| format!("giving {} its owner", self.path.display()))?;
        }
        Ok(())
    }
}

/// Whether a list can have this path: the loader splits it at blanks and colons, takes `#` for a comment and replaces what begins with
/// `$`.
pub(crate) fn is_plain(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._+-@".contains(byte);
    bytes.iter().all(is_plain)
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
    /// The folder with the note, and the note, where there was no list.
    made_by_us: Option<(&'a Dir, String)>,
}

impl Change<'_> {
    /// Brings back the very file that was there.
    pub(crate) fn undo(self) -> anyhow::Result<()> {
        self.replaced.undo()?;
        if let Some((ours, note)) = self.made_by_us {
            ours.remove(&note).map_err(explained)?;
        }
        Ok(())
    }

    /// Leaves it so.
    pub(crate) fn keep(self) {
        self.replaced.keep();
    }
}
