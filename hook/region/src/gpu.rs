//! One GPU's part of the ledger, and the one algorithm: how a process gets more without the job getting too much.
//!
//! How it goes is told at [`Gpu::reserve`]. Why it holds:
//!
//! - **Each grant is entered once.** While it is the latest, its slot has its tag before it is entered, and the next one
//!   after. Nobody replaces it who did not see it entered. Who comes late finds another word and changes nothing.
//! - **Never too much.** From one grant to the next, what a slot holds only shrinks, unless it is charged. A slot that
//!   comes into use raises `top` before its first grant, which is a later one. So a sum that began after the latest
//!   grant was entered is right or too large when that is exchanged, or else the exchange fails.
//! - **A charge counts.** It ends by replacing the latest grant and taking everybody's slack. So sums that missed it
//!   come to nothing, and nothing is left to take without one.
//! - **Refused is only what does not fit.** Without its slack, a slot holds what it uses at that moment, and can use
//!   more only by a later grant, or by what itself gives back after that moment. To be refused wrongly, two looks at
//!   all slots would both have to miss units that go from process to process just then, and back in between.
//! - **Death.** Before its exchange a grant is nothing; after it, anybody can enter it, and whoever clears a slot does
//!   so first. A dead process's slack and units are in its own word, and end with it.
//! - **All counts begin again**, after 65536 grants to one slot, or 16384 between two charges. A process that is stopped
//!   just before an exchange, and goes on when all 64 bits are as they were, could add one grant too many: so rare that
//!   nothing is done.
//! - **Limits may differ** if the job's conf changed. Each process is granted what its own allows; it may still use what
//!   it was granted while others, which know a larger one, are granted more. All together stay below the largest.
//! - **Garbage** is a ledger like any other: each part of a word has its width, each slot its place, each call so many
//!   tries. Without tries left, what was asked for is refused.
//!
//! All orderings are SeqCst: one order of everything is easy to think about, and on x86-64 costs nothing beside the
//! exchanges. Loom knows them only as acquire and release, so these would do.

use crate::atomic::{AtomicU64, Ordering};
use crate::gang::Gang;
use crate::pace::{Pace, TRIES};
use crate::word::{Grant, MOST, Word};

/// A line of the processor's cache, so that what one process writes does not slow down its neighbours.
#[repr(C, align(64))]
pub struct Slot {
    pub(crate) word: AtomicU64,
}

/// One GPU's part of the ledger.
#[derive(Clone, Copy)]
pub struct Gpu<'a> {
    pub(crate) grant: &'a AtomicU64,
    pub(crate) slots: &'a [Slot],
    /// Slots from here on were never used.
    pub(crate) top: &'a AtomicU64,
    pub(crate) pace: &'a AtomicU64,
    pub(crate) gang: Gang<'a>,
}

/// Where the units came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// From what the process had given back before.
    FromSlack,
    /// From the job: so many units its processes now hold at most.
    Granted {
        /// In units.
        held: u64,
    },
}

/// There is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// What all processes hold, in units.
    pub held: u64,
}

impl<'a> Gpu<'a> {
    /// The job's own cap on its time.
    pub fn pace(&self) -> Pace<'a> {
        Pace(self.pace)
    }

    /// What it has to do with the job's other GPUs.
    pub fn gang(&self) -> Gang<'a> {
        self.gang
    }

    /// Takes `units` for the process of `slot`, if all processes together then hold at most `limit`.
    ///
    /// A process keeps what it gave back as slack, so mostly this is one exchange of its own word. Else it needs a
    /// grant:
    ///
    /// 1. It enters the latest grant into its slot, if that was not done yet.
    /// 2. It adds up what all slots hold. There is no total anywhere that a death could make wrong.
    /// 3. If that leaves no room, it takes everybody's slack back and looks again.
    /// 4. If there is room, it writes its own grant over the latest, unless that has changed: then all begins again.
    ///
    /// The exchange in step 4 is the grant: whoever comes next enters it, be its process dead or alive.
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
                // What one process gave back and another took meanwhile was counted twice: full is what is full twice.
                if full_at == Some(latest) {
                    break;
                }
                full_at = Some(latest);
                continue;
            }
            if self.replace(latest, latest.next(slot, units, own.tag())) {
                self.settle(&mut Tries::new());
                return Ok(Taken::Granted {
                    held: held.saturating_add(units.into()),
                });
            }
        }
        Err(Full { held })
    }

    /// Takes `units` for a process that has them already, room or not.
    ///
    /// Beyond its slack nobody has granted them, and there may be no room: from then on every process has to ask for
    /// what it takes next, until it was granted something again.
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
        // Who adds up at this moment may have missed the charge. A grant of nothing makes him do it again.
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

    /// Forgets what a process held that is no more; true if that was something. Whoever calls this holds the slot's
    /// lock.
    pub fn clear(&self, slot: usize) -> bool {
        let tries = &mut Tries::new();
        self.settle(tries);
        let cleared = self.word(slot).and_then(|word| {
            change(word, tries, |word| {
                (word.held() > 0).then(|| word.cleared())
            })
        });
        cleared.is_some()
    }

    /// What all processes hold, in units.
    pub fn held(&self) -> u64 {
        self.settle(&mut Tries::new());
        self.sum(Word::used)
    }

    /// What one process holds, in units.
    pub fn held_by(&self, slot: usize) -> u32 {
        self.settle(&mut Tries::new());
        let word = self.word(slot).map(|word| word.load(Ordering::SeqCst));
        word.map_or(0, |word| Word(word).used())
    }

    /// Enters the latest grant into its slot, unless somebody did, and returns it.
    fn settle(&self, tries: &mut Tries) -> Option<Grant> {
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
        self.used_slots()
            .map(|slot| change(&slot.word, tries, |word| Some(word.trimmed())))
            .map(|word| word.map_or(MOST, Word::held).into())
            .fold(0, u64::saturating_add)
    }

    fn sum(&self, part: impl Fn(Word) -> u32) -> u64 {
        self.used_slots()
            .map(|slot| u64::from(part(Word(slot.word.load(Ordering::SeqCst)))))
            .fold(0, u64::saturating_add)
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
struct Tries(u32);

impl Tries {
    fn new() -> Self {
        Self(TRIES)
    }

    fn again(&mut self) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 > 0
    }
}

/// Changes a word and returns it; `None` if `to` has nothing to change it to.
fn change(word: &AtomicU64, tries: &mut Tries, to: impl Fn(Word) -> Option<Word>) -> Option<Word> {
    let mut now = word.load(Ordering::SeqCst);
    loop {
        let new = to(Word(now))?;
        // Others' words are left in their caches.
        if new.0 == now {
            return Some(new);
        }
        match word.compare_exchange_weak(now, new.0, Ordering::SeqCst, Ordering::SeqCst) {
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
