//! The job that comes next.

use softmig_policy::node::limits::Mode;

use super::state::Turns;
use super::tenant::Tenant;
use super::types::{Job, Nanos};

impl Turns {
    /// The time since which another job could have had the turn, from the last look on.
    pub(super) fn others_waited_since(&self, holder: Job, from: Nanos) -> Option<Nanos> {
        let waited = self.others(holder).filter_map(|it| self.ready_at(it, from));
        waited.min()
    }

    /// All jobs but this one.
    pub(super) fn others(&self, job: Job) -> impl Iterator<Item = &Tenant> {
        let others = self.tenants.iter().filter(move |&(&other, _)| other != job);
        others.map(|(_, tenant)| tenant)
    }

    /// When a job that wishes can have a turn, `from` on.
    pub(super) fn ready_at(&self, tenant: &Tenant, from: Nanos) -> Option<Nanos> {
        tenant.wishes_since?;
        let missing = self.missing(tenant);
        let here = if missing <= 0 || tenant.account.mode == Mode::Soft {
            from
        } else {
            from.saturating_add(tenant.account.time_for(missing))
        };
        // It does not wait as long as it could not begin elsewhere.
        Some(
            tenant
                .elsewhere
                .map_or(here, |there| here.max(there.from())),
        )
    }

    /// Time that is lost between turns makes the credit of all who wait grow alike, until bounds hide who is behind.
    pub(super) fn forgive_what_no_job_could_have(&mut self) {
        let epoch = self.epoch();
        let mut waiting: Vec<&mut Tenant> = (self.tenants.values_mut())
            .filter(|it| it.wishes_since.is_some())
            .collect();
        let least = waiting.iter().map(|it| it.account.lag()).min();
        let surplus = least.map_or(0, |least| least - 2 * epoch);
        if surplus <= 0 || waiting.len() < 2 {
            return;
        }
        for tenant in &mut waiting {
            tenant.account.credit -= tenant.account.part_of(surplus);
            tenant.lag_before = tenant.lag_before.map(|lag| lag - surplus);
        }
    }

    /// By how much the job's turn is longer, or shorter, than others': a job that is behind those that wait with it
    /// catches up slowly, in each turn, so that the order can stay.
    pub(super) fn correction(&self, job: Job) -> Nanos {
        let Some(own) = self.tenants.get(&job).map(|it| &it.account) else {
            return 0;
        };
        let epoch = self.epoch();
        let waiting = self.others(job).filter(|it| it.wishes_since.is_some());
        // The lag of each when it got its turn, since a job falls back during its turn.
        let peaks: Vec<Nanos> = waiting.filter_map(|it| it.lag_before).collect();
        let behind = peaks
            .iter()
            .map(|peak| (own.lag() - peak).clamp(-epoch, epoch));
        let behind: Nanos = behind.sum();
        let count = Nanos::try_from(peaks.len()).unwrap_or(0).max(1);
        let most = self.turn_length(own.share) / 4;
        let time = own.part_of((behind / count).abs()) / 2;
        (time * behind.signum()).clamp(-most, most)
    }

    /// The job that is to have the turn now.
    pub(super) fn comes_next(&mut self, now: Nanos) -> Option<Job> {
        if let Some(job) = self.first_of_gangs(now) {
            let begins = self.may_begin(job, now);
            if begins || self.is_kept_free(now) {
                return begins.then_some(job);
            }
        }
        let is_alone = |it: &Tenant| it.elsewhere.is_none();
        self.first_in_line(is_alone)
            .or_else(|| {
                self.deal_out_idle_time();
                self.first_in_line(is_alone)
            })
            // No other job wants the time.
            .or_else(|| self.first_in_line(|it| it.account.mode == Mode::Soft))
    }

    /// The job that has credit for a turn and had its last one longest ago, unless another is further behind its share, by
    /// half an epoch: so the order stays, and each has its turns at even distances.
    fn first_in_line(&self, which: impl Fn(&Tenant) -> bool) -> Option<Job> {
        let ready = || {
            let wish = (self.tenants.iter()).filter(|(_, it)| it.wishes_since.is_some());
            wish.filter(|(_, it)| self.missing(it) <= 0 && which(it))
        };
        let furthest = ready().map(|(_, it)| it.account.lag()).max()?;
        let near = furthest - self.epoch() / 2;
        let first = ready()
            .filter(|(_, it)| it.account.lag() >= near)
            .min_by_key(|(_, it)| it.served);
        first.map(|(&job, _)| job)
    }

    /// Gives idle time to the jobs that may borrow, by their shares. No job that wants a turn has the credit, so the
    /// time would be lost.
    pub(super) fn deal_out_idle_time(&mut self) {
        let missing = |tenant: &Tenant| self.missing(tenant);
        let may_borrow = |tenant: &Tenant| {
            let is_soft = tenant.account.mode == Mode::Soft;
            tenant.wishes_since.is_some() && is_soft && missing(tenant) > 0
        };
        let time_of = |tenant: &Tenant| tenant.account.time_for(missing(tenant));
        let borrowers = || self.tenants.values().filter(|tenant| may_borrow(tenant));
        // A job that could not begin elsewhere does not want it as much.
        let alone = borrowers().filter(|it| it.elsewhere.is_none());
        let Some(time) = (alone.map(time_of).min()).or_else(|| borrowers().map(time_of).min())
        else {
            return;
        };
        let borrowers = self.tenants.iter().filter(|(_, it)| may_borrow(it));
        let borrowers: Vec<Job> = borrowers.map(|(&job, _)| job).collect();
        for job in borrowers {
            if let Some(tenant) = self.tenants.get_mut(&job) {
                tenant.account.credit += tenant.account.part_of(time);
            }
        }
    }
}
