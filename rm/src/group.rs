//! Channel groups of other processes.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, fstat, major, minor};

use crate::call::{Control, Error, ErrorKind, Handle, control, file_of};

/// A channel group of another process, as that process names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// The process's descriptor of the driver's control file, by which it made the client.
    pub file: i32,
    /// The client.
    pub client: Handle,
    /// The group.
    pub handle: Handle,
}

/// Sets how long a group may run before the next one comes, in microseconds. Like [`time_slice`], it proves whose group it is.
///
/// # Errors
/// [`Error::Io`] if the process has no such file; [`Error::Refused`] if the group is not its own.
pub fn set_time_slice(
    process: BorrowedFd<'_>,
    number: u32,
    group: Group,
    micros: u64,
) -> Result<(), Error> {
    ask(process, number, group, &mut SetTimeSlice(micros))
}

/// How long a group may run before the next one comes, in microseconds. The answer proves whose group it is: the driver takes
/// a client's handle only by the open file that made it, and that file must be the process's.
///
/// The driver knows the answer without asking the GPU, so this takes a tenth of the time of [`set_time_slice`].
///
/// `number` is the process's, of which `process` is the file. The driver's file is open here during the call alone: it keeps all
/// that the process has on the GPU.
///
/// # Errors
/// [`Error::Io`] if the process has no such file; [`Error::Refused`] if the group is not its own.
pub fn time_slice(process: BorrowedFd<'_>, number: u32, group: Group) -> Result<u64, Error> {
    let mut slice = GetTimeSlice(0);
    ask(process, number, group, &mut slice)?;
    Ok(slice.0)
}

/// Whether a client of the driver's was made by this open file of control, as the answer for one of its groups proves.
///
/// # Errors
/// The driver cannot say it just now.
pub fn is_made_by(file: impl AsFd, client: Handle, group: Handle) -> Result<bool, Error> {
    match control(file, client, group, &mut GetTimeSlice(0)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Passing => Err(error),
        Err(_) => Ok(false),
    }
}

/// Tells a group of another process something, by that process's own file.
fn ask<T: Control>(
    process: BorrowedFd<'_>,
    number: u32,
    group: Group,
    parameters: &mut T,
) -> Result<(), Error> {
    // To have another kind of file open, even for a moment, could make this process wait for its owner.
    let path = format!("/proc/{number}/fd/{}", group.file);
    let target = std::fs::read_link(path).map_err(Error::Io)?;
    if target.file_name() != Some("nvidiactl".as_ref()) {
        return Err(Error::Io(std::io::ErrorKind::InvalidInput.into()));
    }
    let file = file_of(process, group.file).map_err(Error::Io)?;
    check(file.as_fd())?;
    control(&file, group.client, group.handle, parameters)
}

/// No other driver's file is told anything.
fn check(file: BorrowedFd<'_>) -> Result<(), Error> {
    /// The driver's device number, and that of its control file.
    const CONTROL: (u32, u32) = (195, 255);
    let status = fstat(file).map_err(|error| Error::Io(error.into()))?;
    let is_device = FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice;
    if is_device && (major(status.st_rdev), minor(status.st_rdev)) == CONTROL {
        Ok(())
    } else {
        Err(Error::Io(std::io::ErrorKind::InvalidInput.into()))
    }
}

/// `NVA06C_CTRL_TIMESLICE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct SetTimeSlice(u64);

// SAFETY: the structure that this command takes.
unsafe impl Control for SetTimeSlice {
    const COMMAND: u32 = 0xa06c_0103;
}

/// `NVA06C_CTRL_GET_TIMESLICE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct GetTimeSlice(u64);

// SAFETY: the structure that this command takes.
unsafe impl Control for GetTimeSlice {
    const COMMAND: u32 = 0xa06c_0104;
}

#[cfg(test)]
layout! {
    SetTimeSlice is "NVA06C_CTRL_TIMESLICE_PARAMS" {}
}

#[cfg(test)]
pub(crate) const NUMBERS: &[(&str, u32)] = &[
    ("NVA06C_CTRL_CMD_SET_TIMESLICE", SetTimeSlice::COMMAND),
    ("NVA06C_CTRL_CMD_GET_TIMESLICE", GetTimeSlice::COMMAND),
];
