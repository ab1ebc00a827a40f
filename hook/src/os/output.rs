//! Where a line can go that is in no file: standard error and the system's log.

use core::ffi::c_int;

use super::file::File;
use super::sys;

/// Writes to standard error if it takes a line at once: a pipe without a reader would end the program (`SIGPIPE`), a
/// full one stop it.
pub(crate) fn write_to_stderr(text: &[u8]) {
    let mut stderr = libc::pollfd {
        fd: libc::STDERR_FILENO,
        events: libc::POLLOUT,
        revents: 0,
    };
    let mut at_once = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let _ = sys::poll(&mut stderr, &mut at_once);
    if stderr.revents != libc::POLLOUT {
        return;
    }
    let _ = sys::write(libc::STDERR_FILENO, text);
}

/// True if messages that the program did not ask for may go to standard error.
///
/// A program may have closed it, and have a file of its own data under its number. Terminals and pipes are not such
/// files. Neither is a plain file if everything is written at its end, or if standard output goes there too.
pub(crate) fn is_stderr_for_words() -> bool {
    let status = |fd| {
        let mut stat = sys::empty_stat();
        sys::fstat(fd, &mut stat).map(|_| stat)
    };
    let Ok(stderr) = status(libc::STDERR_FILENO) else {
        return false;
    };
    match stderr.st_mode & libc::S_IFMT {
        libc::S_IFIFO | libc::S_IFCHR => true,
        libc::S_IFREG => {
            let at_end = libc::c_long::from(libc::O_APPEND);
            sys::flags(libc::STDERR_FILENO).is_ok_and(|flags| flags & at_end != 0)
                || status(libc::STDOUT_FILENO).is_ok_and(|stdout| {
                    (stdout.st_dev, stdout.st_ino) == (stderr.st_dev, stderr.st_ino)
                })
        }
        _ => false,
    }
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
    let Ok(fd) = sys::socket(kind) else { return };
    let socket = File(fd as c_int);
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    let _ = sys::send_to(socket.0, text, flags, &address);
}
