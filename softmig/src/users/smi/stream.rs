//! Runs nvidia-smi with a filter behind it, so that the caller notices nothing of the one in between: what goes through
//! goes through at once, signals reach nvidia-smi, and its end is softmig's.

use super::filter::Filter;
use super::request::Request;
use crate::output::exit_status::end_like;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// How long nothing must have come until what waits for more goes on. pmon's samples are at least a second apart.
const PAUSE: Duration = Duration::from_millis(200);

/// The signals that end a program and that users send on purpose.
const PASSED_ON: [i32; 7] = [SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// One run of nvidia-smi.
pub(crate) struct Run<'a> {
    request: &'a Request,
    filter: Filter,
    /// The caller's file, in the place of standard output.
    log: Option<File>,
}

/// The events while it runs.
enum Event {
    Output(Vec<u8>),
    End,
}

impl<'a> Run<'a> {
    /// A run to come. `None` where nvidia-smi cannot write its file, and says so better itself.
    pub(crate) fn new(request: &'a Request, filter: Filter) -> Option<Self> {
        Some(Self {
            request,
            filter,
            log: request.log().map(File::create).transpose().ok()?,
        })
    }

    /// Runs it to its end. Comes back with its exit status, or not at all if a signal ended it; with an error if it did
    /// not start.
    pub(crate) fn run(mut self, program: &Path) -> io::Result<ExitCode> {
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(program);
        let mut child = if self.log.is_some() {
            // Its output before it turns to its file is for the caller's screen.
            command.args(self.request.words_with_log(&name_for_child(&writer)?));
            let child = command.spawn()?;
            drop(writer);
            child
        } else {
            command.args(self.request.words()).stdout(writer);
            command.spawn()?
        };
        // It holds the pipe too, which else would never come to its end.
        drop(command);
        // After the start, so that nvidia-smi ignores what the caller had it ignore.
        let signals = pass_signals_on(Pid::from_child(&child))?;
        // A slow reader blocks nvidia-smi, as without softmig.
        let (events, received) = sync_channel(1);
        read_all(reader, events);
        let written = self.pass_through(&child, &received);
        // Its number may be another's once it is waited for.
        signals.close();
        let status = child.wait()?;
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                eprintln!("softmig smi: what nvidia-smi said could not be written: {error}");
                Ok(ExitCode::FAILURE)
            }
            _ => Ok(end_like(status)),
        }
    }

    /// Lets the output through until there is no more.
    fn pass_through(&mut self, child: &Child, events: &Receiver<Event>) -> io::Result<()> {
        let mut written = Ok(());
        loop {
            let mut out = Vec::new();
            let event = if self.filter.waits() {
                events.recv_timeout(PAUSE)
            } else {
                events.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            let is_end = match event {
                Ok(Event::Output(bytes)) => {
                    self.filter.feed(&bytes, &mut out);
                    false
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.filter.pause(&mut out);
                    false
                }
                Ok(Event::End) | Err(RecvTimeoutError::Disconnected) => {
                    self.filter.end(&mut out);
                    true
                }
            };
            if written.is_ok() {
                written = self.write(&out);
                if written.is_err() {
                    // The reader is gone: nvidia-smi would have learned it just now, in this way.
                    let _ = kill_process(Pid::from_child(child), Signal::PIPE);
                }
            }
            if is_end {
                return written;
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if let Some(log) = &mut self.log {
            return log.write_all(bytes);
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        stdout.flush()
    }
}

/// Passes signals on until the handle is closed.
fn pass_signals_on(child: Pid) -> io::Result<Handle> {
    let mut signals = Signals::new(PASSED_ON)?;
    let handle = signals.handle();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if let Some(signal) = Signal::from_named_raw(signal) {
                let _ = kill_process(child, signal);
            }
        }
    });
    Ok(handle)
}

/// Tells of all that comes out of the pipe.
fn read_all(mut pipe: PipeReader, events: SyncSender<Event>) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let event = match pipe.read(&mut buffer) {
                Ok(0) => Event::End,
                Ok(length) => Event::Output(buffer.get(..length).unwrap_or_default().to_vec()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => Event::End,
            };
            let is_end = matches!(event, Event::End);
            if events.send(event).is_err() || is_end {
                return;
            }
        }
    });
}

/// A path by which the child finds this pipe.
fn name_for_child(pipe: &PipeWriter) -> io::Result<PathBuf> {
    fcntl_setfd(pipe, FdFlags::empty())?;
    Ok(format!("/proc/self/fd/{}", pipe.as_raw_fd()).into())
}
