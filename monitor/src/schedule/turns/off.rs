//! Times without turns: jobs launch as they like, and something else divides the GPU among them.

use softmig_region::seat::OPEN;

use super::state::Turns;
use super::types::{Job, LONGEST_TAIL, Nanos, Order, SeatId, Terms};

impl Turns {
    /// Ends the turn, and gives no job another until [`Turns::resume`]. [`Turns::let_loose`] tells which are let in
    /// meanwhile.
    pub fn suspend(&mut self, now: Nanos) {
        self.settle(now);
        self.is_off = true;
        self.turn = None;
        self.last_holder = None;
        for seat in self
            .tenants
            .values_mut()
            .flat_map(|it| it.seats.values_mut())
        {
            seat.set_free();
        }
    }

    /// The word that lets a process launch as it likes.
    pub fn let_loose(&mut self, seat: SeatId) -> Option<Order> {
        let place = self.tenants.get_mut(&seat.job)?.seats.get_mut(&seat)?;
        Some(Order {
            seat,
            word: place.open() | OPEN,
            terms: Some(Terms {
                from: 0,
                ahead: LONGEST_TAIL.unsigned_abs(),
                until: u64::MAX,
                budget: u64::MAX,
            }),
        })
    }

    /// Forgets the jobs without processes that owe nothing by now.
    pub fn forget_paid(&mut self, owes: impl Fn(Job) -> bool) {
        (self.tenants).retain(|&job, tenant| !tenant.seats.is_empty() || owes(job));
    }

    /// Jobs take turns again. `standing` says what credit each has by now, and what it was charged meanwhile. Each is told that
    /// it has no turn now.
    pub fn resume(
        &mut self,
        now: Nanos,
        standing: impl Fn(Job) -> Option<(Nanos, Nanos)>,
    ) -> Vec<Order> {
        self.is_off = false;
        self.settled = now;
        self.free_at = now;
        let mut orders = Vec::new();
        for (&job, tenant) in &mut self.tenants {
            tenant.account.close_bill(now);
            if let Some((credit, charged)) = standing(job) {
                tenant.account.credit = credit;
                tenant.account.charged += charged;
            }
            tenant.lag_before = None;
            for (&seat, place) in &mut tenant.seats {
                place.set_free();
                orders.push(Order {
                    seat,
                    word: place.next_word(),
                    terms: None,
                });
            }
        }
        orders
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::turns::{Rules, Said};
    use softmig_policy::node::limits::{Mode, Share};

    #[test]
    fn after_a_time_without_turns_there_are_turns_again() {
        const MS: Nanos = 1_000_000;
        let mut turns = Turns::new(0, Rules::default());
        let half = Share::new(1, 2).unwrap();
        let seats = [1, 2].map(|job| turns.sit(0, Job(job), half, Mode::Hard));
        let wishes = |done| Said {
            wishes: true,
            done,
            ..Said::default()
        };
        let mut done = [0, 0];
        turns.hear(seats[0], wishes(0));
        assert_eq!(turns.look(0).orders.len(), 1, "the first has a turn");
        turns.suspend(MS);
        for seat in seats {
            let order = turns.let_loose(seat).unwrap();
            let terms = order.terms.unwrap();
            assert_eq!(
                (order.word & OPEN, terms.until, terms.budget),
                (OPEN, u64::MAX, u64::MAX)
            );
        }
        // Both used it up, and the second owes more.
        let standing = |job: Job| Some((-5 * MS * Nanos::from(job.0), 40 * MS));
        for order in turns.resume(100 * MS, standing) {
            assert_eq!((order.word & OPEN, order.terms), (0, None));
            done[order.seat.job.0 as usize - 1] = order.word;
        }
        for (seat, done) in seats.into_iter().zip(done) {
            turns.hear(seat, wishes(done));
        }
        assert_eq!(turns.look(100 * MS).orders, []);
        let next = turns.look(101 * MS).next.unwrap();
        let first = turns.look(next).orders;
        assert_eq!(first[0].seat, seats[0], "who owes less comes first");
        let charged: Vec<Nanos> = turns.standings().map(|it| it.charged).collect();
        assert!(
            charged.iter().all(|&charged| charged >= 40 * MS),
            "{charged:?}"
        );
    }
}
