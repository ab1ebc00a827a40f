//! Files of the driver's that another process has open.

use std::fs::{self, DirEntry};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, fstat, makedev, statx};

use crate::call::{DEVICES, file_of};

/// The file of control, whose closing ends all that the process made by it.
const CONTROL: &str = "nvidiactl";
/// That of unified memory, whose closing unmaps what the process's kernels use.
const UNIFIED: &str = "nvidia-uvm";

/// A process has one or two of each kind.
const MOST: usize = 16;

/// The files that keep what a process has on the GPUs.
#[derive(Debug, Default)]
pub struct Files {
    /// Those of control, with the process's number for each.
    pub control: Vec<(i32, OwnedFd)>,
    /// Those of unified memory.
    pub unified: Vec<OwnedFd>,
}

impl Files {
    /// Whether there are some of both kinds.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.control.is_empty() && !self.unified.is_empty()
    }
}

/// Those of the process that has this number, of which `process` is the file. They stay open as long as what comes back is kept.
///
/// # Errors
/// The system's. A file that the process closes meanwhile is no error.
pub fn files_of(process: BorrowedFd<'_>, number: u32) -> io::Result<Files> {
    Devices::of(Path::new(DEVICES))?.of_process(process, number)
}

/// The numbers of both devices.
struct Devices {
    control: u64,
    unified: u64,
}

impl Devices {
    fn of(folder: &Path) -> io::Result<Self> {
        let number = |name: &str| Ok::<_, io::Error>(fs::metadata(folder.join(name))?.rdev());
        Ok(Self {
            control: number(CONTROL)?,
            unified: number(UNIFIED)?,
        })
    }

    fn is_one(&self, device: Option<u64>) -> bool {
        device.is_some_and(|it| it == self.control || it == self.unified)
    }

    fn of_process(&self, process: BorrowedFd<'_>, owner: u32) -> io::Result<Files> {
        let mut files = Files::default();
        for entry in fs::read_dir(format!("/proc/{owner}/fd"))? {
            let Some((number, name)) = entry.ok().and_then(|entry| named(&entry)) else {
                continue;
            };
            // To have another kind of file open, even for a moment, could make this process wait for its owner.
            if ![CONTROL, UNIFIED].contains(&name.as_str()) {
                continue;
            }
            // A file system of a user's is not asked about its file.
            if !self.is_one(named_device(&entry_path(owner, number))) {
                continue;
            }
            let Ok(file) = file_of(process, number) else {
                continue;
            };
            match device(&file) {
                Some(device) if device == self.control && files.control.len() < MOST => {
                    files.control.push((number, file));
                }
                Some(device) if device == self.unified && files.unified.len() < MOST => {
                    files.unified.push(file);
                }
                _ => {}
            }
        }
        Ok(files)
    }
}

/// A descriptor's number, and the last part of its file's path.
fn named(entry: &DirEntry) -> Option<(i32, String)> {
    let number = entry.file_name().to_str()?.parse().ok()?;
    let target = fs::read_link(entry.path()).ok()?;
    Some((number, target.file_name()?.to_str()?.to_owned()))
}

fn entry_path(owner: u32, number: i32) -> String {
    format!("/proc/{owner}/fd/{number}")
}

/// The number of the device that a file is by what the kernel knows of it already.
fn named_device(path: &str) -> Option<u64> {
    let status = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
    let kind = FileType::from_raw_mode(status.stx_mode.into());
    let device = makedev(status.stx_rdev_major, status.stx_rdev_minor);
    (kind == FileType::CharacterDevice).then_some(device)
}

/// The number of the device that a file is.
fn device(file: &impl AsFd) -> Option<u64> {
    let status = fstat(file).ok()?;
    let kind = FileType::from_raw_mode(status.st_mode);
    (kind == FileType::CharacterDevice).then_some(status.st_rdev)
}

/// Whether the process that has this number still has the driver's file of control by that descriptor. Where its first thread has ended and
/// others live, the system shows none of its files: it may.
#[must_use]
pub fn has_control(number: u32, descriptor: i32) -> bool {
    match fs::read_link(entry_path(number, descriptor)) {
        Ok(target) => target.file_name() == Some(CONTROL.as_ref()),
        Err(_) => is_first_thread_over(number),
    }
}

fn is_first_thread_over(number: u32) -> bool {
    let said = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    // The name of the program may have any sign.
    let state = said.rsplit(')').next().unwrap_or_default();
    state.trim_start().starts_with('Z')
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, mknodat};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use std::fs::File;
    use std::process::Command;

    #[test]
    fn the_drivers_files_are_told_from_others_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str, minor| {
            let device = makedev(1, minor);
            let mode = Mode::from_raw_mode(0o666);
            mknodat(
                CWD,
                folder.path().join(name),
                FileType::CharacterDevice,
                mode,
                device,
            )
        };
        // Those of /dev/null and /dev/zero stand for the driver's. Only root can make them.
        if make(CONTROL, 3).is_err() || make(UNIFIED, 5).is_err() {
            return;
        }
        let devices = Devices::of(folder.path()).unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join(UNIFIED), "a user's").unwrap();
        let open = |folder: &Path, name: &str| File::open(folder.join(name));
        let Ok(control) = open(folder.path(), CONTROL) else {
            // The file system does not let devices be opened.
            return;
        };
        // Another process, which has the user's file too.
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(control)
            .stdout(open(folder.path(), UNIFIED).unwrap())
            .stderr(open(other.path(), UNIFIED).unwrap())
            .spawn()
            .unwrap();
        let number = child.id();
        let process = i32::try_from(number).ok().and_then(Pid::from_raw);
        let opened = pidfd_open(process.unwrap(), PidfdFlags::empty());
        let files = opened.map(|process| devices.of_process(process.as_fd(), number));
        let has = [0, 1, 2].map(|descriptor| has_control(number, descriptor));
        child.kill().unwrap();
        while !is_first_thread_over(number) {
            std::thread::yield_now();
        }
        let is_unknown = has_control(number, 0);
        child.wait().unwrap();
        let Ok(files) = files else { return };
        let files = files.unwrap();
        let numbers: Vec<i32> = files.control.iter().map(|(number, _)| *number).collect();
        assert_eq!((numbers, files.unified.len()), (vec![0], 1));
        assert!(files.is_complete() && !Files::default().is_complete());
        assert_eq!((has, is_unknown), ([true, false, false], true));
        assert!(!has_control(number, 0), "it has ended");
    }
}
