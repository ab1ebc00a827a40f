//! One GPU's part of the ledger, and its algorithm: a process gets more memory, and the job never gets too much.
//!
//! [`GpuLedger::reserve`] tells the steps. They hold for these reasons:
//!
//! - **Each grant is entered once.** While it is the latest, its slot has its tag before it is entered, and the next
//!   one after. A process replaces it only after it saw it entered. A process that comes late finds another word and
//!   changes nothing.
//! - **Never too much.** From one grant to the next, the units of a slot only shrink, unless it is charged. A slot that
//!   comes into use raises `top` before its first grant, which is a later one. A sum may begin after the latest grant was
//!   entered. It is then right or too large when that grant is exchanged, or else the exchange fails.
//! - **A charge counts.** It ends by replacing the latest grant and taking all slack. So sums that missed it have no
//!   effect, and no unit is left to take without a sum.
//! - **Only a request that does not fit is refused.** Without its slack, a slot holds the units that it uses at that
//!   moment. It can use more only by a later grant, or by units that itself gives back after that moment. For a wrong
//!   refusal, two looks at all slots would both have to miss units that go from process to process just then, and back
//!   in between.
//! - **Death.** Before its exchange a grant has no effect. After it, any process can enter it, and a process that
//!   clears a slot does so first. A dead process's slack and units are in its own word, and end with it,
//!   but for those that others may keep ([`GpuLedger::orphan_exported`]).
//! - **All counts begin again**, after 65536 grants to one slot, or 16384 between two charges. A process may be stopped
//!   just before an exchange, and go on when all 64 bits are as they were. It could then add one grant too many. That is
//!   so rare that the code accepts it.
//! - **Limits may differ** if the job's conf changed. Each process is granted units by the limit that it knows. It may
//!   still use them while others, which know a larger limit, are granted more. All together stay below the largest.
//! - **Garbage** is a ledger like any other: each part of a word has its width, each slot its place, each call a number
//!   of tries. A request without tries left is refused.
//!
//! All orderings are SeqCst: one order of all accesses is easy to think about, and on x86-64 it costs nothing beside
//! the exchanges. Loom knows them only as acquire and release, so these would be enough.

use crate::atomic::{AtomicU64, Ordering};
use crate::pace::{Pace, TRIES};
use crate::word::{Grant, MOST, Refusals, Word};

/// A line of the processor's cache, so that the writes of one process do not slow down its neighbours.
#[repr(C, align(64))]
pub struct Slot {
    pub(crate) word: AtomicU64,
    /// The process whose slot it is or was: see [`Ledger::set_process`](crate::Ledger::set_process). Only in the first GPU's part.
    pub(crate) process: AtomicU64,
    /// What others may keep of it, and what the driver does not count: see [`GpuLedger::export`].
    pub(crate) exports: AtomicU64,
    /// A part of the table of what the job's processes share: see [`GpuLedger::share`]. It has nothing to do with the slot.
    pub(crate) shared: [AtomicU64; SHARED],
}

/// How many names of shared memory are beside each slot.
pub(crate) const SHARED: usize = 4;

/// One GPU's part of the ledger.
#[derive(Clone, Copy)]
pub struct GpuLedger<'a> {
    pub(crate) grant: &'a AtomicU64,
    pub(crate) slots: &'a [Slot],
    /// Slots from here on were never used.
    pub(crate) top: &'a AtomicU64,
    pub(crate) pace: &'a AtomicU64,
    pub(crate) peak: &'a AtomicU64,
    pub(crate) refusals: &'a AtomicU64,
    pub(crate) recovered: &'a AtomicU64,
    /// What belongs to no slot: see [`GpuLedger::orphan`].
    pub(crate) orphans: &'a AtomicU64,
    pub(crate) charged: &'a AtomicU64,
    pub(crate) waits: &'a AtomicU64,
    /// That word of each of the ledger's GPUs.
    pub(crate) all_waits: &'a [AtomicU64],
}

/// Where the units came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// From what the process had given back before.
    FromSlack,
    /// From the job. `held` is the most that its processes hold now.
    Granted {
        /// The units that they hold.
        held: u64,
    },
}

/// The job has no room left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// The units that all processes hold together.
    pub held: u64,
}

impl<'a> GpuLedger<'a> {
    /// The job's own cap on its time.
    pub fn pace(&self) -> Pace<'a> {
        Pace {
            until: self.pace,
            charged: self.charged,
            waits: self.waits,
            all_waits: self.all_waits,
        }
    }

    /// Takes `units` for the process of `slot`, if all processes together then hold at most `limit`.
    ///
    /// A process keeps what it gave back as slack, so mostly this is one exchange of its own word. Else it needs a
    /// grant:
    ///
    /// 1. It enters the latest grant into its slot, if that was not done yet.
    /// 2. It adds up what all slots hold, and the orphans. It keeps no total, which a process that dies could leave wrong.
    /// 3. If that leaves no room, it takes all slack back and looks again.
    /// 4. If there is room, it writes its own grant over the latest, unless that has changed: then all begins again.
    ///
    /// The exchange in step 4 is the grant. The next process enters it, whether its own process is dead or alive.
    pub fn reserve(&self, slot: usize, units: u32, limit: u32) -> Result<Taken, Full> {
        let word = self.word(slot).ok_or(Full { held: 0 })?;
        let taken = change(word, &mut Tries::new(), |word| word.taken(units));
        if taken.is_some() {
            return Ok(Taken::FromSlack);
        }
        self.grow(slot, word, units, limit)
    }

    #[cold]
    fn grow(&self, slot: usize, word: &AtomicU64, units: u32, limit: u32) -> Result<Taken, Full> {
        let tries = &mut Tries::new();
        let mut held = 0;
        let mut full_at = None;
        while let Some(latest) = self.settle(tries)
            && let Some(own) = change(word, tries, |word| Some(word.trimmed()))
            && tries.again()
        {
            let fits = |held: u64| {
                held.saturating_add(units.into()) <= limit.into()
                    && own.held().saturating_add(units) <= MOST
            };
            held = self.sum(Word::held);
            if !fits(held) {
                held = self.take_back_slack(tries);
            }
            if !fits(held) {
                // Units that one process gave back and another took meanwhile were counted twice. The GPU is full if it
                // is found full twice.
                if full_at == Some(latest) {
                    break;
                }
                full_at = Some(latest);
                continue;
            }
            if self.replace(latest, latest.next(slot, units, own.tag())) {
                self.settle(&mut Tries::new());
                let held = held.saturating_add(units.into());
                self.peak.fetch_max(held, Ordering::SeqCst);
                return Ok(Taken::Granted { held });
            }
        }
        Err(Full { held })
    }

    /// Notes that these units were refused for good, for those who look from outside ([`crate::Record`]).
    #[cold]
    pub fn note_refusal(&self, units: u32) {
        change_bits(self.refusals, &mut Tries::new(), |now| {
            Some(Refusals(now).with(units).0)
        });
    }

    /// Notes that a process was given memory after so many refusals, so that it does without what it was refused.
    #[cold]
    pub fn note_recovery(&self, refusals: u32) {
        self.recovered.fetch_add(refusals.into(), Ordering::SeqCst);
    }

    /// Takes `units` for a process that has them already, whether there is room or not.
    ///
    /// Units beyond the process's slack were not granted, and there may be no room for them. From then on every process
    /// has to ask for what it takes next, until it is granted something again.
    pub fn charge(&self, slot: usize, units: u32) {
        let Some(word) = self.word(slot).filter(|_| units > 0) else {
            return;
        };
        let charged = change(word, &mut Tries::new(), |word| Some(word.charged(units)));
        if charged.is_some_and(Word::is_overdrawn) {
            self.recall();
        }
    }

    #[cold]
    fn recall(&self) {
        let tries = &mut Tries::new();
        // A process that adds up at this moment may have missed the charge. A grant of nothing makes it add up again.
        while let Some(latest) = self.settle(tries)
            && !self.replace(latest, latest.next(0, 0, 0))
            && tries.again()
        {}
        for slot in self.used_slots() {
            change(&slot.word, tries, |word| Some(word.recalled()));
        }
    }

    /// Gives back `units` of a process's.
    pub fn refund(&self, slot: usize, units: u32) {
        if let Some(word) = self.word(slot) {
            change(word, &mut Tries::new(), |word| Some(word.refunded(units)));
        }
    }

    /// Forgets the units of a process that has ended; true if it had any. The caller holds the slot's lock.
    pub fn clear(&self, slot: usize) -> bool {
        let tries = &mut Tries::new();
        self.settle(tries);
        let cleared = self.word(slot).and_then(|word| {
            change(word, tries, |word| {
                (word.held() > 0).then(|| word.cleared())
            })
        });
        self.forget_exports(slot);
        cleared.is_some()
    }

    /// The units that all processes hold together.
    pub fn held(&self) -> u64 {
        self.settle(&mut Tries::new());
        self.sum(Word::used)
    }

    /// The units that one process holds.
    pub fn held_by(&self, slot: usize) -> u32 {
        self.settle(&mut Tries::new());
        let word = self.word(slot).map(|word| word.load(Ordering::SeqCst));
        word.map_or(0, |word| Word(word).used())
    }

    /// Enters the latest grant into its slot, unless that is done, and returns it.
    pub(crate) fn settle(&self, tries: &mut Tries) -> Option<Grant> {
        loop {
            let latest = Grant(self.grant.load(Ordering::SeqCst));
            let Some(word) = self.word(latest.slot()).filter(|_| latest.units() > 0) else {
                return Some(latest);
            };
            let now = Word(word.load(Ordering::SeqCst));
            // Else the word may be of a time when there was another latest grant.
            if self.grant.load(Ordering::SeqCst) == latest.0 {
                let grown = now.grown(latest.units());
                if now.tag() != latest.tag() || exchange(word, now.0, grown.0) {
                    return Some(latest);
                }
            }
            if !tries.again() {
                return None;
            }
        }
    }

    fn replace(&self, latest: Grant, next: Grant) -> bool {
        exchange(self.grant, latest.0, next.0)
    }

    /// Takes every process's slack; what they hold then.
    fn take_back_slack(&self, tries: &mut Tries) -> u64 {
        self.sum_of(|slot| {
            let word = change(&slot.word, tries, |word| Some(word.trimmed()));
            word.map_or(MOST, Word::held)
        })
    }

    fn sum(&self, part: impl Fn(Word) -> u32) -> u64 {
        self.sum_of(|slot| part(Word(slot.word.load(Ordering::SeqCst))))
    }

    /// That of all slots, and the orphans, which come last: see `exports`.
    fn sum_of(&self, part: impl FnMut(&Slot) -> u32) -> u64 {
        let of_slots = self.used_slots().map(part).map(u64::from);
        of_slots
            .fold(0, u64::saturating_add)
            .saturating_add(self.orphans().units().into())
    }

    fn used_slots(&self) -> impl Iterator<Item = &'a Slot> {
        let top = usize::try_from(self.top.load(Ordering::SeqCst)).unwrap_or(usize::MAX);
        self.slots.iter().take(top)
    }

    fn word(&self, slot: usize) -> Option<&'a AtomicU64> {
        self.slots.get(slot).map(|slot| &slot.word)
    }
}

/// How often this call may still try again.
pub(crate) struct Tries(u32);

impl Tries {
    pub(crate) fn new() -> Self {
        Self(TRIES)
    }

    fn again(&mut self) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 > 0
    }
}

/// Changes a word and returns it; `None` if `to` has nothing to change it to.
pub(crate) fn change(
    word: &AtomicU64,
    tries: &mut Tries,
    to: impl Fn(Word) -> Option<Word>,
) -> Option<Word> {
    change_bits(word, tries, |now| Some(to(Word(now))?.0)).map(Word)
}

/// The same of any kind of word.
pub(crate) fn change_bits(
    word: &AtomicU64,
    tries: &mut Tries,
    to: impl Fn(u64) -> Option<u64>,
) -> Option<u64> {
    let mut now = word.load(Ordering::SeqCst);
    loop {
        let new = to(now)?;
        // Others' words are left in their caches.
        if new == now {
            return Some(new);
        }
        match word.compare_exchange_weak(now, new, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return Some(new),
            Err(other) => now = other,
        }
        if !tries.again() {
            return None;
        }
    }
}

fn exchange(word: &AtomicU64, old: u64, new: u64) -> bool {
    word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
        .is_ok()
}
