//! The system call `bpf(2)`: maps, programs, and files by which others find them.

use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::instruction::Instruction;

/// Commands of `enum bpf_cmd`.
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP: libc::c_int = 1;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const MAP_NEXT_KEY: libc::c_int = 4;
const PROGRAM_LOAD: libc::c_int = 5;
const PIN: libc::c_int = 6;
const GET: libc::c_int = 7;
const INFO: libc::c_int = 15;
const LINK_CREATE: libc::c_int = 28;
const LINK_UPDATE: libc::c_int = 29;

/// `BPF_PROG_TYPE_CGROUP_DEVICE` and `BPF_CGROUP_DEVICE`.
const PROGRAM_OF_DEVICES: u32 = 15;
const ATTACH_TO_DEVICES: u32 = 6;

/// How long the verifier's words may be.
const LOG: usize = 1 << 20;

/// Kinds of maps, of `enum bpf_map_type`: one that takes no more where it is full, and one that forgets what was used longest ago.
pub(crate) const HASH: u32 = 1;
pub(crate) const FORGETFUL: u32 = 9;

/// How a map is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) kind: u32,
    pub(crate) key: u32,
    pub(crate) value: u32,
    pub(crate) entries: u32,
}

#[repr(C)]
#[derive(Default)]
struct Create {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
}

#[repr(C)]
#[derive(Default)]
struct Element {
    map: u32,
    pad: u32,
    key: u64,
    /// The next key too.
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
}

#[repr(C)]
#[derive(Default)]
struct Object {
    path: u64,
    descriptor: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct Info {
    descriptor: u32,
    length: u32,
    info: u64,
}

/// The beginning of `struct bpf_map_info`.
#[repr(C)]
#[derive(Default)]
struct MapInfo {
    kind: u32,
    id: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct Link {
    program: u32,
    target: u32,
    kind: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkUpdate {
    link: u32,
    program: u32,
    flags: u32,
    old: u32,
}

/// Calls the kernel.
///
/// # Safety
///
/// `attributes` is what this command takes, and its addresses are of memory that is as long as the kernel takes it for.
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_long> {
    let size = mem::size_of::<T>();
    // SAFETY: by this function's contract.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size) };
    match done {
        -1 => Err(io::Error::last_os_error()),
        done => Ok(done),
    }
}

/// The same, of a command that gives a new descriptor.
///
/// # Safety
///
/// As above.
unsafe fn new<T>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: by this function's contract.
    let file = unsafe { bpf(command, attributes) }?;
    let file = i32::try_from(file).map_err(io::Error::other)?;
    // SAFETY: just made, and owned by this function alone. The kernel closes it on exec.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

fn number(file: impl AsFd) -> u32 {
    // A descriptor is not negative.
    file.as_fd().as_raw_fd().cast_unsigned()
}

fn address<T>(of: &T) -> u64
where
    T: ?Sized,
{
    (&raw const *of).cast::<u8>() as u64
}

/// A table that the program and this process share.
#[derive(Debug)]
pub(crate) struct Map {
    file: OwnedFd,
    shape: Shape,
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Map {
    /// Makes a map of this shape.
    pub(crate) fn new(shape: Shape) -> io::Result<Self> {
        let mut create = Create {
            kind: shape.kind,
            key: shape.key,
            value: shape.value,
            entries: shape.entries,
        };
        // SAFETY: numbers alone.
        let file = unsafe { new(MAP_CREATE, &mut create) }?;
        Ok(Self { file, shape })
    }

    /// The one that has this name; an error if it has another shape.
    pub(crate) fn pinned(path: &Path, shape: Shape) -> io::Result<Self> {
        let map = Self::any(path)?;
        if map.is(shape) {
            Ok(map)
        } else {
            Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a table of another version",
            ))
        }
    }

    /// The one that has this name, of whatever shape.
    pub(crate) fn any(path: &Path) -> io::Result<Self> {
        let file = get(path)?;
        let mut found = MapInfo::default();
        let mut info = Info {
            descriptor: number(&file),
            length: mem::size_of::<MapInfo>() as u32,
            info: (&raw mut found) as u64,
        };
        // SAFETY: the kernel writes no more than `length` bytes, which live through the call.
        unsafe { bpf(INFO, &mut info) }?;
        let shape = Shape {
            kind: found.kind,
            key: found.key,
            value: found.value,
            entries: found.entries,
        };
        Ok(Self { file, shape })
    }

    /// Whether it has this shape.
    pub(crate) fn is(&self, shape: Shape) -> bool {
        self.shape == shape
    }

    fn element(&self, key: &[u8]) -> io::Result<Element> {
        check(key, self.shape.key)?;
        Ok(Element {
            map: number(self),
            key: address(key),
            ..Element::default()
        })
    }

    /// The value of a key.
    pub(crate) fn get<const SIZE: usize>(&self, key: &[u8]) -> io::Result<Option<[u8; SIZE]>> {
        let mut value = [0; SIZE];
        check(&value, self.shape.value)?;
        let mut element = self.element(key)?;
        element.value = (&raw mut value) as u64;
        // SAFETY: key and value are as long as the map's.
        match unsafe { bpf(MAP_LOOKUP, &mut element) } {
            Ok(_) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives a key this value.
    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        check(value, self.shape.value)?;
        let mut element = self.element(key)?;
        element.value = address(value);
        // SAFETY: key and value are as long as the map's.
        unsafe { bpf(MAP_UPDATE, &mut element) }.map(drop)
    }

    /// Removes a key; `false` if there was none.
    pub(crate) fn remove(&self, key: &[u8]) -> io::Result<bool> {
        let mut element = self.element(key)?;
        // SAFETY: the key is as long as the map's.
        match unsafe { bpf(MAP_DELETE, &mut element) } {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// All keys. Those that come and go meanwhile may be missing, or be there twice.
    pub(crate) fn keys<const SIZE: usize>(&self) -> io::Result<Vec<[u8; SIZE]>> {
        let mut keys: Vec<[u8; SIZE]> = Vec::new();
        // A key that is gone by now leads to the first one again.
        while keys.len() < 2 * self.shape.entries as usize {
            let mut next = [0; SIZE];
            check(&next, self.shape.key)?;
            let mut element = Element {
                map: number(self),
                key: keys.last().map_or(0, address),
                value: (&raw mut next) as u64,
                ..Element::default()
            };
            // SAFETY: both keys are as long as the map's; 0 means none.
            match unsafe { bpf(MAP_NEXT_KEY, &mut element) } {
                Ok(_) => keys.push(next),
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            }
        }
        Ok(keys)
    }
}

/// The kernel reads and writes as much as the map's shape says.
fn check(bytes: &[u8], size: u32) -> io::Result<()> {
    if bytes.len() == size as usize {
        Ok(())
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}

/// Has the kernel verify a program. An error has what the kernel says of it.
pub(crate) fn load(program: &[Instruction], license: &str, name: &str) -> io::Result<OwnedFd> {
    let license = CString::new(license)?;
    let mut load = Load {
        kind: PROGRAM_OF_DEVICES,
        count: u32::try_from(program.len()).map_err(io::Error::other)?,
        instructions: address(program),
        license: license.as_ptr() as u64,
        ..Load::default()
    };
    let room = load.name.len() - 1;
    for (place, byte) in load.name.iter_mut().zip(name.bytes().take(room)) {
        *place = byte;
    }
    // SAFETY: as many instructions as it says, and a text with a zero at its end.
    let refused = match unsafe { new(PROGRAM_LOAD, &mut load) } {
        Ok(loaded) => return Ok(loaded),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Err(error),
        Err(error) => error,
    };
    // Again, for its reasons.
    let mut log = vec![0u8; LOG];
    load.log = log.as_mut_ptr() as u64;
    load.log_size = LOG as u32;
    load.log_level = 1;
    // SAFETY: as above, and as much room for its words as it says.
    match unsafe { new(PROGRAM_LOAD, &mut load) } {
        Ok(loaded) => Ok(loaded),
        Err(_) => {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(0);
            let log = String::from_utf8_lossy(log.get(..end).unwrap_or_default());
            // The text ends with a count; the reason is before that.
            let mut lines = log.trim().lines().rev();
            let reason = lines.find(|line| !line.starts_with("processed "));
            let reason = reason.unwrap_or("no reason given");
            Err(io::Error::new(
                refused.kind(),
                format!("{refused} ({reason})"),
            ))
        }
    }
}

/// Attaches a program to a control group, beside others.
pub(crate) fn link(program: &OwnedFd, group: &OwnedFd) -> io::Result<OwnedFd> {
    let mut link = Link {
        program: number(program),
        target: number(group),
        kind: ATTACH_TO_DEVICES,
        flags: 0,
    };
    // SAFETY: numbers alone.
    unsafe { new(LINK_CREATE, &mut link) }
}

/// Puts another program in the place of the one that a link attaches, without a moment between.
pub(crate) fn replace(link: &OwnedFd, program: &OwnedFd) -> io::Result<()> {
    let mut update = LinkUpdate {
        link: number(link),
        program: number(program),
        ..LinkUpdate::default()
    };
    // SAFETY: numbers alone.
    unsafe { bpf(LINK_UPDATE, &mut update) }.map(drop)
}

/// Gives a map, program or link a name in a bpf file system. It stays as long as it has one.
pub(crate) fn pin(file: impl AsFd, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut object = Object {
        path: path.as_ptr() as u64,
        descriptor: number(file),
        flags: 0,
    };
    // SAFETY: a text with a zero at its end.
    unsafe { bpf(PIN, &mut object) }.map(drop)
}

/// The object with that name.
pub(crate) fn get(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut object = Object {
        path: path.as_ptr() as u64,
        ..Object::default()
    };
    // SAFETY: a text with a zero at its end.
    unsafe { new(GET, &mut object) }
}
