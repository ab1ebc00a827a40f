//! Root's library, as the kernel names files in a process's list of mappings.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file, by device and inode as the list has them.
type Name = (Vec<u8>, u64);

/// How many lines of a process's list are read: as many as it may have mappings by default (`vm.max_map_count`).
const MOST_LINES: usize = 65_530;

/// The library of a node: also what was at its path before an upgrade, which processes may have mapped.
#[derive(Debug, Default)]
pub struct Library {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    names: BTreeSet<Name>,
    /// They stay open, so that no other file gets their inode.
    files: Vec<File>,
}

impl Library {
    /// The file at this path is the library too.
    pub fn add(&self, path: &Path) -> io::Result<()> {
        let file = File::open(path)?;
        let name = name(&file)?;
        let mut known = self.known();
        if known.names.insert(name) {
            known.files.push(file);
        }
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a process has the library mapped, so that it can be executed.
    pub fn is_in(&self, pid: u32) -> io::Result<bool> {
        let known = self.known().names.clone();
        // From here on this is one program's list, also if the process executes another one.
        let list = BufReader::new(File::open(format!("/proc/{pid}/maps"))?);
        for line in list.split(b'\n').take(MOST_LINES) {
            if mapped(&line?).is_some_and(|(_, name)| known.contains(&name)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The name of a file in a list of mappings. `stat(2)` tells another device on btrfs and on overlays.
fn name(file: &File) -> io::Result<Name> {
    const SIZE: usize = 1;
    let flags = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE);
    // SAFETY: at an address of the kernel's choice; nothing is read there.
    let start = unsafe { libc::mmap(ptr::null_mut(), SIZE, flags.0, flags.1, file.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let list = fs::read("/proc/self/maps");
    // SAFETY: mapped above, and no one else has the address.
    unsafe { libc::munmap(start, SIZE) };
    let list = list?;
    let mut lines = list.split(|&byte| byte == b'\n').filter_map(mapped);
    let found = lines.find(|(at, _)| *at == start as u64);
    found
        .map(|(_, name)| name)
        .ok_or_else(|| io::Error::other("the library is not in the list of mappings"))
}

/// Address and file of a line such as `7f13a000-7f13b000 r-xp 00001000 fe:01 1234  /lib/x.so` of what can be executed.
fn mapped(line: &[u8]) -> Option<(u64, Name)> {
    let mut words = line.split(|&byte| byte == b' ');
    let start = words.next()?.split(|&byte| byte == b'-').next()?;
    let start = u64::from_str_radix(str::from_utf8(start).ok()?, 16).ok()?;
    let is_executable = words.next()?.get(2) == Some(&b'x');
    let device = words.nth(1)?.to_vec();
    let inode = str::from_utf8(words.next()?).ok()?.parse().ok()?;
    // Memory that does not belong to a file has 0.
    (is_executable && inode > 0).then_some((start, (device, inode)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_executed_counts() {
        let name = |line: &str| mapped(line.as_bytes()).map(|(_, name)| name);
        let library = Some((b"fe:01".to_vec(), 1234));
        assert_eq!(
            name("7f1000-7f2000 r-xp 00001000 fe:01 1234    /usr/lib/x.so"),
            library
        );
        assert_eq!(
            name("7f1000-7f2000 r-xp 00001000 fe:01 1234    /x.so (deleted)"),
            library
        );
        for line in [
            "7f1000-7f2000 r--p 00001000 fe:01 1234    /usr/lib/x.so",
            "7f1000-7f2000 r-xp 00000000 00:00 0       [vdso]",
            "7f1000-7f2000 r-xp 00001000 fe:01 -1",
            "7f1000-7f2000",
            "",
        ] {
            assert_eq!(name(line), None, "{line}");
        }
    }

    fn library(path: &Path) -> Library {
        let library = Library::default();
        library.add(path).unwrap();
        library
    }

    #[test]
    fn a_process_has_what_it_runs_and_not_what_it_does_not() {
        let me = std::process::id();
        let program = std::env::current_exe().unwrap();
        assert!(library(&program).is_in(me).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy");
        fs::copy(&program, &copy).unwrap();
        assert!(!library(&copy).is_in(me).unwrap());
        assert!(!Library::default().is_in(me).unwrap());
        assert!(Library::default().add(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn what_was_there_before_an_upgrade_is_still_known() {
        let folder = tempfile::tempdir().unwrap();
        let (path, new) = (folder.path().join("sleep"), folder.path().join("new"));
        fs::copy("/bin/sleep", &path).unwrap();
        let library = library(&path);
        let mut sleep = std::process::Command::new(&path)
            .arg("100")
            .spawn()
            .unwrap();
        fs::copy("/bin/true", &new).unwrap();
        fs::rename(&new, &path).unwrap();
        library.add(&path).unwrap();
        let is_in = library.is_in(sleep.id());
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert!(is_in.unwrap());
    }
}
