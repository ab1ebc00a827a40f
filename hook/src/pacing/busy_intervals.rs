//! The GPU time that was already charged: streams work at the same time, and that counts once.

use crate::os::cells::zeroed;

/// Stretches of time that do not touch, in order. When the list is full, the two oldest become one, with their gap.
pub(super) struct BusyIntervals {
    stretches: [Stretch; ROOM],
    count: usize,
}

/// A stretch of time of which all but `gap` was charged. Where in it the gap is, is unknown.
#[derive(Clone, Copy)]
struct Stretch {
    from: u64,
    to: u64,
    gap: u64,
}

zeroed! { BusyIntervals { stretches, count } }
zeroed! { Stretch { from, to, gap } }

const ROOM: usize = 32;

impl Stretch {
    const NONE: Self = Self {
        from: 0,
        to: 0,
        gap: 0,
    };

    fn length(self) -> u64 {
        self.to.saturating_sub(self.from)
    }

    /// How much of the gap lies in a part of this length, if the gap is spread evenly.
    fn gap_in(self, length: u64) -> u64 {
        let part = u128::from(self.gap).saturating_mul(length.into());
        let part = part.checked_div(self.length().into()).unwrap_or(0);
        u64::try_from(part).unwrap_or(self.gap)
    }
}

impl BusyIntervals {
    /// A record without intervals.
    pub(super) const fn new() -> Self {
        Self {
            stretches: [Stretch::NONE; ROOM],
            count: 0,
        }
    }

    /// Adds a stretch, and says how much of it is new.
    pub(super) fn add(&mut self, start: u64, end: u64) -> u64 {
        if end <= start {
            return 0;
        }
        let all = self.stretches;
        let known = || all.iter().copied().take(self.count);
        // Those that touch the new one become one with it.
        let touches = |stretch: &Stretch| stretch.to >= start && stretch.from <= end;
        let mut whole = Stretch {
            from: start,
            to: end,
            gap: 0,
        };
        let mut covered: u64 = 0;
        for stretch in known().filter(touches) {
            let overlap = stretch.to.min(end).saturating_sub(stretch.from.max(start));
            let gap = stretch.gap_in(overlap);
            covered = covered.saturating_add(overlap.saturating_sub(gap));
            whole.gap = whole.gap.saturating_add(stretch.gap.saturating_sub(gap));
            whole.from = whole.from.min(stretch.from);
            whole.to = whole.to.max(stretch.to);
        }
        let others = || known().filter(|stretch| !touches(stretch));
        let before = others().filter(|stretch| stretch.to < whole.from);
        let after = others().filter(|stretch| stretch.from > whole.to);
        let is_full = others().count() >= ROOM;
        let mut new = Self::new();
        let mut in_order = before.chain([whole]).chain(after);
        if is_full && let (Some(first), Some(second)) = (in_order.next(), in_order.next()) {
            let between = second.from.saturating_sub(first.to);
            let gaps = first.gap.saturating_add(second.gap);
            new.push(Stretch {
                from: first.from,
                to: second.to,
                gap: gaps.saturating_add(between),
            });
        }
        for stretch in in_order {
            new.push(stretch);
        }
        *self = new;
        end.saturating_sub(start).saturating_sub(covered)
    }

    fn push(&mut self, stretch: Stretch) {
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
        let mut covered = BusyIntervals::new();
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
        let mut covered = BusyIntervals::new();
        assert_eq!(covered.add(50, 60), 10);
        assert_eq!(covered.add(10, 20), 10);
        assert_eq!(covered.add(0, 100), 80);
    }

    #[test]
    fn what_is_long_ago_is_known_in_the_mean() {
        let mut covered = BusyIntervals::new();
        let all: u64 = (0..1000).map(|at| covered.add(at * 10, at * 10 + 5)).sum();
        assert_eq!(all, 5000);
        // Half of the time around was charged.
        assert!(covered.add(0, 5).abs_diff(2) <= 1);
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
            let (mut covered, mut charged) = (BusyIntervals::new(), [false; 400]);
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

    /// A long kernel, with short ones beside it: all of its time is charged, and theirs counts once.
    #[test]
    fn what_is_long_is_charged_however_much_came_meanwhile() {
        for count in [10, 100, 1000, 10_000_u64] {
            let mut covered = BusyIntervals::new();
            let short: u64 = (0..count)
                .map(|at| covered.add(at * 100, at * 100 + 7))
                .sum();
            let long = covered.add(0, count * 100);
            assert_eq!(short, count * 7);
            assert!((short + long).abs_diff(count * 100) <= 1, "{count}: {long}");
        }
    }
}
