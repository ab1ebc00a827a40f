//! Where a line can go that is in no file: standard error and the system's log.

use core::ffi::c_int;

use super::error::outcome;
use super::file::File;

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
