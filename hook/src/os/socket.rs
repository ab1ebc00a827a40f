//! One question to a socket that answers with a file.

use core::ffi::{CStr, c_int};
use core::mem::size_of;

use super::error::Error;
use super::file::File;
use super::sys;

/// A server that was asked and answered.
pub(crate) struct Answer {
    /// Its user.
    pub(crate) uid: u32,
    /// The file that came beside the answer.
    pub(crate) file: Option<File>,
}

/// The longest that the server may take.
static LONGEST: libc::timeval = libc::timeval {
    tv_sec: 0,
    tv_usec: 200_000,
};

/// Sends a packet to the socket at a path, and takes the answer's bytes.
pub(crate) fn ask(path: &CStr, request: &[u8], answer: &mut [u8]) -> Result<Answer, Error> {
    let socket = connect(path)?;
    let credentials = peer(&socket)?;
    sys::send(socket.0, request, libc::MSG_NOSIGNAL)?;
    let file = receive(&socket, answer)?;
    Ok(Answer {
        uid: credentials.uid,
        file,
    })
}

/// Whether a server listens at a path. Nothing is asked, and nothing waited for.
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
    let mut address = libc::sockaddr_un {
        sun_family: libc::AF_UNIX as libc::sa_family_t,
        sun_path: [0; 108],
    };
    let bytes = path.to_bytes_with_nul();
    if bytes.len() > address.sun_path.len() {
        return Err(Error::TOO_LONG);
    }
    for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = byte.cast_signed();
    }
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | flags;
    let socket = File(sys::socket(kind)? as c_int);
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        sys::set_timeout(socket.0, option, &LONGEST)?;
    }
    sys::connect(socket.0, &address)?;
    Ok(socket)
}

fn peer(socket: &File) -> Result<libc::ucred, Error> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    sys::peer(socket.0, &mut credentials, &mut size)?;
    Ok(credentials)
}

fn receive(socket: &File, answer: &mut [u8]) -> Result<Option<File>, Error> {
    let (got, file) = sys::receive(socket.0, answer)?;
    let file = file.map(File);
    match got {
        // It ended before it answered.
        0 => Err(Error(libc::ECONNRESET)),
        // An errno alone is shorter than what comes with success.
        got if (size_of::<i32>()..=answer.len()).contains(&got) => Ok(file),
        _ => Err(Error(libc::EBADMSG)),
    }
}

impl File {
    /// Whether it can never become shorter.
    pub(crate) fn is_sealed(&self) -> bool {
        sys::seals(self.0).is_ok_and(|seals| seals as c_int & libc::F_SEAL_SHRINK != 0)
    }
}
