//! The files of a pack's clients, which stay open until the work of a client that has ended is off the GPU.
//!
//! What is disabled begins no other kernel, and those that have begun go on to their end. If their memory is taken away meanwhile, that
//! is a fault of all clients (research/packs.md). No call says when they have ended. So the daemon counts the time that the pack had the
//! GPU, and says when it was enough.
//!
//! While channels with work are disabled, other clients may stand still, and kernels that have begun may too. They go on when the driver
//! has taken these channels away, which it does while the file of control is closed. So that file is closed at once, and the time of
//! those that ended begins when those of all have been.

use crate::jobs::patience::within;
use softmig_rm::{Files, has_control};

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::warn;

/// The least time from when a client's channels are off the GPU until its files of unified memory are closed.
const BEFORE_UNIFIED: Duration = Duration::from_millis(100);
/// How long kernels may go on from then where no other client lives.
const ALONE: Duration = Duration::from_secs(2);
/// The same at most, if the daemon does not say earlier that they have had their time.
const LONGEST: Duration = Duration::from_secs(20);

/// To close the file of control of a client without work takes some 20 ms, and longer where the driver is busy. It takes 2 s if the client
/// has work and its channels are not disabled.
const WITH_WORK: Duration = Duration::from_secs(1);

/// How long a look at the files of a user's clients may take. It takes less than a millisecond where nobody is in the way, and a user who kept one
/// waiting has no new clients for 10 s: a busy node alone is not to do that.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// A thread that closes files calls nothing deep.
const STACK: usize = 64 << 10;

/// How many clients a server has at most. NVIDIA's takes 48 contexts, and a client may have several. One that has ended counts until
/// its files are closed: new ones have no context meanwhile, where there are many of these.
const MOST_CLIENTS: usize = 40;

/// Whether there is a place for one more client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// When the files of some are closed that have ended.
    Soon,
    None,
}

/// The clients whose files are open here.
#[derive(Debug, Default)]
pub(super) struct Kept {
    clients: Vec<Client>,
    ended: Vec<Ended>,
    /// One more reference for each client that has ended, until its files are closed.
    open: Arc<()>,
    /// Held while a file of control is closed: one at a time, so that the driver serves others in between.
    closes: Arc<Mutex<()>>,
}

/// A client that has ended, and that may have work on the GPU.
#[derive(Debug)]
struct Ended {
    number: u32,
    since: Instant,
    /// When its channels were taken off the GPU.
    off: Arc<OnceLock<Instant>>,
    /// Its files of unified memory are closed when this is dropped, and not before.
    _keep: Sender<()>,
}

#[derive(Debug)]
struct Client {
    number: u32,
    /// Its user when it came.
    user: u32,
    process: OwnedFd,
    /// Its job, which is charged for what the process had as long as the file is open. A measurement's has none.
    charged: Option<(u32, File)>,
    files: Files,
    channels: Vec<Told>,
    /// Whether it told of its channels, as a client does before its first launch: at its exit CUDA gives them back while kernels run.
    has_told: bool,
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
        self.clients.len() + Arc::strong_count(&self.open) - 1
    }

    /// Whether there is a place for one more beside those that are coming.
    pub(super) fn room(&self, coming: usize) -> Room {
        if self.count() + coming < MOST_CLIENTS {
            Room::Free
        } else if self.clients.len() + coming < MOST_CLIENTS {
            Room::Soon
        } else {
            Room::None
        }
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.clients.iter().any(|it| it.number == number)
    }

    /// Keeps the files of a user's process of this job, and the job charged for it.
    pub(super) fn keep(
        &mut self,
        (number, user, process): (u32, u32, OwnedFd),
        charged: Option<(u32, File)>,
        files: Files,
    ) {
        self.clients.push(Client {
            number,
            user,
            process,
            charged,
            files,
            channels: Vec::new(),
            has_told: false,
        });
    }

    /// Notes which channels a client has; false for a process that is none.
    pub(super) fn note_channels(&mut self, number: u32, channels: Vec<Told>) -> bool {
        let client = self.clients.iter_mut().find(|it| it.number == number);
        let is_client = client.is_some();
        if let Some(client) = client {
            client.has_told = true;
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
        let mut by_user: BTreeMap<u32, Vec<(u32, Vec<i32>)>> = BTreeMap::new();
        for client in &self.clients {
            let control = client.files.control.iter();
            let control = control.map(|(descriptor, _)| *descriptor).collect();
            let its = by_user.entry(client.user).or_default();
            its.push((client.number, control));
        }
        let mut without: BTreeSet<u32> = BTreeSet::new();
        for (user, mut clients) in by_user {
            let first = clients.first().map_or(0, |(number, _)| *number);
            let look = move || {
                clients.retain(|(number, control)| {
                    !control.iter().any(|it| has_control(*number, *it))
                });
                clients
            };
            // A user may keep who looks.
            let found = within(PATIENCE, user, first, look).unwrap_or_default();
            without.extend(found.into_iter().map(|(number, _)| number));
        }
        let all: Vec<bool> = self
            .clients
            .iter()
            .map(|it| without.contains(&it.number))
            .collect();
        self.let_go(all.into_iter(), disable);
    }

    /// The same for the program that a process was before it became the one that it is.
    pub(super) fn let_former_go(&mut self, number: u32, disable: impl FnOnce(&[Left<'_>])) {
        let is_it: Vec<bool> = self.clients.iter().map(|it| it.number == number).collect();
        self.let_go(is_it.into_iter(), disable);
    }

    fn close(&mut self, ended: Vec<Client>) {
        for client in ended {
            let Client {
                number,
                charged,
                files,
                channels,
                has_told,
                ..
            } = client;
            let (keep, kept) = channel();
            let ended = Ended {
                number,
                since: Instant::now(),
                off: Arc::default(),
                _keep: keep,
            };
            let (open, closes) = (Arc::clone(&self.open), Arc::clone(&self.closes));
            let off = Arc::clone(&ended.off);
            let close = move || {
                let Files { control, unified } = files;
                let alone = closes.lock().unwrap_or_else(PoisonError::into_inner);
                let begun = Instant::now();
                drop(control);
                let took = begun.elapsed();
                drop(alone);
                if took > WITH_WORK {
                    warn!(
                        "process {number} had work when it ended, and {} channels are known: the driver took {:.1} s for it, and others of its pack may have stood still",
                        channels.len(),
                        took.as_secs_f64()
                    );
                }
                let has_work = has_told || took > WITH_WORK;
                let _ = off.set(Instant::now());
                thread::sleep(BEFORE_UNIFIED);
                if has_work {
                    // Nothing is ever sent.
                    let _ = kept.recv();
                }
                drop(unified);
                drop(charged);
                drop(open);
            };
            // Each waits by itself: the driver may take its time.
            let thread = thread::Builder::new().stack_size(STACK);
            match thread.spawn(close) {
                Ok(_) => self.ended.push(ended),
                Err(error) => {
                    warn!("the files of process {number} were closed at once: {error}");
                }
            }
        }
    }

    /// Whether a client has ended, and its channels are off the GPU, as are those of all that have ended with it.
    pub(super) fn is_off(&self, number: u32) -> bool {
        // Where the driver hangs, the others are not kept for ever.
        let is_on = |it: &Ended| it.off.get().is_none() && it.since.elapsed() < LONGEST;
        let is_known = self.ended.iter().any(|it| it.number == number);
        (is_known || !self.has(number)) && !self.ended.iter().any(is_on)
    }

    /// The kernels of a client that has ended have had their time.
    pub(super) fn let_go_of(&mut self, number: u32) {
        self.ended.retain(|it| it.number != number);
    }

    /// Lets those go for whose work it was waited long enough.
    pub(super) fn let_those_go_that_had_time(&mut self) {
        let most = if self.clients.is_empty() {
            ALONE
        } else {
            LONGEST
        };
        let has_time = |off: &Instant| off.elapsed() < most;
        self.ended.retain(|it| it.off.get().is_none_or(has_time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, Read, pipe};
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

    #[test]
    fn the_file_of_control_is_closed_first_and_none_before_the_end() {
        let mut kept = Kept::default();
        let (mut child, file) = process();
        let (files, charge, [mut control, mut unified, mut charged]) = files();
        kept.keep((child.id(), 0, file), Some((7, charge)), files);
        assert!(kept.has(child.id()) && kept.count() == 1);
        let channel = |handle| (7, 70, handle);
        assert!(kept.note_channels(child.id(), vec![channel(1), channel(2)]));
        assert!(!kept.note_channels(child.id() + 1, vec![channel(3)]));
        assert_eq!(kept.jobs().collect::<Vec<_>>(), [(child.id(), 7)]);
        kept.let_go([false].into_iter(), |_| panic!("it lives"));
        assert_eq!(kept.count(), 1);
        assert!(!kept.is_off(child.id()) && kept.is_off(child.id() + 1));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut disabled = Vec::new();
        kept.let_go([true].into_iter(), |left| {
            disabled.extend(left.iter().flat_map(|it| it.channels.to_vec()));
        });
        assert_eq!(disabled, [channel(1), channel(2)]);
        assert!(!kept.has(child.id()), "another may have its number");
        assert_eq!(kept.count(), 1, "its files are open still");
        wait_for(&mut control);
        wait_until(|| kept.is_off(child.id()));
        thread::sleep(3 * BEFORE_UNIFIED);
        assert_eq!(kept.count(), 1, "its kernels may go on");
        kept.let_go_of(child.id() + 1);
        assert_eq!(kept.ended.len(), 1);
        kept.let_go_of(child.id());
        wait_for(&mut unified);
        wait_for(&mut charged);
        wait_until(|| kept.count() == 0);
    }

    /// Does this until it is so.
    fn wait_until(mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it never is");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// So many clients with work end. What tells when their files of unified memory and their charges are closed.
    fn end(kept: &mut Kept, count: u32) -> Vec<PipeReader> {
        let mut ends = Vec::new();
        for number in 1..=count {
            let (files, charge, [_, unified, charged]) = files();
            let process = files.unified[0].try_clone().unwrap();
            kept.keep((number, 0, process), Some((7, charge)), files);
            assert!(kept.note_channels(number, vec![(7, 70, number)]));
            ends.extend([unified, charged]);
        }
        kept.let_go(std::iter::repeat_n(true, count as usize), |_| {});
        ends
    }

    #[test]
    fn those_have_a_place_who_have_ended_until_their_files_are_closed() {
        let mut kept = Kept::default();
        let most = u32::try_from(MOST_CLIENTS).unwrap();
        assert_eq!(kept.room(MOST_CLIENTS - 1), Room::Free);
        assert_eq!(kept.room(MOST_CLIENTS), Room::None);
        let _ends = end(&mut kept, most);
        assert_eq!(kept.room(0), Room::Soon);
        kept.let_go_of(1);
        wait_until(|| kept.room(0) == Room::Free);
        assert_eq!(kept.room(1), Room::Soon);
    }

    #[test]
    fn the_last_clients_files_wait_for_a_time() {
        let mut kept = Kept::default();
        let begun = Instant::now();
        let ends = end(&mut kept, 3);
        assert_eq!(kept.count(), 3);
        wait_until(|| {
            kept.let_those_go_that_had_time();
            kept.count() == 0
        });
        for mut one in ends {
            wait_for(&mut one);
        }
        assert!(begun.elapsed() >= ALONE);
    }

    #[test]
    fn the_time_of_none_begins_before_all_are_off() {
        let mut kept = Kept::default();
        let closes = Arc::clone(&kept.closes);
        let driver_is_busy = closes.lock().unwrap();
        let _ends = end(&mut kept, 3);
        thread::sleep(BEFORE_UNIFIED);
        assert!((1..=3).all(|number| !kept.is_off(number)));
        kept.let_those_go_that_had_time();
        assert_eq!(kept.count(), 3);
        drop(driver_is_busy);
        wait_until(|| (1..=3).all(|number| kept.is_off(number)));
        // One more has ended, and the driver is busy again.
        let driver_is_busy = closes.lock().unwrap();
        let _more = end(&mut kept, 4);
        assert!((1..=4).all(|number| !kept.is_off(number)));
        drop(driver_is_busy);
        wait_until(|| kept.is_off(1));
    }

    #[test]
    fn who_became_another_program_is_let_go() {
        let mut kept = Kept::default();
        let (mut child, file) = process();
        let (files, charge, [mut control, ..]) = files();
        kept.keep((child.id(), 0, file), Some((7, charge)), files);
        // It has no file of the driver's by that descriptor.
        kept.let_those_go_without_a_use(|_| panic!("its channels are not known"));
        wait_for(&mut control);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn who_becomes_a_client_anew_is_let_go_as_it_was() {
        let mut kept = Kept::default();
        let mut ends = Vec::new();
        for number in [1, 2] {
            let (files, charge, [control, ..]) = files();
            let process = files.unified[0].try_clone().unwrap();
            kept.keep((number, 0, process), Some((7, charge)), files);
            ends.push(control);
        }
        kept.let_former_go(3, |_| panic!("it was none"));
        kept.let_former_go(2, |_| panic!("its channels are not known"));
        wait_for(&mut ends[1]);
        assert!(kept.has(1) && !kept.has(2));
    }

    #[test]
    fn the_file_of_unified_memory_of_one_that_told_nothing_waits_only_for_work() {
        let mut kept = Kept::default();
        let (files, charge, [_, mut unified, _]) = files();
        let process = files.unified[0].try_clone().unwrap();
        kept.keep((1, 0, process), Some((7, charge)), files);
        let begun = Instant::now();
        kept.let_go([true].into_iter(), |_| panic!("its channels are not known"));
        wait_for(&mut unified);
        assert!(begun.elapsed() < ALONE);
        wait_until(|| kept.is_off(1));
    }
}
