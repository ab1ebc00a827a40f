//! The files of a pack's clients, which stay open until the work of a client that has ended is off the GPU.
//!
//! What is disabled begins no other kernel, and those that have begun go on to their end. If their memory is taken away meanwhile, that
//! is a fault of all clients (research/packs.md). No call says when they have ended. So the daemon counts the time that the pack had the
//! GPU, and says when it was enough.
//!
//! While channels with work are disabled, other clients may stand still. They go on when the driver has taken these channels away, some
//! 50 ms after the file of control is closed. So those that ended at the same moment are taken off the GPU one after the other.

use softmig_rm::{Files, has_control};

use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::warn;

/// How long one waits for the one before to be taken off the GPU. Where its channels could not be disabled, this takes the driver 2 s.
const PATIENCE: Duration = Duration::from_secs(3);
/// The least time from when a client is off the GPU until its files of unified memory are closed.
const BEFORE_UNIFIED: Duration = Duration::from_millis(100);
/// How long kernels may go on from then where no other client lives.
const ALONE: Duration = Duration::from_secs(2);
/// The same at most, if the daemon does not say earlier that they have had their time.
const LONGEST: Duration = Duration::from_secs(20);
/// Of more clients that have ended, the oldest are let go.
const MOST_ENDED: usize = 256;

/// A thread that closes files calls nothing deep.
const STACK: usize = 256 << 10;

/// How many clients a server has at most. NVIDIA's takes 48 contexts, and a client may have several.
pub(super) const MOST_CLIENTS: usize = 40;

/// The clients whose files are open here.
pub(super) struct Kept {
    clients: Vec<Client>,
    ended: Vec<Ended>,
    /// One more reference for each client that has ended, until its files are closed.
    turn: Arc<Turn>,
    disable: Arc<dyn Fn(Left<'_>) + Send + Sync>,
}

/// Those that have ended take it one after the other.
#[derive(Debug, Default)]
struct Turn {
    is_taken: Mutex<bool>,
    is_free: Condvar,
}

impl Turn {
    /// Does this when the one before has done it, or takes too long.
    fn take(&self, what: impl FnOnce()) {
        let is_taken = self.is_taken.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .is_free
            .wait_timeout_while(is_taken, PATIENCE, |it| *it);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = true;
        what();
        *self.is_taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.is_free.notify_one();
    }
}

/// A client that has ended, and that may have work on the GPU.
#[derive(Debug)]
struct Ended {
    number: u32,
    /// When its channels were taken off the GPU.
    off: Arc<OnceLock<Instant>>,
    /// Its files of unified memory are closed when this is dropped, and not before.
    _keep: Sender<()>,
}

#[derive(Debug)]
struct Client {
    number: u32,
    process: OwnedFd,
    /// Its job, which is charged for what the process had as long as the file is open. A measurement's has none.
    charged: Option<(u32, File)>,
    files: Files,
    channels: Vec<Told>,
    /// Whether it ever had some: at its exit CUDA gives them back while kernels run.
    had_channels: bool,
}

/// A channel as a client tells of it: the driver's client, its group and its handle.
pub(super) type Told = (u32, u32, u32);

/// What a client that has ended had, as it told. Its own file proves it.
pub(super) struct Left<'a> {
    pub(super) control: &'a [(i32, OwnedFd)],
    pub(super) channels: &'a [Told],
}

impl Kept {
    /// None yet. `disable` keeps the channels of one that has ended from beginning other kernels.
    pub(super) fn new(disable: impl Fn(Left<'_>) + Send + Sync + 'static) -> Self {
        Self {
            clients: Vec::new(),
            ended: Vec::new(),
            turn: Arc::default(),
            disable: Arc::new(disable),
        }
    }

    /// How many there are, those included whose files are being closed.
    pub(super) fn count(&self) -> usize {
        self.clients.len() + Arc::strong_count(&self.turn) - 1
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.clients.iter().any(|it| it.number == number)
    }

    /// Keeps the files of a process of this job, and the job charged for it.
    pub(super) fn keep(
        &mut self,
        (number, process): (u32, OwnedFd),
        charged: Option<(u32, File)>,
        files: Files,
    ) {
        self.clients.push(Client {
            number,
            process,
            charged,
            files,
            channels: Vec::new(),
            had_channels: false,
        });
    }

    /// Notes which channels a client has; false for a process that is none.
    pub(super) fn note_channels(&mut self, number: u32, channels: Vec<Told>) -> bool {
        let client = self.clients.iter_mut().find(|it| it.number == number);
        let is_client = client.is_some();
        if let Some(client) = client {
            client.had_channels |= !channels.is_empty();
            client.channels = channels;
        }
        is_client
    }

    /// The clients of jobs that have not ended, and their jobs.
    pub(super) fn jobs(&self) -> impl Iterator<Item = (u32, u32)> {
        let clients = self.clients.iter();
        clients.filter_map(|it| Some((it.number, it.charged.as_ref()?.0)))
    }

    /// The files that are readable once a client has ended.
    pub(super) fn processes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.clients.iter().map(|it| it.process.as_fd())
    }

    /// Lets those go that have ended, as `has_ended` says in the order of [`Kept::processes`].
    pub(super) fn let_go(&mut self, mut has_ended: impl Iterator<Item = bool>) {
        let all = std::mem::take(&mut self.clients);
        for client in all {
            if has_ended.next().unwrap_or(false) {
                self.close(client);
            } else {
                self.clients.push(client);
            }
        }
        let surplus = self.ended.len().saturating_sub(MOST_ENDED);
        self.ended.drain(..surplus);
    }

    /// The same for those that have closed the driver's file themselves, or became another program.
    pub(super) fn let_those_go_without_a_use(&mut self) {
        let uses = |client: &Client| {
            let mut control = client.files.control.iter();
            control.any(|(descriptor, _)| has_control(client.number, *descriptor))
        };
        let uses: Vec<bool> = self.clients.iter().map(uses).collect();
        self.let_go(uses.into_iter().map(|uses| !uses));
    }

    fn close(&mut self, client: Client) {
        let Client {
            number,
            charged,
            files,
            channels,
            had_channels,
            ..
        } = client;
        let (keep, kept) = channel();
        let off = Arc::default();
        // Who had no channel had no work.
        if had_channels {
            self.ended.push(Ended {
                number,
                off: Arc::clone(&off),
                _keep: keep,
            });
        }
        let (turn, disable) = (Arc::clone(&self.turn), Arc::clone(&self.disable));
        let close = move || {
            let Files { control, unified } = files;
            turn.take(|| {
                if !channels.is_empty() {
                    disable(Left {
                        control: &control,
                        channels: &channels,
                    });
                }
                drop(control);
            });
            let _ = off.set(Instant::now());
            thread::sleep(BEFORE_UNIFIED);
            // Nothing is ever sent.
            let _ = kept.recv();
            drop(unified);
            drop(charged);
            drop(turn);
        };
        // Each waits by itself: the driver may take its time.
        let thread = thread::Builder::new().stack_size(STACK);
        if let Err(error) = thread.spawn(close) {
            warn!("the files of process {number} were closed at once: {error}");
        }
    }

    /// The work of a client that has ended is off the GPU. False if its channels are not yet, so that kernels may have begun until now.
    pub(super) fn note_off(&mut self, number: u32) -> bool {
        let is_on = |it: &Ended| it.number == number && it.off.get().is_none();
        if self.has(number) || self.ended.iter().any(is_on) {
            return false;
        }
        self.ended.retain(|it| it.number != number);
        true
    }

    /// Lets those go for whose work it was waited long enough.
    pub(super) fn let_those_go_that_had_time(&mut self) {
        let most = if self.clients.is_empty() {
            ALONE
        } else {
            LONGEST
        };
        let has_time = |since: &Instant| since.elapsed() < most;
        self.ended.retain(|it| it.off.get().is_none_or(has_time));
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Kept");
        shown.field("clients", &self.clients);
        shown.field("ended", &self.ended).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, Read, Write, pipe};
    use std::process::Command;
    use std::time::Instant;

    /// What is kept of a process, and what tells when each of both kinds of files, and the charge, is closed here.
    fn files() -> (Files, File, [PipeReader; 3]) {
        let (control_end, control) = pipe().unwrap();
        let (unified_end, unified) = pipe().unwrap();
        let (charge_end, charge) = pipe().unwrap();
        let files = Files {
            control: vec![(3, control.into())],
            unified: vec![unified.into()],
        };
        let charge = File::from(OwnedFd::from(charge));
        (files, charge, [control_end, unified_end, charge_end])
    }

    /// Waits until one of them is closed.
    fn wait_for(end: &mut PipeReader) {
        end.read_to_end(&mut Vec::new()).unwrap();
    }

    fn process() -> (std::process::Child, OwnedFd) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let number = i32::try_from(child.id()).unwrap();
        let number = rustix::process::Pid::from_raw(number).unwrap();
        let flags = rustix::process::PidfdFlags::empty();
        let file = rustix::process::pidfd_open(number, flags).unwrap();
        (child, file)
    }

    const fn no_channels(_: Left<'_>) {}

    #[test]
    fn the_file_of_control_is_closed_first_and_none_before_the_end() {
        let (disabled, tell) = (Arc::new(Mutex::new(Vec::new())), pipe().unwrap());
        let (go_on, told) = tell;
        let noted = Arc::clone(&disabled);
        let mut kept = Kept::new(move |left| {
            noted.lock().unwrap().extend(left.channels.to_vec());
            (&go_on).read_exact(&mut [0]).unwrap();
        });
        let (mut child, file) = process();
        let (files, charge, [mut control, mut unified, mut charged]) = files();
        kept.keep((child.id(), file), Some((7, charge)), files);
        assert!(kept.has(child.id()) && kept.count() == 1);
        let channel = |handle| (7, 70, handle);
        assert!(kept.note_channels(child.id(), vec![channel(1), channel(2)]));
        assert!(!kept.note_channels(child.id() + 1, vec![channel(3)]));
        assert_eq!(kept.jobs().collect::<Vec<_>>(), [(child.id(), 7)]);
        kept.let_go([false].into_iter());
        assert_eq!(kept.count(), 1);
        assert!(!kept.note_off(child.id()), "it lives");
        child.kill().unwrap();
        child.wait().unwrap();
        kept.let_go([true].into_iter());
        assert!(!kept.has(child.id()), "another may have its number");
        assert_eq!(kept.count(), 1, "its files are open still");
        while disabled.lock().unwrap().is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!kept.note_off(child.id()), "they are being disabled");
        (&told).write_all(&[0]).unwrap();
        wait_for(&mut control);
        assert_eq!(*disabled.lock().unwrap(), [channel(1), channel(2)]);
        thread::sleep(3 * BEFORE_UNIFIED);
        assert_eq!(kept.count(), 1, "its kernels may go on");
        assert!(kept.note_off(child.id() + 1));
        kept.let_those_go_that_had_time();
        assert_eq!(kept.ended.len(), 1);
        assert!(kept.note_off(child.id()));
        wait_for(&mut unified);
        wait_for(&mut charged);
        while kept.count() > 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }

    const fn channel_of(number: u32) -> Told {
        (7, 70, number)
    }

    /// So many clients with work end, and their files and charges are closed where this tells.
    fn end(kept: &mut Kept, count: u32) -> Vec<PipeReader> {
        let mut ends = Vec::new();
        for number in 1..=count {
            let (files, charge, [_, unified, charged]) = files();
            let process = files.unified[0].try_clone().unwrap();
            kept.keep((number, process), Some((7, charge)), files);
            assert!(kept.note_channels(number, vec![channel_of(number)]));
            ends.extend([unified, charged]);
        }
        kept.let_go(std::iter::repeat_n(true, count as usize));
        ends
    }

    /// Does this until it is so.
    fn wait_until(mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it never is");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Some clients with work end, and this happens then: how long their files of unified memory stay open.
    fn time_until_closed(count: u32, then: impl Fn(&mut Kept)) -> Duration {
        let mut kept = Kept::new(no_channels);
        let begun = Instant::now();
        let ends = end(&mut kept, count);
        wait_until(|| {
            then(&mut kept);
            kept.count() == 0
        });
        for mut one in ends {
            wait_for(&mut one);
        }
        begun.elapsed()
    }

    #[test]
    fn the_last_clients_files_wait_for_a_time_and_those_of_too_many_do_not() {
        let took = time_until_closed(3, Kept::let_those_go_that_had_time);
        assert!(took >= ALONE, "{took:?}");
        let most = u32::try_from(MOST_ENDED).unwrap();
        let took = time_until_closed(most + 3, |kept| {
            if kept.count() <= MOST_ENDED {
                kept.ended.clear();
            }
        });
        assert!(took >= BEFORE_UNIFIED, "{took:?}");
    }

    #[test]
    fn one_is_taken_off_after_the_other() {
        let now = Mutex::new(());
        let mut kept = Kept::new(move |_| {
            let _alone = now.try_lock().expect("another is being taken off");
            thread::sleep(Duration::from_millis(20));
        });
        let begun = Instant::now();
        end(&mut kept, 5);
        wait_until(|| (1..=5).all(|number| kept.note_off(number)));
        assert!(begun.elapsed() >= 5 * Duration::from_millis(20));
    }

    #[test]
    fn who_hangs_keeps_the_others_for_a_time_alone() {
        let (hangs, end_it) = pipe().unwrap();
        let mut kept = Kept::new(move |left| {
            if left.channels == [channel_of(1)] {
                let _ = (&hangs).read(&mut [0]);
            }
        });
        end(&mut kept, 3);
        wait_until(|| kept.note_off(2) && kept.note_off(3));
        assert!(!kept.note_off(1));
        drop(end_it);
        wait_until(|| kept.note_off(1));
    }

    #[test]
    fn who_became_another_program_is_let_go() {
        let mut kept = Kept::new(|_| panic!("its channels are not known"));
        let (mut child, file) = process();
        let (files, charge, [mut control, ..]) = files();
        kept.keep((child.id(), file), Some((7, charge)), files);
        // It has no file of the driver's by that descriptor.
        kept.let_those_go_without_a_use();
        wait_for(&mut control);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
