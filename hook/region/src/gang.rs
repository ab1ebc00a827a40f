//! The words that the processes of a job leave for each other. They are needed since the work of one GPU may wait for
//! that of another: a collective's kernels spin until all of them run.
//!
//! Each word is a time of the host's clock and stops counting by itself, so nothing is to be repaired after a death.

use crate::atomic::{AtomicU64, Ordering};
use crate::pace::Pace;

/// The most GPUs of one ledger.
pub const MAX_GPUS: usize = 32;

/// The time for which a thread counts as waiting after it last said so.
const WAITING: u64 = 50_000_000;
/// The longest time that work is expected to take.
const LONGEST: u64 = 10_000_000_000;
/// The time after which overdue work is taken for lost.
const LOST: u64 = 1_000_000_000;

/// The words, all zero at first.
#[repr(C, align(64))]
pub(crate) struct Words {
    /// Until when the job's GPUs take their turns together.
    together: AtomicU64,
    /// When a thread last waited for the job's share of each GPU; 0 for one that goes on.
    waited: [AtomicU64; MAX_GPUS],
    /// When the work under way on each GPU should be over; 0 without work.
    over: [AtomicU64; MAX_GPUS],
}

/// One GPU among those of its job.
#[derive(Clone, Copy)]
pub struct Gang<'a> {
    owners: &'a [AtomicU64],
    paces: &'a [AtomicU64],
    together: &'a AtomicU64,
    waited: &'a [AtomicU64],
    over: &'a [AtomicU64],
    number: usize,
}

/// Another GPU of the job.
#[derive(Clone, Copy)]
pub struct Other<'a> {
    /// The job's cap on its time.
    pub pace: Pace<'a>,
    /// Whether a thread waits for the job's share of it.
    pub is_waited_for: bool,
    /// Whether work is under way there, as far as is known.
    pub is_busy: bool,
    /// Whether the work under way there may wait for work of another GPU.
    pub is_stuck: bool,
}

impl Words {
    /// The GPU with this number, of those that these belong to.
    pub(crate) fn gang<'a>(
        &'a self,
        owners: &'a [AtomicU64],
        paces: &'a [AtomicU64],
        number: usize,
    ) -> Gang<'a> {
        Gang {
            owners,
            paces,
            together: &self.together,
            waited: &self.waited,
            over: &self.over,
            number,
        }
    }
}

impl<'a> Gang<'a> {
    /// Of a job with one GPU.
    #[cfg(test)]
    pub(crate) fn alone(together: &'a AtomicU64) -> Self {
        Self {
            owners: &[],
            paces: &[],
            together,
            waited: &[],
            over: &[],
            number: 0,
        }
    }

    /// Whether the job uses more than this GPU.
    #[inline]
    pub fn is_several(&self) -> bool {
        // Those that are in use come first.
        let second = self.owners.get(1);
        second.is_some_and(|owner| owner.load(Ordering::Relaxed) != 0)
    }

    /// The job's other GPUs, whose work is stuck if it should be over for `stuck` nanoseconds.
    pub fn others(&self, now: u64, stuck: u64) -> impl Iterator<Item = Other<'a>> {
        let Self {
            owners,
            paces,
            waited,
            over,
            number: own,
            ..
        } = *self;
        let used = owners
            .iter()
            .take_while(|owner| owner.load(Ordering::Relaxed) != 0);
        let all = used.zip(paces).zip(waited).zip(over);
        let others = all.enumerate().filter(move |(number, _)| *number != own);
        others.map(move |(_, (((_, pace), waited), over))| {
            let waited = waited.load(Ordering::SeqCst);
            let over = over.load(Ordering::SeqCst);
            let is_busy = is_busy(over, now);
            Other {
                pace: Pace(pace),
                is_waited_for: waited != 0 && now.abs_diff(waited) < WAITING,
                is_busy,
                is_stuck: is_busy && now.saturating_sub(over) >= stuck,
            }
        })
    }

    /// A thread waits for the job's share of this GPU, and says so again from time to time; or it goes on.
    pub fn wait(&self, now: Option<u64>) {
        if let Some(waited) = self.waited.get(self.number) {
            waited.store(now.unwrap_or(0), Ordering::SeqCst);
        }
    }

    /// Notes that some of this GPU's work has ended, and when the rest should be over, as far as this process knows.
    /// `before` is the word that it said last; returns its word of now.
    pub fn expect(&self, before: u64, over: u64) -> u64 {
        if let Some(word) = self.over.get(self.number) {
            if over == 0 {
                // Another process of the job may have something under way.
                let _ = word.compare_exchange(before, 0, Ordering::SeqCst, Ordering::SeqCst);
            } else {
                word.store(over, Ordering::SeqCst);
            }
        }
        over
    }

    /// Whether this GPU's work is known to be under way, or was not long ago.
    pub fn is_expected(&self, now: u64) -> bool {
        let word = self.over.get(self.number);
        let over = word.map_or(0, |word| word.load(Ordering::Relaxed));
        is_busy(over, now)
    }

    /// Whether the job's GPUs take their turns together.
    pub fn is_together(&self, now: u64) -> bool {
        let until = self.together.load(Ordering::Relaxed);
        now < until && until.saturating_sub(now) <= Self::TOGETHER
    }

    /// The time for which they do so after work of one waited for another's: longer than any debt.
    const TOGETHER: u64 = 20_000_000_000;

    /// Work of one of its GPUs waits for another's.
    pub fn come_together(&self, now: u64) {
        let until = now.saturating_add(Self::TOGETHER);
        self.together.store(until, Ordering::Relaxed);
    }
}

/// Whether work is under way that should be over then.
fn is_busy(over: u64, now: u64) -> bool {
    over != 0 && now.saturating_sub(over) < LOST && over.saturating_sub(now) < LONGEST
}
