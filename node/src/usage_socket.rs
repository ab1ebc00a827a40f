//! The socket at which the monitor tells the usage of the node's GPUs, to root and to the group softmig.

use crate::node::Node;
use softmig_usage as usage;
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// The socket's name in the run folder.
pub const NAME: &str = "usage.sock";

/// How long the answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// An answer is far shorter.
const LONGEST: u64 = 16 << 20;

/// Why the monitor's figures are not known.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nothing listens.
    #[error("softmig-monitor does not run")]
    NotRunning,
    /// It hangs, or does not tell this user.
    #[error("softmig-monitor does not answer: {0}")]
    NoAnswer(#[from] io::Error),
    /// It has just started, or is of another release.
    #[error("softmig-monitor's answer {0}")]
    Read(#[from] usage::ReadError),
}

/// The monitor's figures.
pub fn ask(node: &Node) -> Result<usage::Node, AskError> {
    asked(&node.run.join(NAME), PATIENCE)
}

/// A thread waits for the answer, so that this one can stop waiting.
fn asked(socket: &Path, patience: Duration) -> Result<usage::Node, AskError> {
    let (sender, receiver) = mpsc::channel();
    let socket = socket.to_path_buf();
    let ask = move || {
        let answer = UnixStream::connect(socket).and_then(|stream| {
            let mut bytes = Vec::new();
            stream.take(LONGEST).read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        // This fails when it was too late.
        let _ = sender.send(answer);
    };
    std::thread::Builder::new().spawn(ask)?;
    let late = |_| io::Error::from(ErrorKind::TimedOut);
    match receiver.recv_timeout(patience).map_err(late)? {
        Ok(bytes) => Ok(usage::Node::read(&bytes)?),
        Err(error) => Err(match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => AskError::NotRunning,
            _ => error.into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixListener;
    use std::time::Instant;

    #[test]
    fn an_answer_of_this_form_is_read_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        assert!(matches!(asked(&path, PATIENCE), Err(AskError::NotRunning)));
        let listener = UnixListener::bind(&path).unwrap();
        let answers = [
            r#"{"schema_version":1,"node":"gpu01","jobs":[{"job":7}]}"#,
            r#"{"schema_version":9,"node":"gpu01"}"#,
            "{",
            "",
        ];
        let monitor = std::thread::spawn(move || {
            for answer in answers {
                let (mut client, _) = listener.accept().unwrap();
                client.write_all(answer.as_bytes()).unwrap();
            }
        });
        assert_eq!(asked(&path, PATIENCE).unwrap().jobs[0].job, 7);
        for _ in 1..answers.len() {
            assert!(matches!(asked(&path, PATIENCE), Err(AskError::Read(_))));
        }
        monitor.join().unwrap();
    }

    #[test]
    fn a_monitor_that_hangs_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let listener = UnixListener::bind(&path).unwrap();
        let start = Instant::now();
        let late = asked(&path, Duration::from_millis(100));
        assert!(matches!(late, Err(AskError::NoAnswer(_))));
        assert!(start.elapsed() < Duration::from_secs(50));
        drop(listener);
    }
}
