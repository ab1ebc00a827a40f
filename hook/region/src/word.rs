//! The kinds of word that everything is made of.

/// One process's part of one GPU: the memory that it uses, and the memory that it may use without asking.
///
/// From the lowest bit: used (24), granted (24), tag (16). The tag counts the grants to this slot.
///
/// `granted` is mostly the highest value that `used` had; the difference is slack. `granted` is zero after a charge
/// without a grant. From then on the process has to ask, also for memory that it gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

/// The most units that a process can hold of one GPU: one less than 1 TiB.
pub(crate) const MOST: u32 = (1 << 24) - 1;

impl Word {
    fn new(used: u32, granted: u32, tag: u16) -> Self {
        let (used, granted) = (used.min(MOST), granted.min(MOST));
        Self(u64::from(used) | u64::from(granted) << 24 | u64::from(tag) << 48)
    }

    pub(crate) fn used(self) -> u32 {
        self.0 as u32 & MOST
    }

    pub(crate) fn granted(self) -> u32 {
        (self.0 >> 24) as u32 & MOST
    }

    pub(crate) fn tag(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// The units that other processes cannot have.
    pub(crate) fn held(self) -> u32 {
        self.granted().max(self.used())
    }

    /// Uses `units` of what is granted and not used, if it is enough.
    pub(crate) fn taken(self, units: u32) -> Option<Self> {
        let used = self.used().checked_add(units)?;
        (used <= self.granted() || units == 0).then(|| Self::new(used, self.granted(), self.tag()))
    }

    /// Uses `units`, granted or not.
    pub(crate) fn charged(self, units: u32) -> Self {
        let used = self.used().saturating_add(units);
        Self::new(used, self.granted(), self.tag())
    }

    /// True if more is used than was granted.
    pub(crate) fn is_overdrawn(self) -> bool {
        self.used() > self.granted()
    }

    /// Uses `units` less.
    pub(crate) fn refunded(self, units: u32) -> Self {
        let used = self.used().saturating_sub(units);
        Self::new(used, self.granted(), self.tag())
    }

    /// Uses `units` less, which are granted no more.
    pub(crate) fn without(self, units: u32) -> Self {
        let used = self.used().saturating_sub(units);
        Self::new(used, self.granted().saturating_sub(units), self.tag())
    }

    /// Without its slack.
    pub(crate) fn trimmed(self) -> Self {
        Self::new(self.used(), self.granted().min(self.used()), self.tag())
    }

    /// Of a process that has to ask for whatever it takes next.
    pub(crate) fn recalled(self) -> Self {
        Self::new(self.used(), 0, self.tag())
    }

    /// After a grant of `units`, which are used at once. The process that granted them counted all that was used.
    pub(crate) fn grown(self, units: u32) -> Self {
        Self::new(
            self.used().saturating_add(units),
            self.held().saturating_add(units),
            self.tag().wrapping_add(1),
        )
    }

    /// Of a process that is no more.
    pub(crate) fn cleared(self) -> Self {
        Self::new(0, 0, self.tag())
    }
}

/// The latest grant on a GPU: the units, the slot that got them, and its tag then.
///
/// From the lowest bit: units (24), slot (10), tag (16), a count (14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant(pub(crate) u64);

impl Grant {
    /// The grant that follows this one.
    pub(crate) fn next(self, slot: usize, units: u32, tag: u16) -> Self {
        let count = (self.0 >> 50).wrapping_add(1);
        let slot = (slot as u64 & 0x3ff) << 24;
        Self(u64::from(units & MOST) | slot | u64::from(tag) << 34 | count << 50)
    }

    pub(crate) fn units(self) -> u32 {
        self.0 as u32 & MOST
    }

    pub(crate) fn slot(self) -> usize {
        (self.0 >> 24) as usize & 0x3ff
    }

    pub(crate) fn tag(self) -> u16 {
        (self.0 >> 34) as u16
    }
}

/// What is known of a slot's units besides their number: from the lowest bit 32 bits of those that others may keep, and 32 of those
/// that the driver counts for no process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exports(pub(crate) u64);

impl Exports {
    fn new(exported: u32, uncounted: u32) -> Self {
        Self(u64::from(exported) | u64::from(uncounted) << 32)
    }

    pub(crate) fn exported(self) -> u32 {
        self.0 as u32
    }

    pub(crate) fn uncounted(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) fn exported_more(self, units: u32) -> Self {
        Self::new(self.exported().saturating_add(units), self.uncounted())
    }

    pub(crate) fn exported_less(self, units: u32) -> Self {
        Self::new(self.exported().saturating_sub(units), self.uncounted())
    }

    pub(crate) fn uncounted_changed(self, more: u32, less: u32) -> Self {
        let uncounted = self.uncounted().saturating_add(more).saturating_sub(less);
        Self::new(self.exported(), uncounted)
    }
}

/// How often memory was refused, and the most at once: from the lowest bit 32 bits of units, and 32 of the count.
pub(crate) struct Refusals(pub(crate) u64);

impl Refusals {
    pub(crate) fn with(self, units: u32) -> Self {
        let (count, largest) = (self.0 >> 32, self.0 as u32);
        let count = count.saturating_add(1).min(u32::MAX.into());
        Self(count << 32 | u64::from(largest.max(units)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Word {
        fn slack(self) -> u32 {
            self.granted().saturating_sub(self.used())
        }
    }

    const PART: std::ops::RangeInclusive<u32> = 0..=MOST;

    proptest! {
        #[test]
        fn a_word_holds_what_was_put_in(used in PART, granted in PART, tag: u16) {
            let word = Word::new(used, granted, tag);
            prop_assert_eq!((word.used(), word.granted(), word.tag()), (used, granted, tag));
        }

        #[test]
        fn a_grant_holds_what_was_put_in(before: u64, slot in 0_usize..1024, units in PART, tag: u16) {
            let next = Grant(before).next(slot, units, tag);
            prop_assert_eq!((next.slot(), next.units(), next.tag()), (slot, units, tag));
            prop_assert_eq!(next.0 >> 50, ((before >> 50) + 1) & 0x3fff);
        }

        /// A value for one part of a grant leaves the others alone, even if it is too large.
        #[test]
        fn a_grant_never_names_another_slot(before: u64, slot: usize, units: u32, tag: u16) {
            let next = Grant(before).next(slot, units, tag);
            prop_assert_eq!(next.slot(), slot % 1024);
            prop_assert_eq!((next.units(), next.tag()), (units & MOST, tag));
        }

        /// Also of garbage nothing grows beyond what a word can hold, and only a grant changes the tag.
        #[test]
        fn changes_of_any_word(bits: u64, units: u32) {
            let word = Word(bits);
            prop_assert_eq!(Word::new(word.used(), word.granted(), word.tag()), word);
            prop_assert_eq!(word.slack(), word.held() - word.used());
            let (used, wide) = (u64::from(word.used()), u64::from(units));
            let within = |units: u64| u32::try_from(units.min(MOST.into())).unwrap();

            let charged = word.charged(units);
            prop_assert_eq!(charged.used(), within(used + wide));
            let taken = word.taken(units);
            prop_assert_eq!(taken.is_some(), units == 0 || wide <= word.slack().into());
            prop_assert!(taken.is_none_or(|taken| taken == charged && taken.held() == word.held()));
            prop_assert!(taken.is_some() || charged.slack() == 0);

            let refunded = word.refunded(units);
            prop_assert_eq!(u64::from(refunded.used()), used.saturating_sub(wide));
            prop_assert_eq!(refunded.granted(), word.granted());
            for without in [word.trimmed(), word.recalled()] {
                prop_assert_eq!((without.used(), without.slack()), (word.used(), 0));
            }
            prop_assert_eq!(word.recalled().refunded(units).slack(), 0);
            prop_assert_eq!(word.cleared().held(), 0);

            let grown = word.grown(units);
            prop_assert_eq!(grown.used(), within(used + wide));
            prop_assert_eq!(grown.held(), within(u64::from(word.held()) + wide));
            prop_assert_eq!(grown.granted(), grown.held());
            prop_assert_eq!(grown.tag(), word.tag().wrapping_add(1));
            for same in [charged, refunded, word.trimmed(), word.recalled(), word.cleared()] {
                prop_assert_eq!(same.tag(), word.tag());
            }
        }
    }

    #[test]
    fn refusals_are_counted_and_the_largest_is_kept() {
        let two = Refusals(0).with(7).with(3);
        assert_eq!(two.0, 2 << 32 | 7);
        assert_eq!(Refusals(u64::MAX).with(1).0, u64::MAX);
    }
}
