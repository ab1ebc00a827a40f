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
use softmig_node::events::Event;
use softmig_node::node::Node;
use softmig_rm::{Channel, ErrorKind, Gpu};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tracing::{info, warn};

use crate::jobs::confs::Confs;
use crate::jobs::log;
use crate::jobs::owner::{Membership, user_and_place};

use super::id::gpu_id;
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
pub fn supervise(node: &Node, folder: &Path) -> io::Result<()> {
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
        node: node.clone(),
        folder: folder.to_owned(),
        listener,
        said,
        line: Vec::new(),
        kept: Kept::default(),
        coming: BTreeMap::new(),
        has_faulted: false,
        is_to_end: false,
        id: gpu.and_then(|name| gpu_id(name.to_str()?)),
        gpu: None,
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
    node: Node,
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
    id: Option<[u8; 16]>,
    /// From the first client on.
    gpu: Option<Gpu>,
}

impl Supervisor {
    fn serve(&mut self) -> io::Result<()> {
        let mut looked = Instant::now();
        loop {
            let (asks, says, ended) = self.wait()?;
            let (gpu, id) = (&mut self.gpu, self.id);
            self.kept
                .let_go(ended.into_iter(), |channels| disable(gpu, id, channels));
            if looked.elapsed() >= ROUND {
                looked = Instant::now();
                let gpu = &mut self.gpu;
                self.kept
                    .let_those_go_without_a_use(|channels| disable(gpu, id, channels));
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
            tell_of_fault(&self.node, &self.kept, process_in(line));
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
            Question::Channels(number, channels) => {
                let channel = |(client, handle)| Channel { client, handle };
                let channels = channels.into_iter().map(channel).collect();
                self.kept.note_channels(number, channels);
                // Before it ends: to open the GPU takes longer than to disable its channels.
                open(&mut self.gpu, self.id);
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

/// Whether the server says by this line that a fault of the GPU ends its clients. So says that of driver 580.
fn is_of_a_fault(line: &str) -> bool {
    ["fatal GPU error", "teardown in progress"]
        .iter()
        .any(|words| line.contains(words))
}

/// The process that a line of the server's is about: `Client {PID: 2041, Context: 1} encountered ...`.
fn process_in(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once("{PID: ")?;
    rest.split(',').next()?.parse().ok()
}

/// Says whose fault it was, in the events and in the logs of all jobs whose programs end by it.
fn tell_of_fault(node: &Node, kept: &Kept, process: Option<u32>) {
    let confs = Confs::read(node).unwrap_or_default();
    let job = |number| match user_and_place(Path::new("/proc"), number).ok()?.1 {
        Membership::Job(job) => Some(job),
        Membership::Sluid(name) => confs.sluids.get(&name).copied(),
        Membership::Outside => None,
    };
    let whose = process.and_then(job);
    let who = match (whose, process) {
        (Some(job), Some(process)) => format!("process {process} of job {job}"),
        _ => "a program".to_owned(),
    };
    let sentence = format!(
        "{who} had a fault on the GPU, such as a wrong address. It ends all programs of this user that run there at the same time: start them again"
    );
    let mut jobs = BTreeMap::new();
    for number in kept.numbers() {
        jobs.extend(job(number).map(|job| (job, number)));
    }
    for (&job, &number) in &jobs {
        log::tell(node, job, number, &sentence);
    }
    let event = Event {
        job: whose,
        uid: whose.and_then(|job| Some(confs.jobs.get(&job)?.as_ref().ok()?.uid)),
        ..Event::new("pack_fault")
    };
    let ended: Vec<u32> = jobs.into_keys().collect();
    if let Err(error) = event.with("ended", ended).write(node) {
        warn!("no event: {error}");
    }
}

fn open(gpu: &mut Option<Gpu>, id: Option<[u8; 16]>) -> Option<&Gpu> {
    if let (None, Some(id)) = (&gpu, id) {
        match Gpu::open(id) {
            Ok(opened) => *gpu = Some(opened),
            Err(error) => warn!("channels of clients that end are left to the daemon: {error}"),
        }
    }
    gpu.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_words_about_a_fault_are_known() {
        let line = "[2026-11-28 04:01:02.011 Server  2039] Client {PID: 2041, Context: 1} encountered a fatal GPU error.";
        assert!(is_of_a_fault(line));
        assert_eq!(process_in(line), Some(2041));
        let line = "[2026-11-28 04:01:02.011 Server  2039] Server is handling a fatal GPU error.";
        assert!(is_of_a_fault(line) && process_in(line).is_none());
        for line in [
            "Status of client {PID: 2041, Context ID: 1} is ACTIVE",
            "Client process 2041 disconnected",
        ] {
            assert!(!is_of_a_fault(line), "{line}");
        }
    }
}

/// Takes channels off the GPU for good: those of processes that have ended.
fn disable(gpu: &mut Option<Gpu>, id: Option<[u8; 16]>, channels: &[Channel]) {
    let untaken = open(gpu, id).map(|gpu| gpu.enable(channels, false));
    let error = untaken.and_then(|untaken| untaken.error);
    if let Some(error) = error.filter(|error| error.kind() != ErrorKind::Gone) {
        warn!(
            "{} channels of clients that have ended: {error}",
            channels.len()
        );
    }
}
