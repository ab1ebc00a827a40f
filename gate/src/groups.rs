//! Control groups of version 2, wherever they are mounted.

#![forbid(unsafe_code)]

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Their root, by a mount that only this process has: on nodes with version 1 they need not be mounted.
pub(crate) fn root() -> io::Result<OwnedFd> {
    let system = fsopen("cgroup2", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(system.as_fd())?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    let mount = fsmount(system.as_fd(), flags, MountAttrFlags::empty())?;
    Ok(openat(mount, ".", FLAGS, Mode::empty())?)
}

/// The group at this path.
pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, FLAGS, Mode::empty())?)
}

const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
