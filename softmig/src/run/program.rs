//! Finds out whether the library can be in a program. The user hears that before the run, and then expects no limits.

use rustix::process::{getgid, getuid};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The program's beginning, with the table of its parts; what is longer than that has the table elsewhere.
const HEAD: u64 = 64 << 10;

/// Why the library cannot be in the program of this name; `None` if it can, or if that is unknown.
pub(crate) fn cannot_hold(name: &OsStr) -> Option<&'static str> {
    let mut path = find(name)?;
    // A script is run by the program that its first line names.
    for _ in 0..4 {
        let mut head = Vec::new();
        let file = File::open(&path).ok()?;
        let stat = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        file.take(HEAD).read_to_end(&mut head).ok()?;
        let Some(line) = head.strip_prefix(b"#!") else {
            return if changes_user(&stat) {
                Some("it is set-uid or set-gid, where no variable of the caller's counts")
            } else {
                elf(&head)
            };
        };
        let mut words = line.split(|byte| byte.is_ascii_whitespace());
        path = OsStr::from_bytes(words.find(|word| !word.is_empty())?).into();
    }
    None
}

/// Whether a program has other rights than its caller (`AT_SECURE`).
fn changes_user(stat: &std::fs::Metadata) -> bool {
    let uid = stat.mode() & 0o4000 != 0 && stat.uid() != getuid().as_raw();
    let gid = stat.mode() & 0o2010 == 0o2010 && stat.gid() != getgid().as_raw();
    uid || gid
}

/// Where the system finds a program of this name.
fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(name.into());
    }
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(name));
    files.find(|file: &PathBuf| is_program(file))
}

fn is_program(file: &Path) -> bool {
    let is_plain = file.metadata().is_ok_and(|file| file.is_file());
    is_plain && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Why the library cannot be in a program with this beginning.
fn elf(head: &[u8]) -> Option<&'static str> {
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    if head.get(4) != Some(&2) {
        return Some("it is a 32-bit program");
    }
    let number = |at: usize, size: usize| {
        let bytes = head.get(at..at.checked_add(size)?)?;
        let digits = bytes.iter().rev();
        Some(digits.fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte)))
    };
    // The table of its parts: where it is, how long each entry, how many.
    let (start, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for entry in 0..count {
        let kind = number(start.checked_add(entry.checked_mul(size)?)?, 4)?;
        if kind == ASKS_FOR_A_LOADER {
            return None;
        }
    }
    Some("it is statically linked")
}

const ASKS_FOR_A_LOADER: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn program(folder: &Path, bytes: &[u8], mode: u32) -> Option<&'static str> {
        let file = folder.join("program");
        std::fs::write(&file, bytes).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        cannot_hold(file.as_os_str())
    }

    /// A program's beginning with one part of this kind.
    fn head(kind: u8) -> Vec<u8> {
        let mut head = b"\x7fELF\x02\x01\x01".to_vec();
        head.resize(64 + 56, 0);
        for (at, byte) in [(32, 64), (54, 56), (56, 1), (64, kind)] {
            head[at] = byte;
        }
        head
    }

    #[test]
    fn a_program_without_a_loader_is_known_also_behind_a_script() {
        assert_eq!(cannot_hold(OsStr::new("sh")), None);
        assert_eq!(cannot_hold(OsStr::new("no-such-program")), None);
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let why = program(folder, &head(1), 0o755);
        assert_eq!(why, Some("it is statically linked"));
        assert_eq!(program(folder, &head(3), 0o755), None);
        assert_eq!(program(folder, b"#! /bin/sh -e\n", 0o755), None);
        std::fs::write(folder.join("static"), head(1)).unwrap();
        let script = format!("#!{}\n", folder.join("static").display());
        assert!(program(folder, script.as_bytes(), 0o755).is_some());
        assert_eq!(program(folder, b"\x7fELF\x02", 0o755), None);
        assert_eq!(
            program(folder, b"\x7fELF\x01", 0o755),
            Some("it is a 32-bit program")
        );
    }

    #[test]
    fn a_set_uid_program_of_anothers_is_known() {
        let folder = tempfile::tempdir().unwrap();
        // The caller's own changes nothing.
        assert_eq!(program(folder.path(), &head(3), 0o6755), None);
        if getuid().is_root() {
            let file = folder.path().join("program");
            std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
            for (mode, is) in [(0o755, false), (0o4755, true)] {
                std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
                assert_eq!(cannot_hold(file.as_os_str()).is_some(), is, "{mode:o}");
            }
        }
    }
}
