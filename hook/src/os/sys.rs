//! System calls, and what else a process gets from the kernel without asking glibc.

#![expect(unsafe_code, reason = "calls the kernel")]

use core::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use core::mem::{MaybeUninit, size_of, zeroed};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

use super::error::Error;
use super::file::File;

/// Makes functions of system calls. A call gets numbers, and memory that lives through it and is as large as the call
/// says.
macro_rules! calls {
    ($( $(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),*) = $number:ident($($given:expr),*); )*) => { $(
        $(#[$doc])*
        #[inline]
        pub(super) fn $name($($argument: $kind),*) -> Result<c_long, Error> {
            // SAFETY: the list says what the kernel takes: see above.
            outcome(unsafe { libc::syscall(libc::$number, $($given),*) })
        }
    )* };
}

calls! {
    fn openat(path: &CStr, flags: c_int, mode: c_int) = SYS_openat(libc::AT_FDCWD, path.as_ptr(), flags, mode);
    fn close(fd: c_int) = SYS_close(fd);
    fn read(fd: c_int, room: &mut [u8]) = SYS_read(fd, room.as_mut_ptr(), room.len());
    fn write(fd: c_int, text: &[u8]) = SYS_write(fd, text.as_ptr(), text.len());
    fn getdents64(fd: c_int, room: &mut [u8]) = SYS_getdents64(fd, room.as_mut_ptr(), room.len());
    fn fstat(fd: c_int, stat: &mut libc::stat) = SYS_fstat(fd, &raw mut *stat);
    fn stat(path: &CStr, stat: &mut libc::stat) = SYS_newfstatat(libc::AT_FDCWD, path.as_ptr(), &raw mut *stat, 0);
    fn lock(fd: c_int, command: c_int, lock: &mut libc::flock) = SYS_fcntl(fd, command, &raw mut *lock);
    fn flags(fd: c_int) = SYS_fcntl(fd, libc::F_GETFL);
    fn seals(fd: c_int) = SYS_fcntl(fd, libc::F_GET_SEALS);
    fn socket(kind: c_int) = SYS_socket(libc::AF_UNIX, kind, 0);
    fn connect(fd: c_int, address: &libc::sockaddr_un)
        = SYS_connect(fd, &raw const *address, size_of::<libc::sockaddr_un>());
    fn set_timeout(fd: c_int, option: c_int, time: &libc::timeval)
        = SYS_setsockopt(fd, libc::SOL_SOCKET, option, &raw const *time, size_of::<libc::timeval>());
    fn peer(fd: c_int, credentials: &mut libc::ucred, size: &mut libc::socklen_t)
        = SYS_getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, &raw mut *credentials, &raw mut *size);
    fn send(fd: c_int, text: &[u8], flags: c_int)
        = SYS_sendto(fd, text.as_ptr(), text.len(), flags, core::ptr::null::<c_void>(), 0);
    fn send_to(fd: c_int, text: &[u8], flags: c_int, address: &libc::sockaddr_un)
        = SYS_sendto(fd, text.as_ptr(), text.len(), flags, &raw const *address, size_of::<libc::sockaddr_un>());
    fn poll(file: &mut libc::pollfd, time: &mut libc::timespec)
        = SYS_ppoll(&raw mut *file, 1, &raw mut *time, core::ptr::null::<libc::sigset_t>(), 0);
    fn futex_wait(word: &AtomicU32, flags: c_int, value: u32, longest: Option<&libc::timespec>)
        = SYS_futex(word.as_ptr(), libc::FUTEX_WAIT | flags, value, longest.map_or(core::ptr::null(), core::ptr::from_ref));
    fn futex_wake(word: &AtomicU32, flags: c_int, most: c_long)
        = SYS_futex(word.as_ptr(), libc::FUTEX_WAKE | flags, most);
    fn clock_gettime(clock: c_int, time: &mut libc::timespec) = SYS_clock_gettime(clock, &raw mut *time);
    fn nanosleep(time: &libc::timespec) = SYS_nanosleep(&raw const *time, core::ptr::null_mut::<libc::timespec>());
    fn timer_slack() = SYS_prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0);
    fn set_timer_slack(nanoseconds: u64) = SYS_prctl(libc::PR_SET_TIMERSLACK, nanoseconds, 0, 0, 0);
    fn set_no_new_privileges() = SYS_prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    fn set_filter(filter: &libc::sock_fprog)
        = SYS_prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const *filter, 0, 0);
    fn set_filter_of_all_threads(filter: &libc::sock_fprog)
        = SYS_seccomp(libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC, &raw const *filter);
    fn set_name(name: &CStr) = SYS_prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0);
    /// A set of signals is as large as the kernel's.
    fn signal_mask(new: &u64, before: &mut u64)
        = SYS_rt_sigprocmask(libc::SIG_SETMASK, &raw const *new, &raw mut *before, size_of::<u64>());
    fn limit(which: c_int, limit: &mut libc::rlimit)
        = SYS_prlimit64(0, which, core::ptr::null::<libc::rlimit>(), &raw mut *limit);
    /// Sends no signal.
    fn is_there(process: u32) = SYS_kill(process, 0);
    fn getuid() = SYS_getuid();
    fn getpid() = SYS_getpid();
    fn gettid() = SYS_gettid();
    /// Maps at an address of the kernel's choice.
    fn mmap(size: usize, access: c_int, kind: c_int, file: c_int)
        = SYS_mmap(core::ptr::null_mut::<c_void>(), size, access, kind, file, 0 as c_long);
    /// Changes what a fork does with a mapping of ours, and nothing else.
    fn wipe_on_fork(start: NonNull<u8>, size: usize) = SYS_madvise(start.as_ptr(), size, MADV_WIPEONFORK);
    /// Asks about one page, wherever it is.
    fn mincore(address: u64, answer: &mut u8) = SYS_mincore(address, 1_usize, &raw mut *answer);
}

const MADV_WIPEONFORK: c_int = 18;

/// The result of a system call.
fn outcome(returned: c_long) -> Result<c_long, Error> {
    match returned {
        -1 => Err(Error(errno())),
        returned => Ok(returned),
    }
}

/// This thread's `errno`.
pub(super) fn errno() -> c_int {
    // SAFETY: the C library returns this thread's own, which is always there.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { place.read() }
}

/// Sets `errno`.
pub(super) fn set_errno(errno: c_int) {
    // SAFETY: see above.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { place.write(errno) };
}

/// Gives memory back.
///
/// # Safety
///
/// It was mapped by the caller, and no reference to it is left.
pub(crate) unsafe fn unmap(start: NonNull<u8>, size: usize) {
    // SAFETY: the caller's promise.
    let _ = unsafe { libc::syscall(libc::SYS_munmap, start.as_ptr(), size) };
}

/// Maps a file's first bytes, as all who map it see them, in the place of what is mapped there.
///
/// # Safety
///
/// The caller mapped `size` bytes there, and all references to them are to atomics.
pub(crate) unsafe fn map_over(place: NonNull<u8>, file: &File, size: usize) -> Result<(), Error> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_SHARED | libc::MAP_FIXED;
    let (place, first) = (place.as_ptr(), 0 as c_long);
    // SAFETY: the caller's promise.
    let mapped = unsafe { libc::syscall(libc::SYS_mmap, place, size, access, kind, file.0, first) };
    outcome(mapped).map(drop)
}

/// Room for one descriptor beside an answer (`CMSG_SPACE`).
#[repr(C, align(8))]
struct Beside {
    header: libc::cmsghdr,
    descriptor: c_int,
    rest: c_int,
}

/// Takes a packet: its length, and the descriptor that came beside it.
pub(super) fn receive(fd: c_int, room: &mut [u8]) -> Result<(usize, Option<c_int>), Error> {
    let mut part = libc::iovec {
        iov_base: room.as_mut_ptr().cast(),
        iov_len: room.len(),
    };
    // SAFETY: plain structures of numbers and addresses.
    let (mut beside, mut message) = unsafe { zeroed::<(Beside, libc::msghdr)>() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut beside).cast();
    message.msg_controllen = size_of::<Beside>();
    let flags = libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the kernel writes where `message` says, for which there is room.
    let got = unsafe { libc::syscall(libc::SYS_recvmsg, fd, &raw mut message, flags) };
    let got = usize::try_from(outcome(got)?).unwrap_or(0);
    let header = &beside.header;
    let is_file = message.msg_controllen >= size_of::<libc::cmsghdr>()
        && header.cmsg_level == libc::SOL_SOCKET
        && header.cmsg_type == libc::SCM_RIGHTS
        && header.cmsg_len > size_of::<libc::cmsghdr>();
    Ok((got, is_file.then_some(beside.descriptor)))
}

/// A structure of numbers with all bits zero, for the kernel to write to.
pub(super) fn empty_stat() -> libc::stat {
    // SAFETY: plain numbers.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// A value that the kernel put beside the program's stack.
pub(super) fn auxiliary(which: c_ulong) -> c_ulong {
    // SAFETY: only reads there.
    unsafe { libc::getauxval(which) }
}

/// A variable of the environment.
///
/// Read once, in the process's first call to the driver. A program that changes its environment in another thread at
/// that moment races with us as with every `getenv`.
pub(crate) fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: `name` ends in a zero byte.
    let value: *const c_char = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: a value ends in a zero byte and stays where it is until the variable is changed; see above.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// The processor's clock, which runs evenly.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn ticks() -> u64 {
    // SAFETY: reads a register that programs may read.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
compile_error!("no clock for this processor yet: add its `ticks`");

/// Whether a test says so in the child of a fork, which has the memory and the environment for itself.
#[cfg(test)]
pub(crate) fn is_so_in_a_child(test: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child is a copy of this thread alone. glibc lets it allocate, and it asks no other lock.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // A test that panics says no. Its copy of this thread must not go on.
        let test = std::panic::AssertUnwindSafe(test);
        let is_so = std::panic::catch_unwind(test).unwrap_or(false);
        let status = c_int::from(!is_so);
        // SAFETY: ends the child.
        unsafe { libc::_exit(status) };
    }
    let mut status = -1;
    // SAFETY: writes to a place of this function's.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    status == 0
}

/// Ends the process.
#[cfg(panic = "abort")]
pub(crate) fn abort() -> ! {
    // SAFETY: takes no argument and does not return.
    unsafe { libc::abort() }
}
