//! The socket on which the daemon tells the usage of GPUs as JSON, to root and to a group.
//!
//! It is not the one by which processes get their seats, so no question holds up a process.

use super::Shared;
use crate::jobs::acl::{Who, let_in_at};
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::warn;

/// How long a client may take to read.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most bytes that are written at once.
const PART: usize = 16 << 10;

/// Listens at `path`, in the place of a daemon that is no more, and tells what is shared to root and to the group until this
/// process ends.
pub fn serve(path: &Path, group: Option<u32>, shared: Arc<Shared>) -> io::Result<()> {
    let mut new = OsString::from(path);
    new.push(".new");
    let new = PathBuf::from(new);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&new)?;
    fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    if let Some(Err(why)) = group.map(|group| let_in_at(&new, Who::Group(group))) {
        // Where there are no access lists, root alone is told.
        warn!("no group is told the usage: {why}");
    }
    fs::rename(&new, path)?;
    let thread = std::thread::Builder::new().name("usage".into());
    thread.spawn(move || {
        for client in listener.incoming() {
            match client {
                // A client that is gone, or does not read, needs no answer.
                Ok(client) => drop(answer(client, &shared)),
                // There are no more files to be had.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(())
}

fn answer(mut client: UnixStream, shared: &Shared) -> io::Result<()> {
    let text = serde_json::to_vec(&shared.told())?;
    let end = Instant::now() + PATIENCE;
    let mut rest = text.as_slice();
    // A client that reads a little now and then has no more time than one that reads nothing.
    while !rest.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        client.set_write_timeout(Some(left))?;
        // The kernel waits this long for each part, so the time for a longer answer is checked between parts.
        let written = client.write(&rest[..rest.len().min(PART)])?;
        rest = rest.get(written..).unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_node::node::Node;
    use softmig_node::usage_socket::{AskError, NAME, ask};
    use softmig_usage as usage;
    use std::io::Read;
    use tempfile::{TempDir, tempdir};

    fn place() -> (TempDir, Node, PathBuf) {
        let folder = tempdir().unwrap();
        let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        fs::create_dir_all(&node.run).unwrap();
        let path = node.run.join(NAME);
        (folder, node, path)
    }

    fn shared(name: String) -> Arc<Shared> {
        let shared = Shared::default();
        shared.set(usage::Node {
            schema_version: usage::VERSION,
            node: name,
            ..usage::Node::default()
        });
        Arc::new(shared)
    }

    #[test]
    fn root_is_told_in_the_place_of_a_daemon_that_was_killed() {
        let (_folder, node, path) = place();
        let does_not_run = || matches!(ask(&node), Err(AskError::NotRunning));
        drop(UnixListener::bind(&path).unwrap());
        assert!(does_not_run());
        serve(&path, None, shared("n1".into())).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for _ in 0..3 {
            assert_eq!(ask(&node).unwrap().node, "n1");
        }
    }

    #[test]
    fn a_slow_client_is_given_up_and_others_are_answered() {
        let (_folder, node, path) = place();
        // More than a socket takes at once.
        serve(&path, None, shared("x".repeat(4 << 20))).unwrap();
        let mut slow = UnixStream::connect(&path).unwrap();
        let (ended, is_over) = std::sync::mpsc::channel::<()>();
        let reading = std::thread::spawn(move || {
            let mut few = [0; 1000];
            while is_over.recv_timeout(Duration::from_millis(50)).is_err() {
                let _ = slow.read(&mut few);
            }
        });
        std::thread::sleep(PATIENCE + Duration::from_millis(500));
        assert_eq!(ask(&node).unwrap().node.len(), 4 << 20);
        ended.send(()).unwrap();
        reading.join().unwrap();
    }
}
