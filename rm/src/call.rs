//! The driver's three calls: make an object, tell an object something, end an object.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// A handle of the driver's.
pub type Handle = u32;

/// Where the driver's devices are.
pub(crate) const DEVICES: &str = "/dev";

/// Why the driver does not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device file does not exist, or this process may not open it.
    #[error("the driver's device file: {0}")]
    Io(#[source] io::Error),
    /// No GPU has this UUID.
    #[error("the driver shows no GPU with this UUID")]
    NoGpu,
    /// The driver of this version has other structures.
    #[error("the driver is {0}, and its scheduler can be steered from {OLDEST} on")]
    Old(String),
    /// The driver does not give its log of context switches.
    #[error("the driver gives no log of context switches: {reason} (status {status:#x})")]
    NoLog {
        /// Its own reason, in words.
        reason: &'static str,
        /// The driver's `NV_STATUS`.
        status: u32,
    },
    /// The driver refused, by a status of its own.
    #[error("the driver answered {command:#x} with status {status:#x}")]
    Refused {
        /// The command, or the class of the object.
        command: u32,
        /// The driver's `NV_STATUS`.
        status: u32,
    },
}

/// The first release with the structures of today.
pub(crate) const OLDEST: u32 = 535;

/// What an [`Error`] means for what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The same call may succeed a moment later.
    Passing,
    /// The object does not exist, or is not the client's.
    Gone,
    /// The driver does not do it.
    Refused,
}

/// `NV_ERR_TIMEOUT`.
const TIMEOUT: u32 = 0x65;

impl Error {
    /// What it means for what comes next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        // NV_ERR_BUSY_RETRY, IN_USE, INSUFFICIENT_RESOURCES, NO_MEMORY, NOT_READY, STATE_IN_USE, SIGNAL_PENDING, TIMEOUT and
        // TIMEOUT_RETRY.
        const PASSING: [u32; 9] = [0x03, 0x17, 0x1a, 0x51, 0x55, 0x63, 0x64, TIMEOUT, 0x66];
        // NV_ERR_INVALID_CHANNEL, INVALID_CLIENT, INVALID_OBJECT, INVALID_OBJECT_HANDLE, INVALID_OBJECT_PARENT and
        // OBJECT_NOT_FOUND.
        const GONE: [u32; 6] = [0x21, 0x23, 0x31, 0x33, 0x36, 0x57];
        use rustix::io::Errno;
        const PASSING_IO: [Errno; 5] = [
            Errno::INTR,
            Errno::AGAIN,
            Errno::NOMEM,
            Errno::MFILE,
            Errno::NFILE,
        ];
        let is_passing_io =
            |error| Errno::from_io_error(error).is_some_and(|errno| PASSING_IO.contains(&errno));
        match self {
            Self::Io(error) if is_passing_io(error) => ErrorKind::Passing,
            Self::Refused { status, .. } | Self::NoLog { status, .. } => match status {
                status if PASSING.contains(status) => ErrorKind::Passing,
                status if GONE.contains(status) => ErrorKind::Gone,
                _ => ErrorKind::Refused,
            },
            Self::Io(_) | Self::NoGpu | Self::Old(_) => ErrorKind::Refused,
        }
    }

    /// Whether the GPU gave no answer. A single time-out passes; a GPU that never answers again has no other status either.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == TIMEOUT)
    }
}

/// The structure of a command, which [`control`] takes.
///
/// # Safety
///
/// The driver reads and writes `size_of::<Self>()` bytes for this command, and any bytes are a value of it.
pub(crate) unsafe trait Control: Copy {
    /// Its number.
    const COMMAND: u32;
}

/// The structure of an object's class, which [`allocate`] takes.
///
/// # Safety
///
/// The driver reads and writes `size_of::<Self>()` bytes for this class, or as many as its own release has, and any bytes are
/// a value of it.
pub(crate) unsafe trait Allocation: Copy {
    /// The class.
    const CLASS: u32;
}

/// `NVOS54_PARAMETERS`.
#[repr(C)]
struct ControlCall {
    client: Handle,
    object: Handle,
    command: u32,
    flags: u32,
    parameters: u64,
    size: u32,
    status: u32,
}

/// `NVOS21_PARAMETERS`.
#[repr(C)]
struct AllocateCall {
    client: Handle,
    parent: Handle,
    object: Handle,
    class: u32,
    parameters: u64,
    size: u32,
    status: u32,
}

/// `NVOS00_PARAMETERS`.
#[repr(C)]
struct FreeCall {
    client: Handle,
    parent: Handle,
    object: Handle,
    status: u32,
}

/// `NVOS33_PARAMETERS`, and the file to map.
#[repr(C)]
struct MapCall {
    client: Handle,
    device: Handle,
    memory: Handle,
    padding: u32,
    offset: u64,
    length: u64,
    address: u64,
    status: u32,
    flags: u32,
    file: i32,
    padding_2: u32,
}

const FREE: Opcode = opcode::read_write::<FreeCall>(b'F', 0x29);
const CONTROL: Opcode = opcode::read_write::<ControlCall>(b'F', 0x2a);
const ALLOCATE: Opcode = opcode::read_write::<AllocateCall>(b'F', 0x2b);
const MAP: Opcode = opcode::read_write::<MapCall>(b'F', 0x4e);

/// A structure with room behind it. Of an allocation's structure the driver reads and writes as many bytes as its own release
/// has, and later releases added fields.
#[repr(C)]
struct Roomy<T> {
    parameters: T,
    room: [u8; 256],
}

impl<T: Copy> Roomy<T> {
    /// Lets the driver have a copy by its address.
    fn lend<R>(parameters: &mut T, call: impl FnOnce(u64) -> R) -> R {
        let mut roomy = Self {
            parameters: *parameters,
            room: [0; 256],
        };
        let done = call(std::ptr::from_mut(&mut roomy).expose_provenance() as u64);
        *parameters = roomy.parameters;
        done
    }
}

#[cfg(test)]
layout! {
    FreeCall is "NVOS00_PARAMETERS" { client: "hRoot", parent: "hObjectParent", object: "hObjectOld", status: "status" }
    ControlCall is "NVOS54_PARAMETERS" {
        client: "hClient", object: "hObject", command: "cmd", flags: "flags", parameters: "params", size: "paramsSize",
        status: "status"
    }
    AllocateCall is "NVOS21_PARAMETERS" {
        client: "hRoot", parent: "hObjectParent", object: "hObjectNew", class: "hClass", parameters: "pAllocParms",
        size: "paramsSize", status: "status"
    }
    MapCall is "nv_ioctl_nvos33_parameters_with_fd" {
        client: "params.hClient", device: "params.hDevice", memory: "params.hMemory", offset: "params.offset",
        length: "params.length", address: "params.pLinearAddress", status: "params.status", flags: "params.flags", file: "fd"
    }
}

#[cfg(test)]
pub(crate) const CALLS: [(&str, Opcode); 4] = [
    ("NV_ESC_RM_FREE", FREE),
    ("NV_ESC_RM_CONTROL", CONTROL),
    ("NV_ESC_RM_ALLOC", ALLOCATE),
    ("NV_ESC_RM_MAP_MEMORY", MAP),
];

/// Tells an object of the client something.
pub(crate) fn control<T: Control>(
    file: impl AsFd,
    client: Handle,
    object: Handle,
    parameters: &mut T,
) -> Result<(), Error> {
    let size = size_of::<T>();
    Roomy::lend(parameters, |address| {
        raw_control(file.as_fd(), client, object, T::COMMAND, address, size)
    })
}

/// The same without parameters.
pub(crate) fn command(
    file: impl AsFd,
    client: Handle,
    object: Handle,
    command: u32,
) -> Result<(), Error> {
    raw_control(file.as_fd(), client, object, command, 0, 0)
}

fn raw_control(
    file: BorrowedFd<'_>,
    client: Handle,
    object: Handle,
    command: u32,
    parameters: u64,
    size: usize,
) -> Result<(), Error> {
    let mut call = ControlCall {
        client,
        object,
        command,
        flags: 0,
        parameters,
        size: size as u32,
        status: 0,
    };
    // SAFETY: the call's own structure; the parameters that it names live through the call.
    let updater = unsafe { Updater::<CONTROL, ControlCall>::new(&mut call) };
    // SAFETY: as above.
    let done = unsafe { ioctl(file, updater) };
    finish(done, command, call.status)
}

/// Opens a device file of the driver's.
pub(crate) fn open(name: &str) -> Result<OwnedFd, Error> {
    let path = Path::new(DEVICES).join(name);
    let file = fs::OpenOptions::new().read(true).write(true).open(path);
    Ok(OwnedFd::from(file.map_err(Error::Io)? as File))
}

/// Makes an object of the parameters' class, with this handle, or one of the driver's choice for 0. Gives the handle.
pub(crate) fn allocate<T: Allocation>(
    file: impl AsFd,
    client: Handle,
    parent: Handle,
    object: Handle,
    parameters: &mut T,
) -> Result<Handle, Error> {
    Roomy::lend(parameters, |address| {
        let mut call = AllocateCall {
            client,
            parent,
            object,
            class: T::CLASS,
            parameters: if size_of::<T>() > 0 { address } else { 0 },
            size: size_of::<T>() as u32,
            status: 0,
        };
        // SAFETY: the call's own structure; the parameters that it names are those of the class, and live through the call.
        let updater = unsafe { Updater::<ALLOCATE, AllocateCall>::new(&mut call) };
        // SAFETY: as above.
        let done = unsafe { ioctl(file, updater) };
        finish(done, T::CLASS, call.status)?;
        Ok(call.object)
    })
}

/// Ends an object.
pub(crate) fn free(
    file: impl AsFd,
    client: Handle,
    parent: Handle,
    object: Handle,
) -> Result<(), Error> {
    let mut call = FreeCall {
        client,
        parent,
        object,
        status: 0,
    };
    // SAFETY: the call's own structure.
    let updater = unsafe { Updater::<FREE, FreeCall>::new(&mut call) };
    // SAFETY: as above.
    let done = unsafe { ioctl(file, updater) };
    finish(done, 0, call.status)
}

/// Makes `map` show the client's memory object where it is mapped, to be read.
pub(crate) fn prepare_map(
    file: impl AsFd,
    client: Handle,
    memory: Handle,
    length: u64,
    map: BorrowedFd<'_>,
) -> Result<(), Error> {
    const READ_ONLY: u32 = 1;
    let mut call = MapCall {
        client,
        device: client,
        memory,
        padding: 0,
        offset: 0,
        length,
        address: 0,
        status: 0,
        flags: READ_ONLY,
        file: map.as_raw_fd(),
        padding_2: 0,
    };
    // SAFETY: the call's own structure.
    let updater = unsafe { Updater::<MAP, MapCall>::new(&mut call) };
    // SAFETY: as above.
    let done = unsafe { ioctl(file, updater) };
    finish(done, memory, call.status)
}

/// The file that another process has by this number, as long as what comes back is kept.
pub(crate) fn file_of(process: BorrowedFd<'_>, number: i32) -> io::Result<OwnedFd> {
    /// The system call's number is the same on all processors.
    const PIDFD_GETFD: libc::c_long = 438;
    // SAFETY: takes numbers.
    let file = unsafe { libc::syscall(PIDFD_GETFD, process.as_raw_fd(), number, 0) };
    let file = i32::try_from(file).unwrap_or(-1);
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new, and owned by this function alone.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

fn finish(done: rustix::io::Result<()>, command: u32, status: u32) -> Result<(), Error> {
    done.map_err(|error| Error::Io(error.into()))?;
    if status == 0 {
        Ok(())
    } else {
        Err(Error::Refused { command, status })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_comes_next() {
        let kind = |status| Error::Refused { command: 1, status }.kind();
        assert_eq!(kind(0x03), ErrorKind::Passing);
        assert_eq!(kind(0x57), ErrorKind::Gone);
        // NV_ERR_NOT_SUPPORTED, INSUFFICIENT_PERMISSIONS, INVALID_ARGUMENT, GPU_IS_LOST and RESET_REQUIRED.
        for status in [0x56, 0x1b, 0x1f, 0x0f, 0x62] {
            assert_eq!(kind(status), ErrorKind::Refused);
        }
        let io = |error: rustix::io::Errno| Error::Io(error.into()).kind();
        assert_eq!(io(rustix::io::Errno::NOMEM), ErrorKind::Passing);
        assert_eq!(io(rustix::io::Errno::NODEV), ErrorKind::Refused);
    }

    #[test]
    fn a_driver_with_a_longer_structure_writes_into_the_room() {
        let mut parameters = 7u64;
        Roomy::lend(&mut parameters, |address| {
            let place: *mut u8 = std::ptr::with_exposed_provenance_mut(address as usize);
            // SAFETY: within the structure and the room behind it.
            unsafe { std::ptr::write_bytes(place, 0xff, 8 + 256) };
        });
        assert_eq!(parameters, u64::MAX);
    }
}
