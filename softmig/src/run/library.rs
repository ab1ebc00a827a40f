//! How the library comes into the processes of a run.

use crate::machine::install::library::beside_command;
use crate::machine::preload;
use anyhow::{Context, bail, ensure};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where it is installed.
const INSTALLED: &str = "/usr/lib/softmig/libsoftmig.so";

/// The beginning of a shared object for this machine, but for the bytes in between: the magic number, 64 bits, little
/// endian; then its kind and its machine.
const MAGIC: &[u8] = b"\x7fELF\x02\x01";
const SHARED: u16 = 3;
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// The library that the loader is told to load; `None` where it loads the library into every process by itself.
pub(crate) fn find(wanted: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    // A list whose owner is unknown in a user namespace is not read: to load a file twice loads it once.
    let named = preload::named_libraries().unwrap_or_default();
    let listed = named.iter().map(Path::new).find(|path| path.exists());
    match (listed, wanted) {
        (Some(listed), Some(wanted)) if !is_same(listed, wanted) => bail!(
            "{} puts {} into every process here, and two of them do not go together; leave out --library",
            preload::PATH,
            listed.display()
        ),
        (Some(_), _) => Ok(None),
        (None, Some(wanted)) => check(wanted).map(Some),
        (None, None) => check(&installed()?).map(Some),
    }
}

/// The installed one, or that beside this command.
fn installed() -> anyhow::Result<PathBuf> {
    let installed = PathBuf::from(INSTALLED);
    if installed.exists() {
        return Ok(installed);
    }
    beside_command().ok().with_context(|| {
        format!("{INSTALLED} does not exist; name the library with --library FILE")
    })
}

/// The whole path of a library that the loader will take.
fn check(path: &Path) -> anyhow::Result<PathBuf> {
    let path = std::path::absolute(path).with_context(|| format!("{}", path.display()))?;
    // Characters that the loader takes for an end or for a variable.
    let odd = |byte: &u8| matches!(byte, b':' | b'$') || byte.is_ascii_whitespace();
    ensure!(
        !path.as_os_str().as_bytes().iter().any(odd),
        "{}: the loader takes no path with blanks, ':' or '$' in it; copy the library elsewhere",
        path.display()
    );
    let mut head = Vec::new();
    let file = File::open(&path).with_context(|| format!("{}", path.display()))?;
    let is_plain = file.metadata().is_ok_and(|file| file.is_file());
    if is_plain {
        file.take(20)
            .read_to_end(&mut head)
            .with_context(|| format!("reading {}", path.display()))?;
    }
    ensure!(
        is_library(&head),
        "{} is not a shared library for this machine; --library takes a libsoftmig.so",
        path.display()
    );
    Ok(path)
}

fn is_library(head: &[u8]) -> bool {
    let word = |at: usize| {
        head.get(at..at + 2)
            .map(|word| u16::from_le_bytes([word[0], word[1]]))
    };
    head.starts_with(MAGIC) && word(16) == Some(SHARED) && word(18) == Some(MACHINE)
}

fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| path.metadata().ok().map(|file| (file.dev(), file.ino()));
    file(one).is_some_and(|found| file(other) == Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_texts_are_no_libraries() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lib.so");
        let head = |kind: u8, machine: u8| {
            [MAGIC, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, kind, 0, machine, 0]].concat()
        };
        let machine = u8::try_from(MACHINE).unwrap();
        for (bytes, is) in [
            (head(3, machine), true),
            (head(2, machine), false),
            (head(3, 40), false),
            (b"#!/bin/sh\n".to_vec(), false),
            (Vec::new(), false),
        ] {
            std::fs::write(&file, &bytes).unwrap();
            assert_eq!(check(&file).is_ok(), is, "{bytes:?}");
        }
        let error = check(folder.path()).unwrap_err().to_string();
        assert!(error.contains("not a shared library"), "{error}");
        let error = check(Path::new("/a b/lib.so")).unwrap_err().to_string();
        assert!(error.contains("takes no path with blanks"), "{error}");
        assert!(check(&folder.path().join("none.so")).is_err());
    }
}
