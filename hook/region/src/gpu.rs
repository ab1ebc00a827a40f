//! One GPU's part of the ledger, and the one algorithm: how a process gets more without the job getting too much.

use crate::atomic::{AtomicU64, Ordering};
use crate::layout::Slot;
use crate::word::{Grant, MOST, Word};

/// How often a change is tried again that others' changes undid. Each try that fails means that somebody else got on;
/// so many in a row means that the ledger holds garbage which somebody keeps writing.
const TRIES: usize = 1 << 16;

/// One GPU's part of the ledger.
#[derive(Clone, Copy)]
pub struct Gpu<'a> {
    pub(crate) grant: &'a AtomicU64,
    pub(crate) slots: &'a [Slot],
    /// Slots from here on were never used.
    pub(crate) top: &'a AtomicU64,
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
    /// Takes `units` for the process of `slot`, if all processes together then hold at most `limit`.
    ///
    /// A process keeps what it gave back as slack, so mostly this is one exchange of its own word. Else it needs a
    /// grant:
    ///
    /// 1. It enters the latest grant into its slot, if that was not done yet.
    /// 2. It adds up what all slots were granted. There is no total anywhere that a death could make wrong.
    /// 3. If there is room, it writes its own grant over the latest, unless that has changed.
    ///
    /// A word is granted more by step 1 alone, so if the latest grant is still the same in step 3, the sum is still
    /// right or too large. The exchange in step 3 is the grant: whoever comes next enters it, be its process dead or
    /// alive. To enter it changes the slot's tag, so it happens once.
    pub fn reserve(&self, slot: usize, units: u32, limit: u32) -> Result<Taken, Full> {
        let word = self.word(slot).ok_or(Full { held: 0 })?;
        let taken = change(word, |word| word.taken(units));
        if taken.is_some() {
            return Ok(Taken::FromSlack);
        }
        self.grow(slot, word, units, limit)
    }

    #[cold]
    fn grow(&self, slot: usize, word: &AtomicU64, units: u32, limit: u32) -> Result<Taken, Full> {
        for _ in 0..TRIES {
            let latest = self.settle();
            change(word, |word| (word.slack() > 0).then(|| word.trimmed()));
            let own = Word(word.load(Ordering::SeqCst));
            let granted = self.sum(Word::granted);
            let fits = granted.saturating_add(units.into()) <= limit.into();
            if !fits || own.granted().saturating_add(units) > MOST {
                if self.take_back_slack() {
                    continue;
                }
                return Err(Full { held: self.held() });
            }
            let next = latest.next(slot, units, own.tag());
            // SeqCst, here and wherever a grant is made: the sum above must not be read later than this.
            let swapped =
                self.grant
                    .compare_exchange(latest.0, next.0, Ordering::SeqCst, Ordering::SeqCst);
            if swapped.is_ok() {
                self.settle();
                return Ok(Taken::Granted {
                    held: granted.saturating_add(units.into()),
                });
            }
        }
        Err(Full { held: self.held() })
    }

    /// Takes `units` for a process that has them already, room or not.
    pub fn charge(&self, slot: usize, units: u32) {
        if let Some(word) = self.word(slot) {
            change(word, |word| Some(word.charged(units)));
        }
    }

    /// Gives back `units` of a process's.
    pub fn refund(&self, slot: usize, units: u32) {
        if let Some(word) = self.word(slot) {
            change(word, |word| Some(word.refunded(units)));
        }
    }

    /// Forgets what a process held that is no more; true if that was something. Whoever calls this holds the slot's
    /// lock.
    pub fn clear(&self, slot: usize) -> bool {
        self.settle();
        let cleared = self
            .word(slot)
            .and_then(|word| change(word, |word| (word.granted() > 0).then(|| word.cleared())));
        cleared.is_some()
    }

    /// What all processes hold, in units.
    pub fn held(&self) -> u64 {
        self.settle();
        self.sum(Word::used)
    }

    /// What one process holds, in units.
    pub fn held_by(&self, slot: usize) -> u32 {
        self.settle();
        let word = self.word(slot).map(|word| word.load(Ordering::SeqCst));
        word.map_or(0, |word| Word(word).used())
    }

    /// Enters the latest grant into its slot, unless somebody did, and returns it.
    fn settle(&self) -> Grant {
        let mut latest = Grant(self.grant.load(Ordering::SeqCst));
        for _ in 0..TRIES {
            let Some(word) = self.word(latest.slot()).filter(|_| latest.units() > 0) else {
                break;
            };
            let now = Word(word.load(Ordering::SeqCst));
            let again = Grant(self.grant.load(Ordering::SeqCst));
            if again != latest {
                latest = again;
                continue;
            }
            // The word was read while this was the latest: with another tag it is entered.
            if now.tag() != latest.tag() {
                break;
            }
            let grown = now.grown(latest.units());
            let swapped = word.compare_exchange(now.0, grown.0, Ordering::SeqCst, Ordering::SeqCst);
            if swapped.is_ok() {
                break;
            }
        }
        latest
    }

    /// Takes every process's slack; true if there was any.
    fn take_back_slack(&self) -> bool {
        let mut was_any = false;
        for slot in self.used_slots() {
            let trimmed = change(&slot.word, |word| {
                (word.slack() > 0).then(|| word.trimmed())
            });
            was_any |= trimmed.is_some();
        }
        was_any
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

/// Changes a word; `None` if `to` has nothing to change it to.
fn change(word: &AtomicU64, to: impl Fn(Word) -> Option<Word>) -> Option<()> {
    let mut now = word.load(Ordering::SeqCst);
    for _ in 0..TRIES {
        let new = to(Word(now))?;
        match word.compare_exchange_weak(now, new.0, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return Some(()),
            Err(other) => now = other,
        }
    }
    None
}
