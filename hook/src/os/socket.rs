//! One question to a socket that answers with a file.

use core::ffi::{CStr, c_int, c_void};
use core::mem::{MaybeUninit, size_of, zeroed};

use super::error::{Error, outcome};
use super::file::File;

/// A server that was asked and answered.
pub(crate) struct Answer {
    /// Who it is.
    pub(crate) uid: u32,
    /// What came beside the answer.
    pub(crate) file: Option<File>,
}

/// So long the server may take.
static LONGEST: libc::timeval = libc::timeval {
    tv_sec: 0,
    tv_usec: 200_000,
};

/// Room for one descriptor beside an answer (`CMSG_SPACE`).
#[repr(C, align(8))]
struct Beside {
    header: libc::cmsghdr,
    descriptor: c_int,
    rest: c_int,
}

/// Sends a packet to the socket at a path, and takes the answer's bytes.
pub(crate) fn ask(path: &CStr, request: &[u8], answer: &mut [u8]) -> Result<Answer, Error> {
    let socket = connect(path)?;
    let credentials = peer(&socket)?;
    // SAFETY: sends from memory that lives through the call.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_sendto,
            socket.0,
            request.as_ptr(),
            request.len(),
            libc::MSG_NOSIGNAL,
            core::ptr::null::<c_void>(),
            0,
        )
    };
    outcome(sent)?;
    let file = receive(&socket, answer)?;
    Ok(Answer {
        uid: credentials.uid,
        file,
    })
}

/// Whether somebody listens at a path. Nothing is asked, and nothing waited for.
pub(crate) fn is_listening(path: &CStr) -> bool {
    match connect_by(path, libc::SOCK_NONBLOCK) {
        Ok(_) => true,
        // It has more to do than it can.
        Err(error) => error == Error::AGAIN,
    }
}

fn connect(path: &CStr) -> Result<File, Error> {
    connect_by(path, 0)
}

fn connect_by(path: &CStr, flags: c_int) -> Result<File, Error> {
    // SAFETY: a plain structure of numbers.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    let bytes = path.to_bytes_with_nul();
    if bytes.len() > address.sun_path.len() {
        return Err(Error::TOO_LONG);
    }
    for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = byte.cast_signed();
    }
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | flags;
    // SAFETY: takes numbers.
    let made = outcome(unsafe { libc::syscall(libc::SYS_socket, libc::AF_UNIX, kind, 0) })?;
    let socket = File(made as c_int);
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        // SAFETY: the kernel reads one `timeval`.
        let set = unsafe {
            libc::syscall(
                libc::SYS_setsockopt,
                socket.0,
                libc::SOL_SOCKET,
                option,
                &raw const LONGEST,
                size_of::<libc::timeval>(),
            )
        };
        outcome(set)?;
    }
    let size = size_of::<libc::sockaddr_un>();
    // SAFETY: the kernel reads one `sockaddr_un`.
    let connected = unsafe { libc::syscall(libc::SYS_connect, socket.0, &raw const address, size) };
    outcome(connected)?;
    Ok(socket)
}

fn peer(socket: &File) -> Result<libc::ucred, Error> {
    let mut credentials = MaybeUninit::<libc::ucred>::zeroed();
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: there is room for one `ucred`, and its size.
    let got = unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            socket.0,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            credentials.as_mut_ptr(),
            &raw mut size,
        )
    };
    outcome(got)?;
    // SAFETY: plain numbers, all zero before the kernel wrote them.
    Ok(unsafe { credentials.assume_init() })
}

fn receive(socket: &File, answer: &mut [u8]) -> Result<Option<File>, Error> {
    let mut part = libc::iovec {
        iov_base: answer.as_mut_ptr().cast(),
        iov_len: answer.len(),
    };
    // SAFETY: plain structures of numbers and addresses.
    let (mut beside, mut message) = unsafe { zeroed::<(Beside, libc::msghdr)>() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut beside).cast();
    message.msg_controllen = size_of::<Beside>();
    // SAFETY: the kernel writes where `message` says, for which there is room.
    let got = unsafe {
        libc::syscall(
            libc::SYS_recvmsg,
            socket.0,
            &raw mut message,
            libc::MSG_CMSG_CLOEXEC,
        )
    };
    let got = usize::try_from(outcome(got)?).unwrap_or(0);
    let header = &beside.header;
    let is_file = message.msg_controllen >= size_of::<libc::cmsghdr>()
        && header.cmsg_level == libc::SOL_SOCKET
        && header.cmsg_type == libc::SCM_RIGHTS
        && header.cmsg_len > size_of::<libc::cmsghdr>();
    let file = is_file.then_some(File(beside.descriptor));
    if got != answer.len() {
        return Err(Error(libc::EBADMSG));
    }
    Ok(file)
}

impl File {
    /// Whether nobody can ever make it shorter.
    pub(crate) fn is_sealed(&self) -> bool {
        // SAFETY: takes numbers.
        let seals = unsafe { libc::syscall(libc::SYS_fcntl, self.0, libc::F_GET_SEALS) };
        outcome(seals).is_ok_and(|seals| seals as c_int & libc::F_SEAL_SHRINK != 0)
    }
}
