//! Times without turns: jobs launch as they like, and something else divides the GPU among them.

use softmig_region::seat::OPEN;

use super::{Job, LONGEST_TAIL, Nanos, Order, SeatId, Terms, Turns};

impl Turns {
    /// Ends the turn, and gives nobody another until [`Turns::resume`]. Who is let in meanwhile is told by
    /// [`Turns::let_loose`].
    pub fn suspend(&mut self, now: Nanos) {
        self.settle(now);
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

    /// Jobs take turns again. `standing` says what credit each has by now, and what it was charged meanwhile. Each is told that
    /// it has no turn now.
    pub fn resume(
        &mut self,
        now: Nanos,
        standing: impl Fn(Job) -> Option<(Nanos, Nanos)>,
    ) -> Vec<Order> {
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
