//! The time of a GPU that one job may still take.

use softmig_policy::node::limits::{Mode, Share};

use super::types::Nanos;

/// The most that a job can owe: a job that took more by one long kernel comes back within a time that its user accepts.
const DEEPEST_DEBT: Nanos = 10_000_000_000;

/// A job's credit: it grows with the time that passes, by the job's share of it, and pays for the turns.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) share: Share,
    pub(super) mode: Mode,
    /// Of GPU time. Below zero it is a debt.
    pub(super) credit: Nanos,
    /// Its payments in all.
    pub(super) charged: Nanos,
    /// Its payments since its turn began, or since others began to wait for its end.
    bill: Bill,
    /// Time that a full credit could not take, since the job last paid. It may turn out that it was used.
    forgone: Nanos,
}

/// The debt for a stretch of time. Kept as sums, since a process may tell of work some time after it is done.
#[derive(Clone, Debug, Default)]
struct Bill {
    since: Nanos,
    /// The use by the words of the processes.
    used: Nanos,
    /// How long others could not have the GPU because of it.
    blocked: Nanos,
    paid: Nanos,
}

/// Between which bounds time and use can move a credit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) most: Nanos,
    /// Time that no other job wants costs no more than there is.
    pub(super) is_borrowed: bool,
}

impl Account {
    pub(super) fn new(now: Nanos, share: Share, mode: Mode, credit: Nanos) -> Self {
        Self {
            share,
            mode,
            credit,
            charged: 0,
            bill: Bill {
                since: now,
                ..Bill::default()
            },
            forgone: 0,
        }
    }

    /// Begins a turn.
    pub(super) fn begin_turn(&mut self) {
        self.begin_bill();
        self.forgone = 0;
    }

    /// Begins a new bill. Time that was not paid for can still be claimed: a long kernel may have begun before.
    pub(super) fn begin_bill(&mut self) {
        self.bill = Bill {
            since: self.bill.since + self.bill.paid,
            used: (self.bill.used - self.bill.paid).max(0),
            ..Bill::default()
        };
    }

    /// All work has ended: what processes said beyond the time that passed was each other's.
    pub(super) fn close_bill(&mut self, now: Nanos) {
        self.bill = Bill {
            since: now,
            ..Bill::default()
        };
    }

    /// Nothing is owed for the time before: where several processes are at work at the same time, what they say adds up to
    /// more than there was.
    pub(super) fn bill_from(&mut self, time: Nanos) {
        self.bill.since = self.bill.since.max(time);
    }

    pub(super) fn note_used(&mut self, time: Nanos) {
        self.bill.used = self.bill.used.saturating_add(time);
    }

    /// Notes how long other jobs could not have the GPU. A negative time takes back what was noted, as they had it after all.
    pub(super) fn note_blocked(&mut self, time: Nanos) {
        self.bill.blocked += time;
    }

    /// Lets the time from `from` to `now` pass: the share of it comes in, what is owed goes out.
    ///
    /// Owed is what the processes say, but no less than the time for which the job kept others waiting, which the
    /// arbiter knows by itself, and no more than the time that passed.
    pub(super) fn settle(&mut self, from: Nanos, now: Nanos, bounds: Bounds) {
        let owed = self.bill.used.max(self.bill.blocked);
        let owed = owed.min(now - self.bill.since);
        let due = (owed - self.bill.paid).max(0);
        self.bill.paid += due;
        self.charged += due;
        if due > 0 {
            // The credit was not full while this was used.
            self.credit += due.min(self.forgone);
            self.forgone = 0;
        }
        let least = if bounds.is_borrowed { 0 } else { -DEEPEST_DEBT };
        let (least, most) = (least.min(self.credit), bounds.most.max(self.credit));
        let credit = self.credit + self.part_of(now - from) - due;
        self.credit = credit.clamp(least, most);
        self.forgone += (credit - most).max(0);
    }

    /// The job's share of a stretch of time.
    pub(super) fn part_of(&self, time: Nanos) -> Nanos {
        let part = self.share.part_of(u64::try_from(time).unwrap_or(0));
        Nanos::try_from(part).unwrap_or(Nanos::MAX)
    }

    /// How long it takes until this credit has come in.
    pub(super) fn time_for(&self, credit: Nanos) -> Nanos {
        let (shards, per_gpu) = (self.share.shards(), self.share.per_gpu());
        // Rounded up, so that then it is there.
        let time = -(-i128::from(credit) * i128::from(per_gpu)).div_euclid(shards.into());
        Nanos::try_from(time).unwrap_or(Nanos::MAX)
    }

    /// How far behind its share the job is, as time. The job that is furthest behind comes first.
    pub(super) fn lag(&self) -> Nanos {
        self.time_for(self.credit)
    }

    /// Whether the job's share is a cap that it can meet.
    pub(super) fn is_capped(&self) -> bool {
        self.mode == Mode::Hard && self.share.shards() < self.share.per_gpu()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;
    const FREE: Bounds = Bounds {
        most: 10 * MS,
        is_borrowed: false,
    };

    fn quarter(mode: Mode) -> Account {
        Account::new(0, Share::new(1, 4).unwrap(), mode, 0)
    }

    #[test]
    fn credit_grows_by_the_share_up_to_a_bound() {
        let mut account = quarter(Mode::Hard);
        account.settle(0, 20 * MS, FREE);
        assert_eq!(account.credit, 5 * MS);
        account.settle(20 * MS, 200 * MS, FREE);
        assert_eq!(account.credit, 10 * MS);
    }

    #[test]
    fn what_is_above_the_bound_stays_when_the_bound_falls() {
        let mut account = quarter(Mode::Hard);
        account.credit = 30 * MS;
        account.settle(0, 20 * MS, FREE);
        assert_eq!(account.credit, 30 * MS);
    }

    #[test]
    fn a_job_pays_what_it_says_but_at_least_what_it_blocked_and_at_most_the_time() {
        for (used, blocked, paid) in [(3, 0, 3), (3, 5, 5), (9, 5, 9), (99, 5, 20)] {
            let mut account = quarter(Mode::Hard);
            account.note_used(used * MS);
            account.note_blocked(blocked * MS);
            account.settle(0, 20 * MS, FREE);
            assert_eq!(account.charged, paid * MS);
            assert_eq!(account.credit, (5 - paid) * MS);
        }
    }

    #[test]
    fn what_is_told_late_is_paid_late() {
        let mut account = quarter(Mode::Hard);
        account.note_blocked(5 * MS);
        account.settle(0, 5 * MS, FREE);
        account.note_used(100 * MS);
        account.settle(5 * MS, 100 * MS, FREE);
        assert_eq!(account.charged, 100 * MS);
    }

    #[test]
    fn a_kernel_that_spans_two_bills_is_paid_whole() {
        let mut account = quarter(Mode::Hard);
        account.settle(0, 100 * MS, FREE);
        account.begin_bill();
        account.note_used(200 * MS);
        account.settle(100 * MS, 200 * MS, FREE);
        assert_eq!(account.charged, 200 * MS);
    }

    #[test]
    fn a_credit_is_not_full_while_a_kernel_runs_that_is_told_of_later() {
        let mut account = quarter(Mode::Hard);
        account.settle(0, 60 * MS, FREE);
        account.settle(60 * MS, 80 * MS, FREE);
        account.note_used(80 * MS);
        account.settle(80 * MS, 100 * MS, FREE);
        assert_eq!(account.credit, (25 - 80) * MS);
        // But time that no job used is gone.
        account.note_used(MS);
        account.settle(100 * MS, 104 * MS, FREE);
        assert_eq!(account.credit, (25 - 80) * MS);
    }

    #[test]
    fn what_was_paid_before_does_not_pay_for_blocking() {
        let mut account = quarter(Mode::Hard);
        account.note_used(50 * MS);
        account.settle(0, 100 * MS, FREE);
        account.begin_bill();
        account.note_blocked(10 * MS);
        account.settle(100 * MS, 110 * MS, FREE);
        assert_eq!(account.charged, 60 * MS);
    }

    #[test]
    fn a_debt_has_a_bottom_and_borrowed_time_makes_none() {
        let mut account = quarter(Mode::Soft);
        account.note_used(Nanos::MAX);
        let borrowed = Bounds {
            is_borrowed: true,
            ..FREE
        };
        account.settle(0, 3_600_000 * MS, borrowed);
        assert_eq!(account.credit, 0);
        account.settle(3_600_000 * MS, 7_200_000 * MS, FREE);
        assert_eq!(account.credit, -10_000 * MS);
    }

    #[test]
    fn after_the_time_for_a_credit_it_is_there() {
        let account = Account::new(0, Share::new(3, 7).unwrap(), Mode::Hard, 0);
        for credit in [1, 2, 3, 1_000_001] {
            assert!(account.part_of(account.time_for(credit)) >= credit);
        }
    }
}
