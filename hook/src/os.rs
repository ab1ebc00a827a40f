//! All that the hook asks of the kernel and of the process itself.
//!
//! Every call leaves `errno` as it was, or is made between [`Errno::save`] and its end: the program must not notice.

mod clock;
pub(crate) mod elf;
pub(crate) mod fixed_str;
mod futex;
pub(crate) mod glibc;
mod mapping;
mod maps;
pub(crate) mod once;
pub(crate) mod processor;
mod socket;
mod thread;

use core::ffi::{CStr, c_int, c_long};
use core::ptr::NonNull;

pub(crate) use clock::{Exact, milliseconds, nanoseconds, nanoseconds_at, nap, now, pause};
pub(crate) use futex::{Held, Lock, wait_until_changed, wake_all};
pub(crate) use mapping::{is_mapped, is_wiped_in_children, map, map_shared, unmap};
pub(crate) use maps::each_mapping_of_itself;
pub(crate) use socket::{ask, is_listening};
pub(crate) use thread::{name_thread, start_thread};

use softmig_policy::node::node_conf::LONGEST;

/// The error number of a system call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error(pub(crate) i32);

impl Error {
    /// There is no such file.
    pub(crate) const MISSING: Self = Self(libc::ENOENT);
    /// The file is larger than what may be read of it.
    pub(crate) const TOO_LONG: Self = Self(libc::EFBIG);
    /// Not now.
    pub(crate) const AGAIN: Self = Self(libc::EAGAIN);
}

/// Where this thread's `errno` is.
fn errno() -> *mut c_int {
    // SAFETY: the C library returns this thread's own `errno`, which is always there.
    unsafe { libc::__errno_location() }
}

/// Gives the program its own `errno` back when dropped.
pub(crate) struct Errno(c_int);

impl Errno {
    /// Remembers `errno`.
    pub(crate) fn save() -> Self {
        // SAFETY: always there, and nobody else reads or writes it.
        Self(unsafe { errno().read() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: always there, and nobody else reads or writes it.
        unsafe { errno().write(self.0) };
    }
}

/// What a system call returned.
fn outcome(returned: c_long) -> Result<c_long, Error> {
    match returned {
        // SAFETY: always there, and nobody else reads or writes it.
        -1 => Err(Error(unsafe { errno().read() })),
        returned => Ok(returned),
    }
}

/// An open file, closed when dropped.
pub(crate) struct File(c_int);

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and is not used after this.
        let _ = unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// What a file is and whose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    /// The owner, as this user namespace shows him.
    pub(crate) owner: u32,
    mode: u32,
    inode: u64,
    /// How long the file is.
    pub(crate) size: usize,
}

impl Status {
    /// A plain file that only its owner may write.
    pub(crate) fn is_kept_by_owner(&self) -> bool {
        self.is_plain() && self.mode & (libc::S_IWGRP | libc::S_IWOTH) == 0
    }

    /// A plain file.
    pub(crate) fn is_plain(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }
}

impl File {
    /// Opens a file without following a link in its last name, and without waiting for whatever it may be. One that is
    /// made on the way is its owner's alone.
    pub(crate) fn open(path: &CStr, flags: c_int) -> Result<Self, Error> {
        let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        // SAFETY: `path` ends in a zero byte and lives through the call.
        let returned = unsafe {
            libc::syscall(
                libc::SYS_openat,
                libc::AT_FDCWD,
                path.as_ptr(),
                flags,
                0o600,
            )
        };
        outcome(returned).map(|fd| Self(fd as c_int))
    }

    /// What the open file is.
    pub(crate) fn status(&self) -> Result<Status, Error> {
        let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the kernel fills a `stat`, for which there is room.
        outcome(unsafe { libc::syscall(libc::SYS_fstat, self.0, stat.as_mut_ptr()) })?;
        // SAFETY: a `stat` is plain numbers; all of it was zero before the kernel wrote to it.
        let stat = unsafe { stat.assume_init() };
        Ok(status_of(&stat))
    }

    /// Fills `buffer` from the file's beginning; a file that does not fit is an error.
    pub(crate) fn read_all<'b>(&self, buffer: &'b mut [u8]) -> Result<&'b [u8], Error> {
        let mut filled = 0_usize;
        loop {
            let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) else {
                return Err(Error::TOO_LONG);
            };
            match self.read(room)? {
                0 => return buffer.get(..filled).ok_or(Error::TOO_LONG),
                count => filled = filled.saturating_add(count),
            }
        }
    }

    /// Puts the file's next bytes into `room` and says how many; 0 at its end.
    pub(crate) fn read(&self, room: &mut [u8]) -> Result<usize, Error> {
        loop {
            // SAFETY: the kernel writes at most `room`'s length into it.
            let returned =
                unsafe { libc::syscall(libc::SYS_read, self.0, room.as_mut_ptr(), room.len()) };
            match outcome(returned) {
                Err(Error(libc::EINTR)) => {}
                outcome => return outcome.map(|count| count as usize),
            }
        }
    }

    /// Writes `text` at once; what does not fit on the disk is lost.
    pub(crate) fn write(&self, text: &[u8]) -> Result<(), Error> {
        // SAFETY: the kernel only reads `text`.
        outcome(unsafe { libc::syscall(libc::SYS_write, self.0, text.as_ptr(), text.len()) })?;
        Ok(())
    }

    /// Puts the next names of an open folder into `buffer` as the kernel writes them; an empty slice at the end.
    pub(crate) fn read_names<'b>(&self, buffer: &'b mut [u8]) -> Result<&'b [u8], Error> {
        // SAFETY: the kernel writes at most `buffer`'s length into it.
        let returned = unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                self.0,
                buffer.as_mut_ptr(),
                buffer.len(),
            )
        };
        let count = outcome(returned)?;
        buffer.get(..count as usize).ok_or(Error::TOO_LONG)
    }
}

fn status_of(stat: &libc::stat) -> Status {
    Status {
        owner: stat.st_uid,
        mode: stat.st_mode,
        inode: stat.st_ino,
        size: usize::try_from(stat.st_size).unwrap_or(0),
    }
}

/// The inode behind a path, links followed.
pub(crate) fn inode(path: &CStr) -> Result<u64, Error> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `path` ends in a zero byte, and the kernel fills a `stat`, for which there is room.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_newfstatat,
            libc::AT_FDCWD,
            path.as_ptr(),
            stat.as_mut_ptr(),
            0,
        )
    };
    outcome(returned)?;
    // SAFETY: a `stat` is plain numbers; all of it was zero before the kernel wrote to it.
    let stat = unsafe { stat.assume_init() };
    Ok(status_of(&stat).inode)
}

/// The user who started this process: what a set-uid program keeps of him.
pub(crate) fn real_uid() -> u32 {
    // SAFETY: takes no argument and cannot fail.
    (unsafe { libc::syscall(libc::SYS_getuid) }) as u32
}

/// This process.
pub(crate) fn process_id() -> u32 {
    // SAFETY: takes no argument and cannot fail.
    (unsafe { libc::syscall(libc::SYS_getpid) }) as u32
}

/// This thread.
pub(crate) fn thread_id() -> u64 {
    // SAFETY: takes no argument and cannot fail.
    (unsafe { libc::syscall(libc::SYS_gettid) }).cast_unsigned()
}

/// Whether the kernel gave this program more rights than its user has, or other ones (`AT_SECURE`).
pub(crate) fn is_secure() -> bool {
    // SAFETY: only reads what the kernel put beside the program's stack.
    (unsafe { libc::getauxval(libc::AT_SECURE) }) != 0
}

/// A variable of the environment.
///
/// Read once, in the process's first call to the driver. A program that changes its environment in another thread at
/// that moment races with us as with every `getenv`.
pub(crate) fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: `name` ends in a zero byte.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: a value ends in a zero byte and stays where it is until the variable is changed; see above.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// Writes to standard error if it takes a line at once: a pipe that nobody reads would end the program (`SIGPIPE`), a
/// full one stop it.
pub(crate) fn write_to_stderr(text: &[u8]) {
    let mut stderr = libc::pollfd {
        fd: libc::STDERR_FILENO,
        events: libc::POLLOUT,
        revents: 0,
    };
    let at_once = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let no_mask: *const libc::sigset_t = core::ptr::null();
    // SAFETY: the kernel fills `revents` of one `pollfd`, and only reads the rest.
    let _ = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            &raw mut stderr,
            1,
            &raw const at_once,
            no_mask,
            0,
        )
    };
    if stderr.revents != libc::POLLOUT {
        return;
    }
    // SAFETY: the kernel only reads `text`.
    let _ = unsafe {
        libc::syscall(
            libc::SYS_write,
            libc::STDERR_FILENO,
            text.as_ptr(),
            text.len(),
        )
    };
}

/// Hands one message to the system's log, if it takes it at once.
pub(crate) fn write_to_syslog(text: &[u8]) {
    let mut address = libc::sockaddr_un {
        sun_family: libc::AF_UNIX as libc::sa_family_t,
        sun_path: [0; 108],
    };
    for (place, byte) in address.sun_path.iter_mut().zip(b"/dev/log") {
        *place = byte.cast_signed();
    }
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes numbers only.
    let returned = unsafe { libc::syscall(libc::SYS_socket, libc::AF_UNIX, kind, 0) };
    let Ok(fd) = outcome(returned) else { return };
    let socket = File(fd as c_int);
    // SAFETY: the kernel only reads `text` and `address`, whose whole size is given.
    let _ = unsafe {
        libc::syscall(
            libc::SYS_sendto,
            socket.0,
            text.as_ptr(),
            text.len(),
            libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
            &raw const address,
            size_of::<libc::sockaddr_un>(),
        )
    };
}

/// Memory for one text, neither the program's nor on its stack, which may be small. Gone when dropped.
pub(crate) struct Scratch(NonNull<u8>);

impl Scratch {
    /// A conf or the list of a process's control groups; both are smaller by far. One byte is to see the end.
    const SIZE: usize = LONGEST + 1;

    /// Takes the memory.
    pub(crate) fn new() -> Result<Self, Error> {
        map(Self::SIZE).map(Self)
    }

    /// The memory.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is this large, all zero at first, and nobody else's.
        unsafe { core::slice::from_raw_parts_mut(self.0.as_ptr(), Self::SIZE) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        unmap(self.0, Self::SIZE);
    }
}

/// Whether writing to a file can never exceed the process's limit on their size, which would end it (`SIGXFSZ`).
pub(crate) fn may_write_files() -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let none: *const libc::rlimit = core::ptr::null();
    // SAFETY: the kernel fills one `rlimit` and is given none to set.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_FSIZE,
            none,
            &raw mut limit,
        )
    };
    outcome(returned).is_ok() && limit.rlim_cur == libc::RLIM_INFINITY
}
