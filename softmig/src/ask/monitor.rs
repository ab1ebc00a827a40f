//! Asks whether softmig-monitor runs on this node. Also `softmig monitor`, which runs it once.

use anyhow::bail;
use clap::Args;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use softmig_node::node::Node;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Measures once what each job has of each GPU, and shows it.
///
/// The same as 'softmig-monitor --once', which is in /usr/libexec. The daemon goes on beside it.
///
/// Exit status: 0 all was measured and all jobs are within their limits, 3 a job has more than its limit or its limit is not
/// known, 2 wrong usage, 1 not measured, or not completely.
#[derive(Args)]
pub(crate) struct Monitor {
    /// Print one JSON object (docs/formats.md)
    #[arg(long)]
    json: bool,
}

/// Where it is.
pub(crate) const PROGRAM: &str = "/usr/libexec/softmig-monitor";

impl Monitor {
    /// Becomes the other program; what is returned is why it could not.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut command = Command::new(PROGRAM);
        command.arg("--once").args(self.json.then_some("--json"));
        let error = command.exec();
        bail!("{PROGRAM}: {error}; the package softmig-node has it, for GPU nodes")
    }
}

/// The command that starts it.
pub(crate) const START: &str = "'systemctl enable --now softmig-monitor'";
/// The command that ends it for good.
pub(crate) const STOP: &str = "'systemctl disable --now softmig-monitor'";

/// Whether it runs: every user may connect to its socket.
pub(crate) fn runs() -> bool {
    listens(&Node::this_machine().arbiter_socket()).is_ok()
}

/// The daemon's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its number.
    pub(crate) pid: u32,
    /// Whether another file has its name now, or none: it is from before an upgrade.
    pub(crate) replaced: bool,
}

/// Finds the daemon's process among root's.
pub(crate) fn process() -> Option<Process> {
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    entries
        .filter_map(|entry| {
            let folder = entry.path();
            let pid = folder.file_name()?.to_str()?.parse().ok()?;
            let is_roots = folder.metadata().ok()?.uid() == 0;
            let program = std::fs::read_link(folder.join("exe")).ok()?;
            let replaced = replaced(program.as_os_str().as_bytes())?;
            is_roots.then_some(Process { pid, replaced })
        })
        .next()
}

/// Whether a program that is the daemon's has another file by now; `None` for another program.
fn replaced(program: &[u8]) -> Option<bool> {
    match program.strip_suffix(b" (deleted)") {
        Some(path) => (path == PROGRAM.as_bytes()).then_some(true),
        None => (program == PROGRAM.as_bytes()).then_some(false),
    }
}

/// A program's version by its own words; that of a process by its `/proc/PID/exe`, also when its file is gone.
pub(crate) fn version_of(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    said.trim().rsplit(' ').next().map(str::to_string)
}

/// The version of the one that runs, with a blank behind it, where root looks.
pub(crate) fn running_version() -> Option<String> {
    let exe = format!("/proc/{}/exe", process()?.pid);
    Some(format!("{} ", version_of(Path::new(&exe))?))
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
    use std::time::{Duration, Instant};

    #[test]
    fn a_socket_counts_while_a_process_listens_there() {
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
        // A process that another test starts has it too, until it is its own program.
        let end = Instant::now() + Duration::from_secs(10);
        while listens(&path).is_ok() && Instant::now() < end {
            std::thread::yield_now();
        }
        assert_eq!(listens(&path), Err(Errno::CONNREFUSED));
    }

    #[test]
    fn a_daemon_from_before_an_upgrade_is_known() {
        let program = |text: &str| replaced(text.as_bytes());
        assert_eq!(program("/usr/libexec/softmig-monitor"), Some(false));
        assert_eq!(
            program("/usr/libexec/softmig-monitor (deleted)"),
            Some(true)
        );
        assert_eq!(program("/usr/bin/bash"), None);
    }
}
