//! What of a GPU's time was already charged: streams work at the same time, and that counts once.

/// Stretches of time that do not touch, in order. The oldest is forgotten when there is no room: all before its end then
/// counts as charged.
pub(super) struct Covered {
    stretches: [(u64, u64); ROOM],
    count: usize,
    /// All before this counts as charged.
    floor: u64,
}

const ROOM: usize = 32;

impl Covered {
    /// Nothing.
    pub(super) const fn new() -> Self {
        Self {
            stretches: [(0, 0); ROOM],
            count: 0,
            floor: 0,
        }
    }

    /// Adds a stretch, and says how much of it is new.
    pub(super) fn add(&mut self, start: u64, end: u64) -> u64 {
        let (mut start, mut end) = (start.max(self.floor), end);
        if end <= start {
            return 0;
        }
        let whole = end.saturating_sub(start);
        let mut known: u64 = 0;
        let mut kept = Self {
            floor: self.floor,
            ..Self::new()
        };
        // Those that touch the new one become one with it.
        for &(from, to) in self.stretches.iter().take(self.count) {
            if to < start || from > end {
                kept.push(from, to);
                continue;
            }
            let overlap = to.min(end).saturating_sub(from.max(start));
            known = known.saturating_add(overlap);
            start = start.min(from);
            end = end.max(to);
        }
        kept.insert(start, end);
        *self = kept;
        whole.saturating_sub(known)
    }

    fn push(&mut self, from: u64, to: u64) {
        if let Some(place) = self.stretches.get_mut(self.count) {
            *place = (from, to);
            self.count = self.count.saturating_add(1);
        }
    }

    fn insert(&mut self, start: u64, end: u64) {
        if self.count == ROOM {
            self.floor = self.stretches.first().map_or(0, |&(_, to)| to);
            self.stretches.copy_within(1.., 0);
            self.count = ROOM.saturating_sub(1);
        }
        self.push(start, end);
        if let Some(stretches) = self.stretches.get_mut(..self.count) {
            stretches.sort_unstable();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_at_the_same_time_counts_once() {
        let mut covered = Covered::new();
        assert_eq!(covered.add(10, 20), 10);
        assert_eq!(covered.add(10, 20), 0);
        assert_eq!(covered.add(15, 30), 10);
        assert_eq!(covered.add(0, 100), 80);
        assert_eq!(covered.add(200, 300), 100);
        assert_eq!(covered.add(90, 210), 100);
        assert_eq!(covered.add(5, 5), 0);
        assert_eq!(covered.add(7, 5), 0);
    }

    #[test]
    fn the_order_does_not_matter() {
        let mut covered = Covered::new();
        assert_eq!(covered.add(50, 60), 10);
        assert_eq!(covered.add(10, 20), 10);
        assert_eq!(covered.add(0, 100), 80);
    }

    #[test]
    fn what_is_long_ago_is_forgotten_and_not_charged_again() {
        let mut covered = Covered::new();
        let all: u64 = (0..1000).map(|at| covered.add(at * 10, at * 10 + 5)).sum();
        assert_eq!(all, 5000);
        assert_eq!(covered.add(0, 5), 0);
        assert_eq!(covered.add(9990, 9995), 0);
        assert_eq!(covered.add(9995, 10000), 5);
    }
}
