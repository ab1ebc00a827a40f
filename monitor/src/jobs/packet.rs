//! Packets with a file beside them, between processes of this program and others.

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Lets nobody at the other end keep this process waiting for longer.
pub(crate) fn set_patience(socket: impl AsFd, patience: Duration) -> io::Result<()> {
    for timeout in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
        sockopt::set_socket_timeout(&socket, timeout, Some(patience))?;
    }
    Ok(())
}

/// Sends bytes, and a file along with them.
pub(crate) fn send(
    socket: impl AsFd,
    bytes: &[u8],
    file: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if let Some(file) = &file {
        beside.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(file)));
    }
    let parts = [IoSlice::new(bytes)];
    sendmsg(socket, &parts, &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes the packet that waits there. Gives what it has of these bytes, and the file beside it.
pub(crate) fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(&[u8], Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut files = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(bytes)];
    let told = recvmsg(socket, parts, &mut files, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = files.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Vec::from_iter(files),
        _ => Vec::new(),
    });
    let file = files.next();
    drop(files);
    Ok((bytes.get(..told.bytes).unwrap_or_default(), file))
}
