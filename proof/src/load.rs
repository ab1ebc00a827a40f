//! The program that keeps a GPU busy: what `softmig-monitor --prove-load` is.
//!
//! It says once by a line which channels it has, and answers each line that it reads with a line: what its kernels have
//! counted. A line with a number says how many nanoseconds each kernel takes from then on. It ends when its input is closed.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use softmig_rm::{Channel, Group};
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cuda::{Cuda, NANOS, Spinner};
use crate::{noted, rights};

/// How long the first kernel may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The first line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Hello {
    /// It is at work, with these channels: descriptor, client, group and channel of each.
    Channels(Vec<(i32, u32, u32, u32)>),
    /// Why it is not.
    Error(String),
}

impl Hello {
    /// Its channels.
    pub(crate) fn channels(self) -> Result<Vec<(Group, Channel)>, String> {
        let split = |(file, client, group, channel)| {
            let group = Group {
                file,
                client,
                handle: group,
            };
            let handle = channel;
            (group, Channel { client, handle })
        };
        match self {
            Self::Channels(all) if all.is_empty() => {
                Err("no channel of the program's was seen to be made".into())
            }
            Self::Channels(all) => Ok(all.into_iter().map(split).collect()),
            Self::Error(why) => Err(why),
        }
    }
}

/// Keeps the GPU busy until standard input ends, as this user if it may.
pub fn run(user: u32) -> ! {
    // Under the daemon's unit it may not. Then it is one more program of root's.
    let _ = (user != 0).then(|| rights::become_user(user));
    let no_rights = rights::keep(rustix::thread::CapabilitySet::empty());
    let no_rights = no_rights.and_then(|()| end_with_parent());
    let served = no_rights
        .map_err(|error| error.to_string())
        .and_then(|()| serve());
    let status = match served {
        Ok(()) => 0,
        Err(why) => i32::from(say(&Hello::Error(why)).is_ok()),
    };
    // SAFETY: ends this process. libcuda's own ways of ending wait for the GPU, which may be told not to run its channels.
    unsafe { libc::_exit(status) }
}

/// A new user's process does not end with its parent any more, until this is asked for anew.
fn end_with_parent() -> std::io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent has the only other end of standard input.
    let input = std::io::stdin();
    let mut input = [PollFd::new(&input, PollFlags::empty())];
    match poll(&mut input, Some(&Timespec::default()))? {
        0 => Ok(()),
        _ => Err(Errno::SRCH.into()),
    }
}

fn serve() -> Result<(), String> {
    noted::start();
    let counter = start()?;
    let channels = noted::channels()
        .into_iter()
        .map(|(group, channel)| (group.file, group.client, group.handle, channel.handle));
    say(&Hello::Channels(channels.collect()))?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        if let Ok(nanos) = line.parse() {
            NANOS.store(nanos, Ordering::SeqCst);
        }
        say(&counter.load(Ordering::SeqCst))?;
    }
    Ok(())
}

/// Begins to launch, in a thread of its own, and gives the counter when the first kernel has ended.
fn start() -> Result<&'static AtomicU64, String> {
    static HAS_FAILED: AtomicBool = AtomicBool::new(false);
    let (to, from) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let spinner = Cuda::open().and_then(|cuda| {
            let spinner = Spinner::new(&cuda);
            // It is never closed: threads of its own may be at work in it.
            std::mem::forget(cuda);
            spinner
        });
        let mut spinner = match spinner {
            Ok(spinner) => spinner,
            Err(why) => return drop(to.send(Err(why))),
        };
        let _ = to.send(Ok(spinner.counter()));
        while spinner.launch().is_ok() {}
        HAS_FAILED.store(true, Ordering::SeqCst);
    });
    let counter = from.recv().map_err(|error| error.to_string())??;
    let deadline = Instant::now() + PATIENCE;
    while counter.load(Ordering::SeqCst) == 0 {
        if HAS_FAILED.load(Ordering::SeqCst) || Instant::now() > deadline {
            return Err("the kernel does not run".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(counter)
}

/// Writes a line.
fn say(what: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string(what).map_err(|error| error.to_string())?;
    let mut out = std::io::stdout().lock();
    let said = writeln!(out, "{text}").and_then(|()| out.flush());
    said.map_err(|error| error.to_string())
}
