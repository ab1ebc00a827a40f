//! The two kinds of word that everything is made of.

/// What one process holds of one GPU: so much of what it was granted is used.
///
/// From the lowest bit: used (24), granted (24), tag (16). The tag counts the grants to this slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

/// The most units that a process can hold of one GPU: one less than 1 TiB.
pub(crate) const MOST: u32 = (1 << 24) - 1;

impl Word {
    /// With `used` never above `granted`, whatever stands in the file.
    fn new(used: u32, granted: u32, tag: u16) -> Self {
        let granted = granted.min(MOST);
        let used = used.min(granted);
        Self(u64::from(used) | u64::from(granted) << 24 | u64::from(tag) << 48)
    }

    pub(crate) fn used(self) -> u32 {
        (self.0 as u32 & MOST).min(self.granted())
    }

    pub(crate) fn granted(self) -> u32 {
        (self.0 >> 24) as u32 & MOST
    }

    pub(crate) fn tag(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// What is granted and not used.
    pub(crate) fn slack(self) -> u32 {
        self.granted().saturating_sub(self.used())
    }

    /// Uses `units` of the slack, if it is enough.
    pub(crate) fn taken(self, units: u32) -> Option<Self> {
        let used = self.used().checked_add(units)?;
        (used <= self.granted()).then(|| Self::new(used, self.granted(), self.tag()))
    }

    /// Uses `units`, granted or not.
    pub(crate) fn charged(self, units: u32) -> Self {
        let used = self.used().saturating_add(units).min(MOST);
        Self::new(used, self.granted().max(used), self.tag())
    }

    /// Uses `units` less.
    pub(crate) fn refunded(self, units: u32) -> Self {
        let used = self.used().saturating_sub(units);
        Self::new(used, self.granted(), self.tag())
    }

    /// Without its slack.
    pub(crate) fn trimmed(self) -> Self {
        Self::new(self.used(), self.used(), self.tag())
    }

    /// After a grant of `units`, which are used at once.
    pub(crate) fn grown(self, units: u32) -> Self {
        let add = |to: u32| to.saturating_add(units).min(MOST);
        Self::new(
            add(self.used()),
            add(self.granted()),
            self.tag().wrapping_add(1),
        )
    }

    /// Of a process that is no more.
    pub(crate) fn cleared(self) -> Self {
        Self::new(0, 0, self.tag())
    }
}

/// The latest grant on a GPU: so many units to this slot, whose tag then was this.
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
