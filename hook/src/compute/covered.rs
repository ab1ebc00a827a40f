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
        let start = start.max(self.floor);
        if end <= start {
            return 0;
        }
        // Those that touch the new one become one with it.
        let touches = |&(from, to): &(u64, u64)| to >= start && from <= end;
        let all = self.stretches;
        let known = || all.iter().take(self.count);
        let (mut from, mut to) = (start, end);
        let mut covered: u64 = 0;
        for stretch in known().filter(|stretch| touches(stretch)) {
            let overlap = stretch.1.min(end).saturating_sub(stretch.0.max(start));
            covered = covered.saturating_add(overlap);
            from = from.min(stretch.0);
            to = to.max(stretch.1);
        }
        let others = || known().copied().filter(|stretch| !touches(stretch));
        let before = others().filter(|stretch| stretch.1 < from);
        let after = others().filter(|stretch| stretch.0 > to);
        let mut new = Self {
            floor: self.floor,
            ..Self::new()
        };
        let total = others().count().saturating_add(1);
        for stretch in before.chain([(from, to)]).chain(after) {
            if total > ROOM && new.floor == self.floor {
                new.floor = stretch.1;
                continue;
            }
            new.push(stretch);
        }
        *self = new;
        end.saturating_sub(start).saturating_sub(covered)
    }

    fn push(&mut self, stretch: (u64, u64)) {
        if let Some(place) = self.stretches.get_mut(self.count) {
            *place = stretch;
            self.count = self.count.saturating_add(1);
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

    /// As many nanoseconds as are drawn, each either charged or not.
    #[test]
    fn each_moment_counts_once_and_none_is_left_out() {
        let mut random = 1_u64;
        let mut draw = |most: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % most
        };
        for _ in 0..200 {
            let (mut covered, mut charged) = (Covered::new(), [false; 400]);
            // Too few to be forgotten.
            for _ in 0..ROOM {
                let (start, length) = (draw(350), draw(50));
                let moments = start as usize..(start + length) as usize;
                let new = charged.get_mut(moments).unwrap();
                let count = new.iter().filter(|charged| !**charged).count();
                assert_eq!(covered.add(start, start + length), count as u64);
                new.fill(true);
            }
        }
    }

    #[test]
    fn whatever_is_forgotten_no_moment_counts_twice() {
        let mut random = 1_u64;
        for _ in 0..50 {
            let (mut covered, mut charged) = (Covered::new(), [false; 1000]);
            let mut sum = 0;
            for _ in 0..300 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let (start, length) = ((random >> 33) % 995, (random >> 60) % 5);
                sum += covered.add(start, start + length);
                let moments = start as usize..(start + length) as usize;
                charged.get_mut(moments).unwrap().fill(true);
                let all = charged.iter().filter(|charged| **charged).count();
                assert!(sum <= all as u64, "{sum} of {all}");
            }
            assert!(sum > 0);
        }
    }
}
