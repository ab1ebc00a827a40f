//! The daemon's sockets on which it tells what it knows, as JSON: which processes take turns to root, and the usage of GPUs also to a
//! group.
//!
//! They are not the one by which processes get their seats, so no question about turns holds up a turn.

use super::TurnsStatus;
use rustix::net::{Shutdown, shutdown, sockopt};
use serde::Serialize;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long each side waits for the other.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most bytes that are written at once.
const PART: usize = 16 << 10;
/// An answer is far shorter.
const LONGEST: u64 = 16 << 20;

/// Answers until it is dropped.
#[derive(Debug)]
pub struct Server {
    listener: Arc<UnixListener>,
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `path`, in the place of a daemon that is no more, and tells what `tell` says to root, and to others whom the
    /// file lets in: `let_in` is asked to see to that.
    pub fn start<T: Serialize>(
        path: &Path,
        let_in: Option<impl FnOnce(&Path) -> io::Result<()>>,
        tell: impl Fn() -> T + Send + 'static,
    ) -> io::Result<Self> {
        let mut new = OsString::from(path);
        new.push(".new");
        let new = PathBuf::from(new);
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = Arc::new(UnixListener::bind(&new)?);
        fs::set_permissions(&new, Permissions::from_mode(0o600))?;
        let for_root = let_in.is_none();
        let_in.map_or(Ok(()), |let_in| let_in(&new))?;
        fs::rename(&new, path)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (clients, ends) = (Arc::clone(&listener), Arc::clone(&is_over));
        let thread = std::thread::Builder::new().name("status".into());
        let thread = thread.spawn(move || {
            for client in clients.incoming() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                match client {
                    // A client that is gone, or does not read, needs no answer.
                    Ok(client) => drop(answer(client, for_root, &tell)),
                    // There are no more files to be had.
                    Err(_) => std::thread::sleep(Duration::from_millis(100)),
                }
            }
        })?;
        Ok(Self {
            listener,
            path: path.into(),
            is_over,
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        self.is_over.store(true, Ordering::SeqCst);
        // Ends the waiting for clients.
        let _ = shutdown(&self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer<T: Serialize>(
    mut client: UnixStream,
    for_root: bool,
    tell: impl Fn() -> T,
) -> io::Result<()> {
    // The file's mode says the same; this holds whatever the file is.
    if for_root && !sockopt::socket_peercred(&client)?.uid.is_root() {
        return Ok(());
    }
    let text = serde_json::to_vec(&tell())?;
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

/// Asks the daemon that listens at `path`.
pub fn ask(path: &Path) -> TurnsStatus {
    let said = match said(path) {
        Ok(said) => said,
        Err(error) => {
            return TurnsStatus::unknown(match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                    "softmig-monitor does not run, so each job keeps its cap alone".into()
                }
                _ => format!("softmig-monitor does not answer: {error}"),
            });
        }
    };
    serde_json::from_slice(&said).unwrap_or_else(|_| {
        TurnsStatus::unknown(
            "the softmig-monitor that runs is of another version: restart it".into(),
        )
    })
}

fn said(path: &Path) -> io::Result<Vec<u8>> {
    let daemon = UnixStream::connect(path)?;
    daemon.set_read_timeout(Some(PATIENCE))?;
    let mut said = Vec::new();
    daemon.take(LONGEST).read_to_end(&mut said)?;
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::SharedGpu;

    fn turns() -> TurnsStatus {
        let gpu = SharedGpu {
            index: None,
            uuid: "GPU-1".into(),
            shared_by: Some("turns".into()),
            why: Some("it ran on".into()),
            jobs: Vec::new(),
        };
        TurnsStatus {
            error: None,
            gpus: vec![gpu],
            ending: None,
        }
    }

    const FOR_ROOT: Option<fn(&Path) -> io::Result<()>> = None;

    fn error(path: &Path) -> String {
        ask(path).error.unwrap_or_default()
    }

    #[test]
    fn root_is_told_what_there_is_again_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("monitor.sock");
        let server = Server::start(&path, FOR_ROOT, turns).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let expected = if rustix::process::geteuid().is_root() {
            turns()
        } else {
            // No other user is told anything.
            ask(Path::new("/dev/null/none"))
        };
        for _ in 0..3 {
            let told = ask(&path);
            assert_eq!(told.gpus, expected.gpus);
        }
        drop(server);
        assert!(!path.exists());
        assert!(error(&path).contains("does not run"));
    }

    #[test]
    fn who_connects_and_reads_nothing_holds_up_no_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("monitor.sock");
        let server = Server::start(&path, FOR_ROOT, turns).unwrap();
        let silent = UnixStream::connect(&path).unwrap();
        drop(server);
        drop(silent);
    }

    #[test]
    fn a_slow_client_is_given_up_and_the_file_lets_others_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("usage.sock");
        let open = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o666));
        // More than a socket takes at once.
        let tell = || "x".repeat(4 << 20);
        let _server = Server::start(&path, Some(open), tell).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
        let mut slow = UnixStream::connect(&path).unwrap();
        let (ended, is_over) = std::sync::mpsc::channel::<()>();
        let reading = std::thread::spawn(move || {
            let mut few = [0; 1000];
            while is_over.recv_timeout(Duration::from_millis(50)).is_err() {
                let _ = slow.read(&mut few);
            }
        });
        let mut told = Vec::new();
        let other = UnixStream::connect(&path).unwrap();
        other.take(LONGEST).read_to_end(&mut told).unwrap();
        assert_eq!(told.len(), (4 << 20) + 2);
        ended.send(()).unwrap();
        reading.join().unwrap();
    }

    #[test]
    fn what_is_left_of_one_that_was_killed_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("monitor.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(error(&path).contains("does not run"));
        let _server = Server::start(&path, FOR_ROOT, turns).unwrap();
        assert!(!error(&path).contains("does not run"));
    }

    #[test]
    fn another_version_is_said_to_be_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("monitor.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let other = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            client.write_all(b"{\"gpus\": 3}").unwrap();
        });
        assert!(error(&path).contains("another version"));
        other.join().unwrap();
    }
}
