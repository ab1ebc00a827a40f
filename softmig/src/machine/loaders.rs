//! Loaders besides the system's: those of software stacks that bring a C library of their own, such as Nix, Guix and Gentoo
//! prefixes. Each reads a list of libraries of its own, whose path is in it. Its programs are held to nothing unless the library is in
//! that list.

use crate::machine::preload::{self, LIBRARY, entries::entries, is_plain};
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// Where stacks have their loaders: Nix, Guix, EESSI, the Alliance's, and Gentoo prefixes on a file system of their own.
const PLACES: [&str; 6] = [
    "nix/store/*-glibc-*/lib/ld-linux-x86-64.so.2",
    "gnu/store/*-glibc-*/lib/ld-linux-x86-64.so.2",
    "cvmfs/software.eessi.io/versions/*/compat/linux/x86_64/lib*/ld-linux-x86-64.so.2",
    "cvmfs/soft.computecanada.ca/gentoo/*/*/lib*/ld-linux-x86-64.so.2",
    "cvmfs/soft.computecanada.ca/nix/store/*-glibc-*/lib/ld-linux-x86-64.so.2",
    "opt/gentoo/lib*/ld-linux-x86-64.so.2",
];

/// How long the file systems are waited for: some are another site's.
const PATIENCE: Duration = Duration::from_secs(10);

/// No loader is larger.
const LONGEST: u64 = 16 << 20;

/// The end of the path of a list, in each loader.
const ENDING: &[u8] = b".so.preload\0";

/// A list of libraries that is not the system's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// A loader that reads it.
    pub(crate) loader: PathBuf,
    /// Whether it names the library.
    pub(crate) names_library: bool,
}

/// The lists that loaders of this machine read besides the system's.
pub(crate) fn lists() -> Result<Vec<List>, &'static str> {
    let (sender, receiver) = mpsc::channel();
    // This fails when it was too late.
    std::thread::spawn(move || sender.send(below(Path::new("/"))));
    let late = |_| "a file system that has software stacks does not answer";
    receiver.recv_timeout(PATIENCE).map_err(late)
}

fn below(root: &Path) -> Vec<List> {
    let patterns = PLACES.iter().map(|place| root.join(place));
    let found = patterns.filter_map(|pattern| glob::glob(pattern.to_str()?).ok());
    let mut lists = BTreeMap::new();
    for loader in found.flatten().flatten() {
        let is_other = |path: &PathBuf| path != Path::new(preload::PATH);
        if let Some(path) = list_of(&loader).filter(|path| is_other(path) && is_plain(&loader)) {
            lists.entry(path).or_insert(loader);
        }
    }
    let list = |(path, loader): (PathBuf, PathBuf)| List {
        names_library: names_library(&path),
        path,
        loader,
    };
    lists.into_iter().map(list).collect()
}

/// The list that a loader reads, by the text of the loader. Users can put files into some stores, so it is read, and never run.
fn list_of(loader: &Path) -> Option<PathBuf> {
    let bytes = read(loader)?;
    let ending = bytes.windows(ENDING.len()).position(|it| it == ENDING)?;
    let end = ending + ENDING.len() - 1;
    let begin = bytes.get(..end)?.iter().rposition(|byte| *byte == 0)? + 1;
    let path = Path::new(OsStr::from_bytes(bytes.get(begin..end)?));
    (path.is_absolute() && is_plain(path)).then(|| path.to_path_buf())
}

/// A plain file's beginning, as far as any loader or list goes. Nothing else is opened: that alone does something to some devices.
fn read(path: &Path) -> Option<Vec<u8>> {
    let flags = OFlags::PATH.bits().cast_signed();
    let place = File::options()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .ok()?;
    if !place.metadata().ok()?.is_file() {
        return None;
    }
    let file = File::open(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()?;
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn names_library(list: &Path) -> bool {
    let text = read(list).unwrap_or_default();
    entries(&text).any(|entry| Path::new(OsStr::from_bytes(entry)).ends_with(LIBRARY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_list_is_found_once_by_the_text_of_its_loaders() {
        let root = tempfile::tempdir().unwrap();
        let loader = |place: &str, list: &str| {
            let path = root.path().join(place);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let text = format!("\x7fELF\0other.so\0{list}\0/etc/ld.so.cache\0");
            std::fs::write(path, text).unwrap();
        };
        let named = root.path().join("ld-nix.so.preload");
        std::fs::write(&named, "/usr/lib/softmig/libsoftmig.so\n").unwrap();
        let named = named.to_str().unwrap();
        loader("nix/store/a-glibc-2.40/lib/ld-linux-x86-64.so.2", named);
        loader("nix/store/b-glibc-2.42/lib/ld-linux-x86-64.so.2", named);
        loader(
            "nix/store/c-hello-2/lib/ld-linux-x86-64.so.2",
            "/etc/x.so.preload",
        );
        let eessi = "cvmfs/software.eessi.io/versions/2023.06/compat/linux/x86_64/lib64/ld-linux-x86-64.so.2";
        loader(eessi, "/none/etc/ld.so.preload");
        loader(
            "gnu/store/d-glibc-2.39/lib/ld-linux-x86-64.so.2",
            preload::PATH,
        );
        loader(
            "opt/gentoo/lib64/ld-linux-x86-64.so.2",
            "relative.so.preload",
        );
        let found = below(root.path());
        let found: Vec<(&str, bool)> = (found.iter())
            .map(|list| (list.path.to_str().unwrap(), list.names_library))
            .collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found.contains(&(named, true)) && found.contains(&("/none/etc/ld.so.preload", false))
        );
    }

    #[test]
    fn the_systems_own_loader_reads_the_systems_list() {
        let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
        assert_eq!(list_of(loader), Some(preload::PATH.into()));
    }
}
