//! Whether softmig-monitor runs on this node, which lets jobs take turns.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::Deserialize;
use softmig_node::ending::Ending;
use softmig_node::node::Node;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// What starts it.
pub(crate) const START: &str = "'systemctl enable --now softmig-monitor'";
/// What ends it for good.
pub(crate) const STOP: &str = "'systemctl disable --now softmig-monitor'";

/// Whether it runs: every user may connect to its socket.
pub(crate) fn runs() -> bool {
    listens(&Node::this_machine().arbiter_socket()).is_ok()
}

/// How long its answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// An answer is far shorter.
const LONGEST: u64 = 16 << 20;

/// What it ended and would have ended; `None` where it does not run, is older, or tells it to root alone.
pub(crate) fn ending() -> Option<Ending> {
    asked(&Node::this_machine().run.join("monitor.sock"))
}

fn asked(socket: &Path) -> Option<Ending> {
    /// The part of its answer that is shown.
    #[derive(Deserialize)]
    struct Answer {
        ending: Option<Ending>,
    }
    let daemon = UnixStream::connect(socket).ok()?;
    daemon.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut said = Vec::new();
    daemon.take(LONGEST).read_to_end(&mut said).ok()?;
    serde_json::from_slice::<Answer>(&said).ok()?.ending
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

    #[test]
    fn an_answer_is_read_and_an_older_daemons_has_nothing() {
        use std::io::Write;
        use std::os::unix::net::UnixListener;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("monitor.sock");
        assert_eq!(asked(&path), None);
        let listener = UnixListener::bind(&path).unwrap();
        let ending = r#"{"end":"no","counted_seconds":2,"ended":0,"would_have_ended":[]}"#;
        let answers = [
            format!(r#"{{"gpus":[],"ending":{ending}}}"#),
            r#"{"gpus":[]}"#.into(),
        ];
        let daemon = std::thread::spawn(move || {
            for answer in answers {
                let (mut client, _) = listener.accept().unwrap();
                client.write_all(answer.as_bytes()).unwrap();
            }
        });
        assert_eq!(asked(&path).unwrap().end, "no");
        assert_eq!(asked(&path), None);
        daemon.join().unwrap();
    }
}
