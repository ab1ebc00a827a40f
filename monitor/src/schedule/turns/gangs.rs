//! Jobs whose work on one GPU waits for their work on another: they have their turns on all of them together.
//!
//! A kernel that spins for one on another GPU is paid for. If the job had no turn there, the time for which it spun would make
//! this GPU wait next, and that one spin: each time longer. So each GPU tells in [`Gangs`] from when on a job could begin
//! there, and none begins before all can.
//!
//! - When that time has come others make way at once, and keep what they have not used. Where their work takes long to end
//!   they do so first. Of several such jobs the one comes first that could begin first, which is the same on each GPU; they
//!   do not make way for each other.
//! - The turns also end together, by the clock, when the GPU says that comes first of those where they have begun. Use beyond the credit is owed.
//! - A job that saved up nothing here, as it owes elsewhere, gets nothing back: others have had the time.
//!
//! No GPU wakes another. Each knows of the others what they told after their last looks, and looks when, by that, all
//! can begin. Charges make this time later. A GPU that comes too early finds that, since it reads the time anew at each
//! look. The time rarely becomes earlier: when processes leave or fewer jobs want the GPU. Then GPUs may begin apart
//! by as much as passes until the next look, which is never long while a job wants the GPU, as processes are told that
//! the arbiter is there. Only idle time that is dealt out to `soft` jobs makes it earlier often, so where one of these
//! waits it is looked for.

use softmig_policy::node::limits::Mode;

use super::stand::{AT_ONCE, Current, Gangs, Stand};
use super::state::Turns;
use super::tenant::Tenant;
use super::types::{Job, MS, Nanos};

/// The interval at which a GPU that waits for another looks whether that has become free.
const OFTEN: Nanos = MS / 2;
/// The least of that interval for each seat, so that it is longer with many seats.
const EACH: Nanos = MS / 50;

impl Turns {
    /// Reads the state of this GPU's jobs at other GPUs.
    pub fn note_elsewhere(&mut self, now: Nanos, gpu: usize, gangs: &Gangs) {
        for (&job, tenant) in &mut self.tenants {
            let is_together = tenant.is_together();
            tenant.elsewhere = (is_together.then(|| gangs.elsewhere(now, job, gpu))).flatten();
        }
    }

    /// Writes their state at this one, as of the last look.
    pub fn tell_others(&self, gpu: usize, gangs: &mut Gangs) {
        let together = self.tenants.iter().filter(|(_, it)| it.is_together());
        gangs.tell(gpu, together.map(|(&job, it)| (job, self.stand(job, it))));
    }

    /// When a job has, or has come to have, the credit for a turn.
    fn has_credit_at(&self, tenant: &Tenant) -> Nanos {
        let time = tenant.account.time_for(self.missing(tenant));
        self.settled.saturating_add(time)
    }

    fn stand(&self, job: Job, tenant: &Tenant) -> Stand {
        let now = self.settled;
        let mut others = self.tenants.iter().filter(|&(&other, _)| other != job);
        let is_wanted = others.any(|(_, other)| other.wishes_since.is_some());
        let mut from = self.has_credit_at(tenant);
        if tenant.account.mode == Mode::Soft && !is_wanted {
            from = from.min(now);
        }
        let nothing = Stand {
            from,
            wait: 0,
            tail: 0,
            free: Nanos::MIN,
            turn: None,
        };
        let Some(current) = &self.turn else {
            return nothing;
        };
        let until = current.limit.or(current.until);
        if current.job != job {
            let holder = self.tenants.get(&current.job);
            let drain = holder.map_or(0, |holder| holder.drain.min(self.epoch()));
            let until = until.filter(|_| current.met.is_some() && current.ended.is_none());
            let is_kept = tenant.wishes() && current.met.is_none();
            let (wait, tail) = match current.ended {
                _ if !is_kept => (0, 0),
                None => (drain, 0),
                // A job that takes far longer than before may take for ever.
                Some(ended) if now < ended.at + 2 * drain => (0, drain),
                Some(_) => (0, 0),
            };
            let free = until.unwrap_or(Nanos::MIN);
            return Stand {
                wait,
                tail,
                free,
                ..nothing
            };
        }
        if current.ended.is_some() {
            return nothing;
        }
        let length = self.turn_length(tenant.account.share);
        let turn = until.map(|until| {
            let rest = (until - now).max(0);
            let missing = self.missing(tenant) + rest - tenant.account.part_of(rest);
            Current {
                until,
                latest: until - length / 2,
                next: now + rest + tenant.account.time_for(missing.max(0)),
            }
        });
        Stand {
            from: current.met.unwrap_or(current.began),
            turn,
            ..nothing
        }
    }

    /// Since when a job could begin everywhere, if it could.
    pub(super) fn met(&self, job: Job, now: Nanos) -> Option<Nanos> {
        let tenant = self.tenants.get(&job)?;
        let there = tenant.elsewhere?;
        let met = self.has_credit_at(tenant).max(there.from);
        (met <= now && there.free <= now).then_some(met)
    }

    /// The job that is to begin everywhere: the same on each GPU.
    pub(super) fn first_of_gangs(&self, now: Nanos) -> Option<Job> {
        let wish = self
            .tenants
            .iter()
            .filter(|(_, it)| it.wishes_since.is_some());
        let met = wish.filter_map(|(&job, _)| Some((self.met(job, now)?, job)));
        met.min().map(|(_, job)| job)
    }

    /// Whether the holder is to make way for one that begins everywhere. Where that takes longest, it comes first.
    pub(super) fn makes_way(&self, now: Nanos) -> bool {
        let Some(turn) = self.turn.filter(|turn| turn.met.is_none()) else {
            return false;
        };
        let next = self.first_of_gangs(now).filter(|&job| job != turn.job);
        let there = next.and_then(|job| self.tenants.get(&job)?.elsewhere);
        let drain = self.tenants.get(&turn.job).map_or(0, |it| it.drain);
        there.is_some_and(|there| drain + AT_ONCE >= there.longest_wait())
    }

    /// True if a job that can begin everywhere is to begin here, where no job has the turn.
    pub(super) fn may_begin(&self, job: Job, now: Nanos) -> bool {
        let there = self.tenants.get(&job).and_then(|it| it.elsewhere);
        let Some(there) = there else { return true };
        let others_make_way = there.wait <= AT_ONCE && self.is_kept_free(now);
        others_make_way || there.longest_wait() <= AT_ONCE
    }

    /// Whether others have just made way here for one that begins everywhere.
    pub(super) fn is_kept_free(&self, now: Nanos) -> bool {
        now < self.free_at + 2 * AT_ONCE
    }

    /// When there may be something to do for those that begin everywhere.
    pub(super) fn next_of_gangs(&self, now: Nanos) -> Option<Nanos> {
        let holder = self.turn.map(|turn| turn.job);
        let wish = self
            .tenants
            .iter()
            .filter(|(_, it)| it.wishes_since.is_some());
        let waiting = wish.filter(|&(&job, _)| holder != Some(job));
        // All are heard each time.
        let seats: usize = self.tenants.values().map(|it| it.seats.len()).sum();
        let often = OFTEN.max(EACH * Nanos::try_from(seats).unwrap_or(0));
        let times = waiting.filter_map(|(_, tenant)| {
            let there = tenant.elsewhere?;
            let time = self.has_credit_at(tenant).max(there.from).max(there.free);
            let waits_elsewhere = self
                .turn
                .is_none_or(|it| it.met.is_none() && it.ended.is_none());
            if time > now {
                // Time that no job wants can make it earlier.
                let is_soft = tenant.account.mode == Mode::Soft;
                Some(time.min(if is_soft { now + 2 * often } else { time }))
            } else {
                waits_elsewhere.then_some(now + often)
            }
        });
        times.min()
    }
}
