//! Whether softmig-monitor runs on this node, which lets jobs take turns.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use softmig_node::node::Node;
use std::path::Path;

/// What starts it.
pub(crate) const START: &str = "'systemctl enable --now softmig-monitor'";
/// What ends it for good.
pub(crate) const STOP: &str = "'systemctl disable --now softmig-monitor'";

/// Whether it runs: every user may connect to its socket.
pub(crate) fn runs() -> bool {
    listens(&Node::this_machine().arbiter_socket()).is_ok()
}

fn listens(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        // Others are in line before this one.
        Err(Errno::AGAIN) => Ok(()),
        connected => connected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen};

    #[test]
    fn a_socket_counts_while_somebody_listens_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("arbiter.sock");
        assert_eq!(listens(&path), Err(Errno::NOENT));
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&socket, 0).unwrap();
        for _ in 0..5 {
            assert_eq!(listens(&path), Ok(()));
        }
        drop(socket);
        assert_eq!(listens(&path), Err(Errno::CONNREFUSED));
    }
}
