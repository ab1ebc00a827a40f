//! Seats: a process that uses a GPU and the arbiter of the node tell each other of turns by the process's seat.
//!
//! A seat is one page for each process and GPU. The page belongs to a memfd that the arbiter makes and seals, so that
//! neither side can shorten it while the other uses it. Both map it. The process's half is only its own word: the
//! arbiter bounds the harm that garbage there can do to others.
//!
//! A turn, from the process's side:
//!
//! 1. A thread that wants to launch finds the turn closed. It sets [`Seat::wants_gpu`], wakes the arbiter ([`Seat::wakes`])
//!    and waits on [`Seat::turn`] as a futex.
//! 2. The arbiter writes the terms of a turn, then the turn with [`OPEN`], and wakes all who wait there.
//! 3. The process waits until [`Seat::from`], when the last work of the job before it should be over. It launches until
//!    [`Seat::used`] and its work in flight reach the budget, the clock reaches `until`, or the arbiter closes the turn. A
//!    process without work also gives a turn back that says [`CONTENDED`].
//! 4. It waits until little of its work is left, or until the rest will not end without another turn. It says when the
//!    rest should be over ([`Seat::over`]), copies the word of the turn that it is done with to [`Seat::done`], and wakes
//!    the arbiter.
//!
//! On a GPU whose own scheduler the arbiter can steer there are no turns ([`Seat::free`]): each process has a turn without end,
//! launches as it likes, and says when it has work ([`Seat::tell_work`]). By the channels that it tells of
//! ([`Seat::tell_channels`]) the arbiter holds it on the GPU.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The page. Times are nanoseconds: of `CLOCK_MONOTONIC`, or of the GPU.
#[repr(C, align(4096))]
pub struct Seat {
    /// The words that the arbiter writes.
    arbiter: Arbiter,
    /// The words that the process writes.
    process: Process,
}

#[repr(C, align(64))]
struct Arbiter {
    turn: AtomicU32,
    share: AtomicU32,
    budget: AtomicU64,
    from: AtomicU64,
    ahead: AtomicU64,
    until: AtomicU64,
    heartbeat: AtomicU64,
    free: AtomicU32,
}

#[repr(C, align(64))]
struct Process {
    wakes: AtomicU32,
    wants_gpu: AtomicU32,
    done: AtomicU32,
    overruns: AtomicU32,
    used: AtomicU64,
    over: AtomicU64,
    together: AtomicU32,
    version: AtomicU32,
    pending: AtomicU64,
    pending_since: AtomicU64,
    channels: AtomicU32,
    all: [Entry; MOST_CHANNELS],
}

/// Four words of a [`Channel`].
#[repr(C)]
struct Entry([AtomicU32; 4]);

/// A channel of the GPU's own scheduler, as the process names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channel {
    /// The process's descriptor of the driver's control file.
    pub file: i32,
    /// The driver's client that made it.
    pub client: u32,
    /// Its channel group.
    pub group: u32,
    /// Its handle.
    pub handle: u32,
}

/// How many channels a process can tell of: those of some thirty contexts.
pub const MOST_CHANNELS: usize = 240;
/// In the place of a number of channels: there are more than can be told.
pub const TOO_MANY: u32 = u32::MAX;

/// In [`Seat::turn`]: the process has the turn.
pub const OPEN: u32 = 1;
/// In [`Seat::turn`]: another job waits for it.
pub const CONTENDED: u32 = 2;
/// The number that is added to [`Seat::turn`] with each change: no two words are the same.
pub const STEP: u32 = 4;
/// The whole GPU in [`Seat::share`].
pub const WHOLE: u32 = 1_000_000_000;

impl Seat {
    /// How large a page is.
    pub const SIZE: usize = 4096;

    /// The seat at an address; `None` if that is not the beginning of a page.
    ///
    /// # Safety
    ///
    /// [`Seat::SIZE`] bytes stay mapped there, readable and writable. Others may change them at any time, atomically.
    pub unsafe fn at<'a>(start: *const u8) -> Option<&'a Self> {
        let seat = start.cast::<Self>();
        // SAFETY: see above; atomics may hold any bits, and may change.
        seat.is_aligned().then(|| unsafe { &*seat })
    }

    /// The state of the job's turn, as a futex: [`OPEN`], [`CONTENDED`], and steps of [`STEP`]. The arbiter's.
    pub fn turn(&self) -> &AtomicU32 {
        &self.arbiter.turn
    }

    /// The job's share of the GPU, of [`WHOLE`]. The arbiter's.
    pub fn share(&self) -> &AtomicU32 {
        &self.arbiter.share
    }

    /// The most that [`Seat::used`] may come to in this turn. The arbiter's.
    pub fn budget(&self) -> &AtomicU64 {
        &self.arbiter.budget
    }

    /// When the turn begins: an earlier launch may take the GPU from the job that had it before. The arbiter's.
    pub fn from(&self) -> &AtomicU64 {
        &self.arbiter.from
    }

    /// How much of its work may be left when it is done with the turn: nothing if several processes of the job are in
    /// it, since the rests of all would add up. The arbiter's.
    pub fn ahead(&self) -> &AtomicU64 {
        &self.arbiter.ahead
    }

    /// When the turn ends. The arbiter's.
    pub fn until(&self) -> &AtomicU64 {
        &self.arbiter.until
    }

    /// The time when the arbiter last polled. While any process wants or has the GPU, that is never long ago. The
    /// arbiter writes it.
    pub fn heartbeat(&self) -> &AtomicU64 {
        &self.arbiter.heartbeat
    }

    /// Not zero while there are no turns: the process launches as it likes, and the arbiter steers its channels on the GPU
    /// itself. The arbiter's.
    pub fn free(&self) -> &AtomicU32 {
        &self.arbiter.free
    }

    /// Counts the times that the process woke the arbiter to look at a change, as a futex. The process's, as
    /// is all that follows.
    pub fn wakes(&self) -> &AtomicU32 {
        &self.process.wakes
    }

    /// Not zero while the process wants to launch, or has work under way.
    pub fn wants_gpu(&self) -> &AtomicU32 {
        &self.process.wants_gpu
    }

    /// When its last work should be over, by its own estimate.
    pub fn over(&self) -> &AtomicU64 {
        &self.process.over
    }

    /// The word of the last turn that it is done with: nothing more is launched in it.
    pub fn done(&self) -> &AtomicU32 {
        &self.process.done
    }

    /// Not zero while the job's work waits for work on another of its GPUs: the job then needs its turns on all of them
    /// together.
    pub fn together(&self) -> &AtomicU32 {
        &self.process.together
    }

    /// Tells of the process's channels; [`TOO_MANY`] where there are more than there is room for. One thread at a time.
    pub fn tell_channels(&self, channels: impl Iterator<Item = Channel>) {
        let mut places = self.process.all.iter();
        let mut count = 0;
        for channel in channels {
            let Some(Entry(words)) = places.next() else {
                count = TOO_MANY;
                break;
            };
            let file = channel.file.cast_unsigned();
            let parts = [file, channel.client, channel.group, channel.handle];
            for (word, part) in words.iter().zip(parts) {
                word.store(part, Ordering::Relaxed);
            }
            count = u32::saturating_add(count, 1);
        }
        self.process.channels.store(count, Ordering::Relaxed);
        // Release: a reader that sees the new version sees the channels that belong to it.
        self.process.version.fetch_add(1, Ordering::Release);
    }

    /// How often the process told of its channels.
    pub fn version(&self) -> &AtomicU32 {
        &self.process.version
    }

    /// The number of channels, and those of them that fit in the page.
    pub fn channels(&self) -> (u32, impl Iterator<Item = Channel>) {
        let count = self.process.channels.load(Ordering::Relaxed);
        let told = usize::try_from(count).unwrap_or(usize::MAX);
        let all = self.process.all.iter().take(told);
        let channels = all.map(|Entry([file, client, group, handle])| Channel {
            file: file.load(Ordering::Relaxed).cast_signed(),
            client: client.load(Ordering::Relaxed),
            group: group.load(Ordering::Relaxed),
            handle: handle.load(Ordering::Relaxed),
        });
        (count, channels)
    }

    /// The number of its launches without a turn at this seat, which keep the process from hanging.
    pub fn overruns(&self) -> &AtomicU32 {
        &self.process.overruns
    }

    /// Tells whether the process has work on a GPU without turns, or work that waits for it, and for how many nanoseconds
    /// it had some since it was told last. Until the next time, a process with work counts as having it all the time. One
    /// thread at a time.
    pub fn tell_work(&self, now: u64, has_work: bool, worked: u64) {
        // This comes first: a reader of both meanwhile finds less time, and none twice.
        self.process.pending_since.store(0, Ordering::SeqCst);
        self.process.pending.fetch_add(worked, Ordering::SeqCst);
        let since = if has_work { now } else { 0 };
        self.process.pending_since.store(since, Ordering::SeqCst);
    }

    /// For how long the process has had work in all.
    pub fn pending(&self, now: u64) -> u64 {
        let sum = self.process.pending.load(Ordering::SeqCst);
        match self.process.pending_since.load(Ordering::SeqCst) {
            0 => sum,
            since => sum.saturating_add(now.saturating_sub(since)),
        }
    }

    /// How long its work has kept the GPU busy in all, as it measured.
    pub fn used(&self) -> &AtomicU64 {
        &self.process.used
    }
}

const _: () = assert!(size_of::<Seat>() == Seat::SIZE);

/// The packet that a process sends to the arbiter's socket, `/var/run/softmig/arbiter.sock` (`SOCK_SEQPACKET`). The
/// answer is one packet of [`ANSWER`] bytes with the page's memfd beside it, or with an errno and no memfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The GPU's UUID.
    pub gpu: [u8; 16],
}

/// The packet that a process sends instead to be admitted to the GPUs of a job with the device gate. The answer is an
/// errno, or 0.
pub const ADMISSION: [u8; 8] = *b"softgate";

/// How long an answer is: an errno, little endian; 0 with a memfd.
pub const ANSWER: usize = 4;

impl Request {
    /// How long a request is.
    pub const SIZE: usize = 24;
    const MAGIC: [u8; 8] = *b"softmig1";

    /// As it is sent.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let parts = Self::MAGIC.iter().chain(&self.gpu);
        for (byte, part) in bytes.iter_mut().zip(parts) {
            *byte = *part;
        }
        bytes
    }

    /// As it was received; `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (magic, gpu) = bytes.split_first_chunk()?;
        let gpu = gpu.try_into().ok()?;
        (*magic == Self::MAGIC).then_some(Self { gpu })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_sent() {
        let gpu = core::array::from_fn(|at| at as u8);
        let bytes = Request { gpu }.to_bytes();
        assert_eq!(Request::from_bytes(&bytes), Some(Request { gpu }));
        assert_eq!(Request::from_bytes(&bytes[1..]), None);
        assert_eq!(Request::from_bytes(&bytes[..23]), None);
        assert_eq!(Request::from_bytes(&[&bytes[..], &[0]].concat()), None);
        let mut other = bytes;
        other[7] = b'2';
        assert_eq!(Request::from_bytes(&other), None);
    }

    #[test]
    fn channels_are_read_as_told_and_too_many_are_marked() {
        let page = core::mem::MaybeUninit::<Seat>::zeroed();
        // SAFETY: all zero is a seat where nothing was told.
        let seat = unsafe { page.assume_init_ref() };
        let channel = |number| Channel {
            file: -1,
            client: 0xc1d0_001a,
            group: 0x5c00_0015,
            handle: number,
        };
        seat.tell_channels((0..8).map(channel));
        let (count, all) = seat.channels();
        assert_eq!((count, seat.version().load(Ordering::Relaxed)), (8, 1));
        assert!(all.eq((0..8).map(channel)));
        seat.tell_channels((0..).map(channel));
        let (count, all) = seat.channels();
        assert_eq!((count, all.count()), (TOO_MANY, MOST_CHANNELS));
        seat.tell_channels([].into_iter());
        assert_eq!(seat.channels().0, 0);
    }

    #[test]
    fn work_counts_from_a_sample_that_found_some_to_the_next() {
        let page = core::mem::MaybeUninit::<Seat>::zeroed();
        // SAFETY: all zero is a seat where nothing was told.
        let seat = unsafe { page.assume_init_ref() };
        seat.tell_work(100, false, 0);
        assert_eq!(seat.pending(150), 0);
        seat.tell_work(200, true, 0);
        assert_eq!(seat.pending(250), 50, "as far as is known");
        seat.tell_work(300, true, 70);
        assert_eq!(seat.pending(300), 70);
        seat.tell_work(400, false, 50);
        assert_eq!(seat.pending(900), 120);
    }

    #[test]
    fn a_seat_is_a_page_at_the_beginning_of_one() {
        let pages = [const { core::mem::MaybeUninit::<Seat>::zeroed() }; 2];
        let start: *const u8 = pages.as_ptr().cast();
        // SAFETY: the first page is there as long as the test.
        let seat = unsafe { Seat::at(start) }.unwrap();
        assert_eq!(seat.turn().load(core::sync::atomic::Ordering::Relaxed), 0);
        // SAFETY: nothing is read there.
        assert!(unsafe { Seat::at(start.wrapping_add(64)) }.is_none());
    }
}
