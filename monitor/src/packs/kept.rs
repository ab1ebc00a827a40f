//! The files of a pack's clients, which stay open until the work of a client that has ended is off the GPU.

use softmig_rm::{Files, has_control};

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tracing::warn;

/// The time from the end of a client, when its channels are disabled, until its file of control is closed. Where they could not be
/// disabled, closing it takes 2 s, in which the driver does little else.
const BEFORE_CONTROL: Duration = Duration::from_millis(50);
/// The time from then until those of unified memory are closed. Without both pauses clients that ended took others with them in 7
/// of 34 trials. With both they did in none of 42, in which there were 50 ms before each of two files (research/packs.md).
const BEFORE_UNIFIED: Duration = Duration::from_millis(100);

/// How many clients a server has at most. NVIDIA's takes 48 contexts, and a client may have several.
pub(super) const MOST_CLIENTS: usize = 40;

/// The clients whose files are open here.
#[derive(Debug, Default)]
pub(super) struct Kept {
    clients: Vec<Client>,
    /// One more reference for each client that has ended, until its files are closed.
    ended: Arc<()>,
}

#[derive(Debug)]
struct Client {
    number: u32,
    job: u32,
    process: OwnedFd,
    files: Files,
    channels: Vec<Told>,
}

/// A channel as a client tells of it: the driver's client, its group and its handle.
pub(super) type Told = (u32, u32, u32);

/// What a client that has ended had, as it told. Its own file proves it.
pub(super) struct Left<'a> {
    pub(super) files: &'a Files,
    pub(super) channels: &'a [Told],
}

impl Kept {
    /// How many there are, those included whose files are being closed.
    pub(super) fn count(&self) -> usize {
        self.clients.len() + Arc::strong_count(&self.ended) - 1
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.clients.iter().any(|it| it.number == number)
    }

    /// Keeps the files of a process of this job.
    pub(super) fn keep(&mut self, (number, process): (u32, OwnedFd), job: u32, files: Files) {
        self.clients.push(Client {
            number,
            job,
            process,
            files,
            channels: Vec::new(),
        });
    }

    /// Notes which channels a client has; false for a process that is none.
    pub(super) fn note_channels(&mut self, number: u32, channels: Vec<Told>) -> bool {
        let client = self.clients.iter_mut().find(|it| it.number == number);
        let is_client = client.is_some();
        if let Some(client) = client {
            client.channels = channels;
        }
        is_client
    }

    /// The clients that have not ended, and their jobs.
    pub(super) fn jobs(&self) -> impl Iterator<Item = (u32, u32)> {
        self.clients.iter().map(|it| (it.number, it.job))
    }

    /// The files that are readable once a client has ended.
    pub(super) fn processes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.clients.iter().map(|it| it.process.as_fd())
    }

    /// Lets those go that have ended, as `has_ended` says in the order of [`Kept::processes`]. First `disable` is told of all at once:
    /// one call takes as long for many channels as for one.
    pub(super) fn let_go(
        &mut self,
        mut has_ended: impl Iterator<Item = bool>,
        disable: impl FnOnce(&[Left<'_>]),
    ) {
        let all = std::mem::take(&mut self.clients);
        let (ended, alive): (Vec<_>, _) = all
            .into_iter()
            .partition(|_| has_ended.next().unwrap_or(false));
        self.clients = alive;
        let with_channels = ended.iter().filter(|it| !it.channels.is_empty());
        let left = with_channels.map(|it| Left {
            files: &it.files,
            channels: &it.channels,
        });
        let left: Vec<Left<'_>> = left.collect();
        if !left.is_empty() {
            disable(&left);
        }
        self.close(ended);
    }

    /// The same for those that have closed the driver's file themselves, or became another program.
    pub(super) fn let_those_go_without_a_use(&mut self, disable: impl FnOnce(&[Left<'_>])) {
        let uses = |client: &Client| {
            let mut control = client.files.control.iter();
            control.any(|(descriptor, _)| has_control(client.number, *descriptor))
        };
        let uses: Vec<bool> = self.clients.iter().map(uses).collect();
        self.let_go(uses.into_iter().map(|uses| !uses), disable);
    }

    fn close(&self, ended: Vec<Client>) {
        for Client { number, files, .. } in ended {
            let counted = Arc::clone(&self.ended);
            let close = move || {
                let Files { control, unified } = files;
                thread::sleep(BEFORE_CONTROL);
                drop(control);
                thread::sleep(BEFORE_UNIFIED);
                drop(unified);
                drop(counted);
            };
            // Each waits by itself: the driver may take its time.
            if let Err(error) = thread::Builder::new().spawn(close) {
                warn!("the files of process {number} were closed at once: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, Read, pipe};
    use std::process::Command;
    use std::time::Instant;

    /// The files of a process, and what tells when each of both kinds is closed here.
    fn files() -> (Files, [PipeReader; 2]) {
        let (control_end, control) = pipe().unwrap();
        let (unified_end, unified) = pipe().unwrap();
        let files = Files {
            control: vec![(3, control.into())],
            unified: vec![unified.into()],
        };
        (files, [control_end, unified_end])
    }

    fn process() -> (std::process::Child, OwnedFd) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let number = i32::try_from(child.id()).unwrap();
        let number = rustix::process::Pid::from_raw(number).unwrap();
        let flags = rustix::process::PidfdFlags::empty();
        let file = rustix::process::pidfd_open(number, flags).unwrap();
        (child, file)
    }

    #[test]
    fn the_file_of_control_is_closed_first_and_none_before_the_end() {
        let mut kept = Kept::default();
        let (mut child, file) = process();
        let (files, [mut control, mut unified]) = files();
        kept.keep((child.id(), file), 7, files);
        assert!(kept.has(child.id()) && kept.count() == 1);
        let channel = |handle| (7, 70, handle);
        assert!(kept.note_channels(child.id(), vec![channel(1), channel(2)]));
        assert!(!kept.note_channels(child.id() + 1, vec![channel(3)]));
        assert_eq!(kept.jobs().collect::<Vec<_>>(), [(child.id(), 7)]);
        kept.let_go([false].into_iter(), |_| panic!("it lives"));
        assert_eq!(kept.count(), 1);
        child.kill().unwrap();
        child.wait().unwrap();
        let begun = Instant::now();
        let mut disabled = Vec::new();
        kept.let_go([true].into_iter(), |left| {
            disabled.extend(left.iter().flat_map(|it| it.channels.to_vec()));
        });
        assert_eq!(disabled, [channel(1), channel(2)]);
        assert!(!kept.has(child.id()), "another may have its number");
        assert_eq!(kept.count(), 1, "its files are open still");
        // Each is read to its end, which comes when it is closed.
        let mut text = Vec::new();
        control.read_to_end(&mut text).unwrap();
        assert!(begun.elapsed() >= BEFORE_CONTROL);
        unified.read_to_end(&mut text).unwrap();
        assert!(begun.elapsed() >= BEFORE_CONTROL + BEFORE_UNIFIED);
        while kept.count() > 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn who_became_another_program_is_let_go() {
        let mut kept = Kept::default();
        let (mut child, file) = process();
        let (files, [mut control, _unified]) = files();
        kept.keep((child.id(), file), 7, files);
        // It has no file of the driver's by that descriptor.
        kept.let_those_go_without_a_use(|_| panic!("its channels are not known"));
        control.read_to_end(&mut Vec::new()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
