//! The process that has a pack's MPS server, and keeps the files of its clients.

#![expect(unsafe_code, reason = "the server ends with this process")]

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, chmod, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
    sockopt,
};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal, setsid};
use rustix::time::Timespec;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level;
use softmig_node::events::Event;
use softmig_node::node::Node;
use softmig_node::packs::{keep_charged, note_fault};
use std::collections::BTreeMap;
use std::io::{self, PipeReader, Read, pipe};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};

use crate::jobs::log;
use crate::jobs::owner::user_of;
use crate::jobs::patience::within;

use super::device::Device;
use super::kept::{self, Kept, Left, Room};
use super::question::{Answer, Question, SOCKET, answer, receive};

/// NVIDIA's program that starts a server for the first client.
const CONTROL_PROGRAM: &str = "nvidia-cuda-mps-control";
/// Its socket, which is there when it is ready.
pub(super) const CONTROL_SOCKET: &str = "control";
/// How often is looked who has the driver's file no more, though it lives.
const ROUND: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
/// How long who asked may take to become a client. The driver takes 0.2 s for each, one after the other (research/packs.md).
const COMING: Duration = Duration::from_secs(60);
/// How long who asks may take to say it.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long the server may take to end when it is told to.
const ENDING: Duration = Duration::from_secs(2);
/// How long clients may take to end after a fault.
const FAULTED: Duration = Duration::from_secs(20);
/// The longest line of the server's that is looked at.
const LONGEST_LINE: usize = 1024;

/// Has an MPS server for the GPU whose UUID is the name of the folder's parent, until it is told to end, or the server ends.
///
/// # Errors
/// The system's, and if NVIDIA's control program is not there.
pub fn supervise(node: &Node, folder: &Path) -> io::Result<()> {
    // Signals to the daemon's group are not for this process.
    let _ = setsid();
    softmig_proof::keep_rights_to_borrow()?;
    let (told, tell) = pipe()?;
    for signal in [SIGTERM, SIGINT] {
        low_level::pipe::register(signal, OwnedFd::from(tell.try_clone()?))?;
    }
    let gpu = folder.parent().and_then(Path::file_name);
    let gpu = gpu.and_then(|name| name.to_str()).unwrap_or_default();
    let listener = listen_at(&folder.join(SOCKET))?;
    let mut server = start_server(folder, gpu)?;
    let said = server.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    fcntl_setfl(&said, fcntl_getfl(&said)? | OFlags::NONBLOCK)?;
    let mut supervisor = Supervisor {
        node: node.clone(),
        folder: folder.to_owned(),
        listener,
        told,
        said,
        line: Vec::new(),
        kept: Kept::default(),
        coming: BTreeMap::new(),
        state: State::Serves,
        device: Device::of(gpu),
    };
    let done = supervisor.serve();
    end(&mut server);
    done
}

fn start_server(folder: &Path, gpu: &str) -> io::Result<Child> {
    let mut command = Command::new(CONTROL_PROGRAM);
    command
        .args(["-f", "-multiuser-server"])
        .env("CUDA_MPS_PIPE_DIRECTORY", folder)
        // It writes to standard output.
        .env("CUDA_MPS_LOG_DIRECTORY", "/dev/null")
        .env("CUDA_VISIBLE_DEVICES", gpu)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let end_with_this = || Ok(set_parent_process_death_signal(Some(Signal::TERM))?);
    // SAFETY: a call of the kernel and nothing else.
    unsafe { command.pre_exec(end_with_this) };
    command.spawn()
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
    // A daemon that did not wait for an answer leaves its questions there.
    listen(&socket, 1024)?;
    Ok(socket)
}

/// A pack.
struct Supervisor {
    node: Node,
    folder: PathBuf,
    listener: OwnedFd,
    /// Readable when a signal tells it to end.
    told: PipeReader,
    /// What the server writes.
    said: ChildStdout,
    /// The line that is not complete yet.
    line: Vec<u8>,
    kept: Kept,
    /// Who may become a client, until when.
    coming: BTreeMap<u32, Instant>,
    state: State,
    device: Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It takes clients.
    Serves,
    /// A fault of the GPU ends its clients. When they have ended it does, or at this time: what they had is lost.
    HasFaulted(Instant),
    /// It was told to end.
    Ends,
}

/// What has happened.
struct Happened {
    asks: bool,
    is_told: bool,
    says: bool,
    /// In the order of [`Kept::processes`].
    ended: Vec<bool>,
}

impl Supervisor {
    fn serve(&mut self) -> io::Result<()> {
        let mut looked = Instant::now();
        while self.state != State::Ends {
            let happened = self.wait()?;
            // The server names whose fault it was while that is known here.
            let is_alive = !happened.says || self.listen()?;
            let device = &mut self.device;
            let disable = |left: &[Left<'_>]| device.disable(left);
            self.kept.let_go(happened.ended.into_iter(), disable);
            if looked.elapsed().as_secs() >= ROUND.tv_sec.unsigned_abs() {
                looked = Instant::now();
                let device = &mut self.device;
                let disable = |left: &[Left<'_>]| device.disable(left);
                self.kept.let_those_go_without_a_use(disable);
                self.kept.let_those_go_that_had_time();
            }
            if happened.asks {
                self.accept();
            }
            let is_over = match self.state {
                State::HasFaulted(until) => self.kept.count() == 0 || Instant::now() > until,
                State::Serves | State::Ends => false,
            };
            if !is_alive || happened.is_told || is_over {
                info!("{}: its server ends", self.folder.display());
                self.state = State::Ends;
            }
        }
        Ok(())
    }

    /// Waits until something happens.
    fn wait(&self) -> io::Result<Happened> {
        let timeout = (self.kept.count() > 0).then_some(&ROUND);
        let own = [self.listener.as_fd(), self.told.as_fd(), self.said.as_fd()];
        let all = own.into_iter().chain(self.kept.processes());
        let mut files: Vec<PollFd<'_>> = all
            .map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN))
            .collect();
        match poll(&mut files, timeout) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut is = files.iter().map(|file| !file.revents().is_empty());
        let mut next = || is.next().unwrap_or(false);
        Ok(Happened {
            asks: next(),
            is_told: next(),
            says: next(),
            ended: is.collect(),
        })
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
        if self.state == State::Serves && is_of_a_fault(line) {
            self.state = State::HasFaulted(Instant::now() + FAULTED);
            warn!(
                "{}: a client had a fault on the GPU, and all {} of them end: {line}",
                self.folder.display(),
                self.kept.count()
            );
            let is_measurement = self.kept.count() > 0 && self.kept.jobs().next().is_none();
            if !is_measurement {
                if let Err(error) = note_fault(&self.folder) {
                    warn!("{}: {error}", self.folder.display());
                }
                tell_of_fault(&self.node, &self.kept, process_in(line));
            }
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
            // Who has entered meanwhile stays.
            Question::End if self.kept.count() + self.coming().len() > 0 => Answer::Soon,
            Question::End => {
                self.state = State::Ends;
                Answer::Yes
            }
            Question::IsOff(number) => match self.kept.is_off(number) {
                true => Answer::Yes,
                false => Answer::Soon,
            },
            Question::LetGo(number) => {
                self.kept.let_go_of(number);
                Answer::Yes
            }
            Question::Enter(number) => self.enter(number),
            Question::Keep(number, job) => self.keep(number, job, process),
            Question::Channels(number, channels) => {
                if !self.kept.note_channels(number, channels) {
                    return Answer::NoFiles;
                }
                // To open the GPU takes longer than to disable channels.
                self.device.open();
                Answer::Yes
            }
        }
    }

    fn enter(&mut self, number: u32) -> Answer {
        let device = &mut self.device;
        self.kept
            .let_former_go(number, |left: &[Left<'_>]| device.disable(left));
        if self.state != State::Serves {
            return Answer::Faulted;
        }
        if !self.folder.join(CONTROL_SOCKET).exists() {
            return Answer::Soon;
        }
        let others = self.coming().keys().filter(|it| **it != number).count();
        match self.kept.room(others) {
            Room::Free => {
                self.coming.insert(number, Instant::now() + COMING);
                Answer::Yes
            }
            Room::Soon => Answer::Filled,
            Room::None => Answer::Full,
        }
    }

    /// Those that may still become clients.
    fn coming(&mut self) -> &BTreeMap<u32, Instant> {
        let now = Instant::now();
        let lives = |number: &u32| Path::new("/proc").join(number.to_string()).exists();
        (self.coming).retain(|number, until| *until > now && lives(number));
        &self.coming
    }

    /// Keeps the files of a process that has entered here.
    fn keep(&mut self, number: u32, job: u32, process: Option<OwnedFd>) -> Answer {
        if self.kept.has(number) {
            // It did not hear the answer.
            return Answer::Yes;
        }
        let has_entered = self.coming.contains_key(&number);
        let Some(process) = process.filter(|_| has_entered) else {
            return Answer::NoFiles;
        };
        let job = (job != 0).then_some(job);
        let charge = job.map(|job| keep_charged(&self.node, job, number));
        let charge = match charge.transpose() {
            Ok(charge) => charge,
            Err(error) => {
                debug!("the ledger of process {number}'s job: {error}");
                return Answer::Soon;
            }
        };
        let files = move || -> io::Result<_> {
            let files = softmig_rm::files_of(process.as_fd(), number)?;
            Ok((files, process))
        };
        let user = user_of(number);
        match within(kept::PATIENCE, user, number, files) {
            Some(Ok((files, process))) if files.is_complete() => {
                self.coming.remove(&number);
                self.kept
                    .keep((number, user, process), job.zip(charge), files);
                Answer::Yes
            }
            Some(Ok(_)) => Answer::NoFiles,
            Some(Err(error)) => {
                debug!("the files of process {number}: {error}");
                Answer::NoFiles
            }
            // Its user keeps who looks at it, or did a moment ago: a process that executes another program can.
            None => Answer::Soon,
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
    let whose = kept.jobs().find(|(number, _)| Some(*number) == process);
    let who = match whose {
        Some((process, job)) => format!("process {process} of job {job}"),
        None => "a program".to_owned(),
    };
    let sentence = format!(
        "{who} had a fault on the GPU, such as a wrong address. It ends all programs that run there in the same pack: start them again"
    );
    let jobs: BTreeMap<u32, u32> = kept.jobs().map(|(number, job)| (job, number)).collect();
    for (&job, &number) in &jobs {
        log::tell(node, job, number, &sentence);
    }
    let event = Event {
        job: whose.map(|(_, job)| job),
        ..Event::new("pack_fault")
    };
    let ended: Vec<u32> = jobs.into_keys().collect();
    if let Err(error) = event.with("ended", ended).write(node) {
        warn!("no event: {error}");
    }
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
