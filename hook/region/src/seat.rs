//! Seats: a process that uses a GPU and the arbiter of the node tell each other of its work by the process's seat.
//!
//! A seat is a few pages for each process and GPU. They belong to a memfd that the arbiter makes and seals, so that
//! neither side can shorten it while the other uses it. Both map it. The process's half is only its own word: the
//! arbiter bounds the harm that garbage there can do to others.
//!
//! The process says when it has work ([`Seat::wants_gpu`], [`Seat::tell_work`]), and which channels it has on the GPU's own
//! scheduler ([`Seat::tell_channels`]). Then it wakes the arbiter ([`Seat::wakes`]). The arbiter says how the process is
//! to launch ([`Seat::pacing`]): as it likes where its channels are steered, in turns with others of its pack, or by its job's cap,
//! which it keeps itself. A process in a pack that has made channels waits until the arbiter has heard of them ([`Seat::heard`]).

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The pages. Times are nanoseconds of `CLOCK_MONOTONIC`.
#[repr(C, align(4096))]
pub struct Seat {
    /// The words that the arbiter writes.
    arbiter: Arbiter,
    /// The words that the process writes.
    process: Process,
}

#[repr(C, align(64))]
struct Arbiter {
    old: ForOldLibraries,
    heartbeat: AtomicU64,
    pacing: AtomicU32,
    heard: AtomicU32,
}

/// A turn. Libraries that ask with [`Version::Turns`] launch only while they have one.
#[repr(C)]
struct ForOldLibraries {
    turn: AtomicU32,
    share: AtomicU32,
    budget: AtomicU64,
    from: AtomicU64,
    ahead: AtomicU64,
    until: AtomicU64,
}

#[repr(C, align(64))]
struct Process {
    wakes: AtomicU32,
    wants_gpu: AtomicU32,
    /// Old libraries write here.
    _reserved: [AtomicU32; 7],
    version: AtomicU32,
    pending: AtomicU64,
    pending_since: AtomicU64,
    channels: AtomicU32,
    all: [Entry; MOST_CHANNELS],
}

/// How a process is to launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Pacing {
    /// It keeps its job's cap itself: its channels are not steered.
    OwnCap,
    /// As it likes: they are.
    Free,
    /// As it likes, with little in flight: jobs of its pack have turns.
    Turn,
    /// Not now: another job of its pack has a turn.
    Waits,
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

/// How many channels a process can tell of: those of more than a hundred contexts. Old libraries map the first page alone, with 240.
pub const MOST_CHANNELS: usize = 1024;
/// In the place of a number of channels: there are more than can be told.
pub const TOO_MANY: u32 = u32::MAX;

/// The whole GPU, of which a share is a part.
pub const WHOLE: u32 = 1_000_000_000;

impl Seat {
    /// How large it is.
    pub const SIZE: usize = 5 * 4096;

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

    /// Gives an old library a turn without end: it launches as it likes. `share` is its job's part of [`WHOLE`].
    pub fn give_endless_turn(&self, share: u32) {
        /// A turn that is open, of this process alone.
        const OPEN: u32 = 5;
        /// With less than this of its work left, a process may give a turn back.
        const LONGEST_TAIL_NS: u64 = 1_000_000;
        let old = &self.arbiter.old;
        old.share.store(share, Ordering::Relaxed);
        old.budget.store(u64::MAX, Ordering::Relaxed);
        old.ahead.store(LONGEST_TAIL_NS, Ordering::Relaxed);
        old.until.store(u64::MAX, Ordering::Relaxed);
        // After the rest, so that a process that sees this word sees them too.
        old.turn.store(OPEN, Ordering::SeqCst);
    }

    /// The time when the arbiter last polled. While any process wants the GPU, that is never long ago. The arbiter
    /// writes it.
    pub fn heartbeat(&self) -> &AtomicU64 {
        &self.arbiter.heartbeat
    }

    /// How the process is to launch.
    pub fn pacing(&self) -> Pacing {
        // Relaxed: a word and nothing else.
        match self.arbiter.pacing.load(Ordering::Relaxed) {
            0 => Pacing::OwnCap,
            2 => Pacing::Turn,
            3 => Pacing::Waits,
            // All that is not zero, to libraries that know no turns.
            _ => Pacing::Free,
        }
    }

    /// The arbiter says how the process is to launch.
    pub fn set_pacing(&self, pacing: Pacing) {
        self.arbiter.pacing.store(pacing as u32, Ordering::SeqCst);
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

    /// Up to which version the arbiter has heard of the channels: its pack's supervisor knows them. The arbiter writes it.
    pub fn heard(&self) -> &AtomicU32 {
        &self.arbiter.heard
    }

    /// The number of channels, and those of them that there is room for.
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

    /// Tells whether the process has work, or work that waits for the GPU, and for how many nanoseconds
    /// it had some since it was told last. Until the next time, a process with work counts as having it all the time. One
    /// thread at a time.
    pub fn tell_work(&self, now: u64, has_work: bool, worked: u64) {
        // This comes first: a reader of both meanwhile finds less time, and none twice.
        self.process.pending_since.store(0, Ordering::SeqCst);
        self.process.pending.fetch_add(worked, Ordering::SeqCst);
        let since = if has_work { now } else { 0 };
        self.process.pending_since.store(since, Ordering::SeqCst);
    }

    /// When the process told last that it has work; 0 if it told that it has none.
    pub fn has_work_since(&self) -> u64 {
        self.process.pending_since.load(Ordering::SeqCst)
    }

    /// For how long the process has had work in all.
    pub fn pending(&self, now: u64) -> u64 {
        let sum = self.process.pending.load(Ordering::SeqCst);
        match self.has_work_since() {
            0 => sum,
            since => sum.saturating_add(now.saturating_sub(since)),
        }
    }
}

const _: () = assert!(size_of::<Seat>() == Seat::SIZE);
// Where old libraries have them.
const _: () = assert!(offset_of!(Seat, arbiter.heartbeat) == 40);
const _: () = assert!(offset_of!(Seat, arbiter.pacing) == 48);
const _: () = assert!(offset_of!(Seat, arbiter.heard) == 52);
const _: () = assert!(offset_of!(Seat, process.wakes) == 64);
const _: () = assert!(offset_of!(Seat, process.version) == 100);
const _: () = assert!(offset_of!(Seat, process.all) == 124);

/// The packet that a process sends to the arbiter's socket, `/var/run/softmig/arbiter.sock` (`SOCK_SEQPACKET`). The
/// answer is one packet of [`ANSWER`] bytes with the seat's memfd beside it, or with an errno and no memfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What the library that asks can do.
    pub version: Version,
    /// The GPU's UUID.
    pub gpu: [u8; 16],
}

/// What a library can do by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `softmig1`: with a seat it launches in turns alone, and without one it keeps its job's cap.
    Turns,
    /// `softmig2`: it keeps its job's cap wherever it is not steered.
    Cap,
}

/// The packet that a process sends instead to be admitted to the GPUs of a job with the device gate. The answer is an
/// errno, or 0.
pub const ADMISSION: [u8; 8] = *b"softgate";

/// How long an answer is: an errno, little endian; 0 with a memfd.
pub const ANSWER: usize = 4;

/// The packet that a process of a job in a pack sends before it initializes CUDA, to be a client of the pack's MPS server. The answer
/// is an errno as above, or a packet of [`PACK_ANSWER`] bytes: 0, and the folder of that server (`CUDA_MPS_PIPE_DIRECTORY`), followed
/// by zeros.
pub const PACK: [u8; 8] = *b"softpack";
/// How long that answer is. The folder has sockets in it, whose paths are shorter.
pub const PACK_ANSWER: usize = 128;

/// The packet that a process in a pack sends once CUDA is initialized and before it launches anything: the monitor has open from
/// then on what must outlive the process, so that its end is not that of the pack's others. The answer is an errno, or 0.
pub const KEEP: [u8; 8] = *b"softkeep";

impl Request {
    /// How long a request is.
    pub const SIZE: usize = 24;

    /// As it is sent.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let magic = match self.version {
            Version::Turns => b"softmig1",
            Version::Cap => b"softmig2",
        };
        let parts = magic.iter().chain(&self.gpu);
        for (byte, part) in bytes.iter_mut().zip(parts) {
            *byte = *part;
        }
        bytes
    }

    /// As it was received; `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (magic, gpu) = bytes.split_first_chunk()?;
        let gpu = gpu.try_into().ok()?;
        let version = match magic {
            b"softmig1" => Version::Turns,
            b"softmig2" => Version::Cap,
            _ => return None,
        };
        Some(Self { version, gpu })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_sent() {
        let gpu = core::array::from_fn(|at| at as u8);
        for version in [Version::Turns, Version::Cap] {
            let request = Request { version, gpu };
            assert_eq!(Request::from_bytes(&request.to_bytes()), Some(request));
        }
        let version = Version::Cap;
        let bytes = Request { version, gpu }.to_bytes();
        assert_eq!(Request::from_bytes(&bytes[1..]), None);
        assert_eq!(Request::from_bytes(&bytes[..23]), None);
        assert_eq!(Request::from_bytes(&[&bytes[..], &[0]].concat()), None);
        let mut other = bytes;
        other[7] = b'3';
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
        // Old libraries had no room for more than 240.
        seat.tell_channels((0..241).map(channel));
        assert!(seat.channels().1.eq((0..241).map(channel)));
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
    fn a_seat_is_at_the_beginning_of_a_page() {
        let pages = [const { core::mem::MaybeUninit::<Seat>::zeroed() }; 2];
        let start: *const u8 = pages.as_ptr().cast();
        // SAFETY: the first one is there as long as the test.
        let seat = unsafe { Seat::at(start) }.unwrap();
        assert_eq!(seat.pacing(), Pacing::OwnCap);
        for pacing in [Pacing::Waits, Pacing::Turn, Pacing::Free, Pacing::OwnCap] {
            seat.set_pacing(pacing);
            assert_eq!(seat.pacing(), pacing);
        }
        // SAFETY: nothing is read there.
        assert!(unsafe { Seat::at(start.wrapping_add(64)) }.is_none());
    }
}
