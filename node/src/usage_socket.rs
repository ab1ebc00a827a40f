//! The socket at which the monitor tells the usage of the node's GPUs, to root and to the group softmig.

use crate::node::Node;
use softmig_usage as usage;
use std::io::Read;
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

/// The figures; `None` where no monitor runs or answers in time, or where it does not tell this user.
pub fn ask(node: &Node) -> Option<usage::Node> {
    asked(&node.run.join(NAME), PATIENCE)
}

/// A thread waits for the answer, so that this one can stop waiting.
fn asked(socket: &Path, patience: Duration) -> Option<usage::Node> {
    let (sender, receiver) = mpsc::channel();
    let socket = socket.to_path_buf();
    let ask = move || {
        let answer = UnixStream::connect(socket).and_then(|stream| {
            let mut bytes = Vec::new();
            stream.take(LONGEST).read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        // This fails when it was too late.
        let _ = sender.send(answer.ok());
    };
    std::thread::Builder::new().spawn(ask).ok()?;
    let bytes = receiver.recv_timeout(patience).ok()??;
    let node: usage::Node = serde_json::from_slice(&bytes).ok()?;
    (node.schema_version == usage::VERSION).then_some(node)
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
        assert_eq!(asked(&path, PATIENCE), None);
        let listener = UnixListener::bind(&path).unwrap();
        let answers = [
            r#"{"schema_version":1,"node":"gpu01","jobs":[{"job":7}]}"#,
            r#"{"schema_version":2,"node":"gpu01"}"#,
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
            assert_eq!(asked(&path, PATIENCE), None);
        }
        monitor.join().unwrap();
    }

    #[test]
    fn a_monitor_that_hangs_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let listener = UnixListener::bind(&path).unwrap();
        let start = Instant::now();
        assert_eq!(asked(&path, Duration::from_millis(100)), None);
        assert!(start.elapsed() < Duration::from_secs(50));
        drop(listener);
    }
}
