//! The process that has a pack's MPS server, and keeps the files of its clients.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, chmod, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
    sockopt,
};
use rustix::process::{Pid, Signal, kill_process, setsid};
use rustix::time::Timespec;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tracing::{info, warn};

use super::kept::{Kept, MOST_CLIENTS};
use super::question::{Answer, Question, SOCKET, answer, receive};

/// NVIDIA's program that starts a server for the first client.
const CONTROL_PROGRAM: &str = "nvidia-cuda-mps-control";
/// Its socket, which is there when it is ready.
const CONTROL_SOCKET: &str = "control";
/// How often is looked who has the driver's file no more, though it lives.
const ROUND: Duration = Duration::from_secs(1);
/// How long who asked may take to become a client.
const COMING: Duration = Duration::from_secs(10);
/// How long who asks may take to say it.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long the server may take to end when it is told to.
const ENDING: Duration = Duration::from_secs(2);
/// The longest line of the server's that is looked at.
const LONGEST_LINE: usize = 1024;

/// Has an MPS server for the GPU whose UUID is the name of the folder's parent, until it is told to end or the server does.
///
/// # Errors
/// The system's, and if NVIDIA's control program is not there.
pub fn supervise(folder: &Path) -> io::Result<()> {
    // Signals to the daemon's group are not for this process.
    let _ = setsid();
    softmig_proof::keep_rights_to_borrow()?;
    let gpu = folder.parent().and_then(Path::file_name);
    let listener = listen_at(&folder.join(SOCKET))?;
    let mut server = Command::new(CONTROL_PROGRAM)
        .args(["-f", "-multiuser-server"])
        .env("CUDA_MPS_PIPE_DIRECTORY", folder)
        // It writes to standard output.
        .env("CUDA_MPS_LOG_DIRECTORY", "/dev/null")
        .env("CUDA_VISIBLE_DEVICES", gpu.unwrap_or_default())
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let said = server.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    fcntl_setfl(&said, fcntl_getfl(&said)? | OFlags::NONBLOCK)?;
    let mut supervisor = Supervisor {
        folder: folder.to_owned(),
        listener,
        said,
        line: Vec::new(),
        kept: Kept::default(),
        coming: BTreeMap::new(),
        has_faulted: false,
        is_to_end: false,
    };
    let done = supervisor.serve();
    end(&mut server);
    done
}

/// Ends the server.
fn end(server: &mut Child) {
    let number = i32::try_from(server.id()).ok().and_then(Pid::from_raw);
    if let Some(number) = number {
        let _ = kill_process(number, Signal::TERM);
    }
    let end = Instant::now() + ENDING;
    while matches!(server.try_wait(), Ok(None)) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = server.kill();
    let _ = server.wait();
}

fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    chmod(path, Mode::from_raw_mode(0o600))?;
    listen(&socket, 64)?;
    Ok(socket)
}

/// A pack.
struct Supervisor {
    folder: PathBuf,
    listener: OwnedFd,
    /// What the server writes.
    said: ChildStdout,
    /// The line that is not complete yet.
    line: Vec<u8>,
    kept: Kept,
    /// Who may become a client, until when.
    coming: BTreeMap<u32, Instant>,
    has_faulted: bool,
    is_to_end: bool,
}

impl Supervisor {
    fn serve(&mut self) -> io::Result<()> {
        let mut looked = Instant::now();
        loop {
            let (asks, says, ended) = self.wait()?;
            self.kept.let_go(ended.into_iter());
            if looked.elapsed() >= ROUND {
                looked = Instant::now();
                self.kept.let_those_go_without_a_use();
            }
            if says && !self.listen()? {
                info!("{}: its server has ended", self.folder.display());
                return Ok(());
            }
            if asks {
                self.accept();
            }
            if self.is_to_end || self.has_faulted && self.kept.count() == 0 {
                return Ok(());
            }
        }
    }

    /// Waits until something happens: whether the daemon asks, whether the server says something, and who has ended.
    fn wait(&self) -> io::Result<(bool, bool, Vec<bool>)> {
        let is_any = self.kept.count() > 0;
        let timeout = is_any.then(|| Timespec::try_from(ROUND));
        let timeout = timeout
            .transpose()
            .map_err(|_| io::ErrorKind::InvalidInput)?;
        let own = [self.listener.as_fd(), self.said.as_fd()];
        let all = own.into_iter().chain(self.kept.processes());
        let mut files: Vec<PollFd<'_>> = all
            .map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN))
            .collect();
        match poll(&mut files, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut happened = files.iter().map(|file| !file.revents().is_empty());
        let asks = happened.next().unwrap_or(false);
        let says = happened.next().unwrap_or(false);
        Ok((asks, says, happened.collect()))
    }

    /// Takes what the server has written; false if it has ended.
    fn listen(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 4096];
        let length = match self.said.read(&mut bytes) {
            Ok(0) => return Ok(false),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) => return Err(error),
        };
        for &byte in bytes.get(..length).unwrap_or_default() {
            if byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.note(&String::from_utf8_lossy(&line));
            } else if self.line.len() < LONGEST_LINE {
                self.line.push(byte);
            }
        }
        Ok(true)
    }

    /// The server has written this line.
    fn note(&mut self, line: &str) {
        if !self.has_faulted && is_of_a_fault(line) {
            self.has_faulted = true;
            warn!(
                "{}: a client had a fault on the GPU, and all {} of them end: {line}",
                self.folder.display(),
                self.kept.count()
            );
        }
    }

    fn accept(&mut self) {
        let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC) else {
            return;
        };
        let timeout = sockopt::Timeout::Recv;
        if sockopt::set_socket_timeout(&socket, timeout, Some(PATIENCE)).is_err() {
            return;
        }
        let told = receive(&socket)
            .and_then(|(question, process)| answer(&socket, self.answer(question, process)));
        if let Err(error) = told {
            warn!("{}: a question: {error}", self.folder.display());
        }
    }

    fn answer(&mut self, question: Question, process: Option<OwnedFd>) -> Answer {
        match question {
            Question::End => {
                self.is_to_end = true;
                Answer::Yes
            }
            Question::Enter(_) if self.has_faulted => Answer::Faulted,
            Question::Enter(_) if !self.folder.join(CONTROL_SOCKET).exists() => Answer::Soon,
            Question::Enter(number) => {
                let now = Instant::now();
                self.coming.retain(|_, until| *until > now);
                let is_other = |it: &&u32| **it != number && !self.kept.has(**it);
                let others = self.coming.keys().filter(is_other);
                if self.kept.count() + others.count() >= MOST_CLIENTS {
                    return Answer::Full;
                }
                self.coming.insert(number, now + COMING);
                Answer::Yes
            }
            Question::Keep(number) => {
                let Some(process) = process else {
                    return Answer::NoFiles;
                };
                self.coming.remove(&number);
                let files = softmig_rm::files_of(process.as_fd(), number);
                let is_kept = files.map(|files| self.kept.keep(number, process, files));
                match is_kept {
                    Ok(true) => Answer::Yes,
                    Ok(false) => Answer::NoFiles,
                    Err(error) => {
                        warn!("the files of process {number}: {error}");
                        Answer::NoFiles
                    }
                }
            }
        }
    }
}

/// Whether the server says by this line that a fault of the GPU ends its clients.
fn is_of_a_fault(line: &str) -> bool {
    line.contains("teardown in progress") || line.contains("fatal") || line.contains("FAULT")
}
