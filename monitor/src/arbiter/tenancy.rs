//! The tenants of a GPU's scheduler: each job by itself, and the jobs of a pack together.
//!
//! A pack's clients run at the same time, and the GPU's log names one of them for all. So a pack is charged, held and given slices as
//! one job with the sum of its jobs' shares. Its time is divided among its jobs by the time for which each had work. A process of
//! such a job that is no client of the server belongs to the pack as well: no job has its share twice.
//!
//! In a pack of several users, a job that always has work has turns ([`Turns`]). Its programs are told of them: a client's channels
//! are not held for others of its pack, since where only one may run, often none does (research/packs.md).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use softmig_policy::node::limits::{Ceiling, Mode, Share};
use softmig_region::seat::Pacing;

use crate::packs::PackId;
use crate::schedule::turns::{LOOK, Seen, Turns};
use crate::schedule::{Book, Job, Nanos, Totals};

/// The packs of a GPU.
#[derive(Debug, Default)]
pub(super) struct Tenancy {
    packs: BTreeMap<PackId, Pack>,
}

/// The jobs of a pack that have processes.
#[derive(Debug)]
struct Pack {
    /// The job by whose number the scheduler knows the pack: the first one that came. It may have left.
    tenant: Job,
    jobs: BTreeMap<Job, Member>,
    /// For how long those that have left had work since the book was divided.
    departed: BTreeMap<Job, Nanos>,
    /// Of several users' jobs.
    turns: Option<Turns>,
}

#[derive(Debug)]
struct Member {
    share: Share,
    mode: Mode,
    /// For how long it had work, and was not held for others of its pack, since the book was divided.
    worked: Nanos,
    /// For how long it had work since the last look.
    newly_worked: Nanos,
    wants_gpu: bool,
}

impl Tenancy {
    /// A job of a pack has come, or another process of it. Returns its tenant, with share and mode.
    pub(super) fn join(
        &mut self,
        id: PackId,
        job: Job,
        (share, mode): (Share, Mode),
    ) -> (Job, Share, Mode) {
        let pack = self.packs.entry(id).or_insert_with(|| Pack {
            tenant: job,
            jobs: BTreeMap::new(),
            departed: BTreeMap::new(),
            turns: id.is_shared().then(Turns::default),
        });
        let member = pack.jobs.entry(job).or_insert(Member {
            share,
            mode,
            worked: 0,
            newly_worked: 0,
            wants_gpu: false,
        });
        (member.share, member.mode) = (share, mode);
        let (share, mode) = pack.sum().unwrap_or((share, mode));
        (pack.tenant, share, mode)
    }

    /// The job's last process has gone. Returns its tenant, with share and mode if others are left.
    pub(super) fn leave(&mut self, job: Job) -> (Job, Option<(Share, Mode)>) {
        let mut packs = self.packs.iter_mut();
        let Some((&id, pack)) = packs.find(|(_, it)| it.jobs.contains_key(&job)) else {
            return (job, None);
        };
        if let Some(member) = pack.jobs.remove(&job) {
            let worked = pack.departed.entry(job).or_default();
            *worked = worked.saturating_add(member.worked);
        }
        let left = (pack.tenant, pack.sum());
        if pack.jobs.is_empty() {
            self.packs.remove(&id);
        }
        left
    }

    fn pack(&self, job: Job) -> Option<&Pack> {
        let mut packs = self.packs.values();
        packs.find(|it| it.tenant == job || it.jobs.contains_key(&job))
    }

    /// The tenant of a job, or of a tenant.
    pub(super) fn tenant(&self, job: Job) -> Job {
        self.pack(job).map_or(job, |it| it.tenant)
    }

    /// The tenant of a job's process without a seat.
    pub(super) fn tenant_of_unseated(&self, pack: Option<PackId>, job: Job) -> Job {
        let pack = pack.and_then(|pack| self.packs.get(&pack));
        pack.map_or_else(|| self.tenant(job), |it| it.tenant)
    }

    /// Whether a job is in a pack.
    pub(super) fn is_packed(&self, job: Job) -> bool {
        self.pack(job).is_some()
    }

    /// Whether a tenant is a pack of several users.
    pub(super) fn is_shared(&self, tenant: Job) -> bool {
        self.pack(tenant).is_some_and(|it| it.turns.is_some())
    }

    /// A job's process had work for this time, and wants the GPU now or does not.
    pub(super) fn note_work(&mut self, job: Job, time: Nanos, wants_gpu: bool) {
        let waits = self.waits(job);
        let mut packs = self.packs.values_mut();
        if let Some(member) = packs.find_map(|it| it.jobs.get_mut(&job)) {
            let time = time.max(0);
            member.newly_worked = member.newly_worked.saturating_add(time);
            member.wants_gpu |= wants_gpu;
            if !waits {
                member.worked = member.worked.saturating_add(time);
            }
        }
    }

    /// Decides who has turns, by the time that each tenant could have the GPU since the last look. Returns the time until the next look.
    pub(super) fn look(&mut self, time: impl Fn(Job) -> Nanos) -> Option<Nanos> {
        let mut has_turns = false;
        for pack in self.packs.values_mut() {
            let seen = pack.jobs.iter_mut().map(|(&job, member)| {
                let seen = Seen {
                    shards: member.share.shards(),
                    worked: std::mem::take(&mut member.newly_worked),
                    wants_gpu: std::mem::take(&mut member.wants_gpu),
                };
                (job, seen)
            });
            let seen: BTreeMap<Job, Seen> = seen.collect();
            if let Some(turns) = &mut pack.turns {
                turns.look(time(pack.tenant), &seen);
                has_turns |= turns.are_any();
            }
        }
        has_turns.then_some(LOOK)
    }

    /// Nobody has a turn any more.
    pub(super) fn end_turns(&mut self) {
        let turns = self.packs.values_mut().filter_map(|it| it.turns.as_mut());
        turns.for_each(|turns| *turns = Turns::default());
    }

    /// Whether a job waits for another's turn.
    pub(super) fn waits(&self, job: Job) -> bool {
        self.pacing(job) == Pacing::Waits
    }

    /// How the processes of a job launch, where they are steered.
    pub(super) fn pacing(&self, job: Job) -> Pacing {
        let mut packs = self.packs.values();
        let pack = packs.find(|it| it.jobs.contains_key(&job));
        match pack.and_then(|it| it.turns.as_ref()) {
            Some(turns) if turns.waits(job) => Pacing::Waits,
            Some(turns) if turns.are_any() => Pacing::Turn,
            _ => Pacing::Free,
        }
    }

    /// Divides what tenants had among their jobs.
    pub(super) fn divide(&mut self, book: &Book) -> Book {
        let mut divided = book.clone();
        for pack in self.packs.values_mut() {
            let had = divided.take(pack.tenant);
            for (job, part) in pack.divide(had) {
                divided.put(job, part);
            }
        }
        divided
    }
}

impl Pack {
    /// The jobs' shares together, and the most that they get together.
    fn sum(&self) -> Option<(Share, Mode)> {
        let first = self.jobs.values().next()?;
        // A job may be from before the administrator divided the GPU otherwise.
        let per_gpu = first.share.per_gpu();
        let shards = |share: Share| match share.per_gpu() == per_gpu {
            true => share.shards(),
            false => share.shards() * per_gpu / share.per_gpu(),
        };
        let sum: u32 = self.jobs.values().map(|it| shards(it.share)).sum();
        let share = Share::new(sum.clamp(1, per_gpu), per_gpu).ok()?;
        let tenths = |it: &Member| it.mode.ceiling_of(it.share).percent_tenths();
        let most = self.jobs.values().map(tenths).sum::<u32>() / 10;
        let ceiling = match u8::try_from(most) {
            _ if self
                .jobs
                .values()
                .all(|it| it.mode.ceiling == Ceiling::Share) =>
            {
                Ceiling::Share
            }
            Ok(most @ 1..100) => Ceiling::Percent(most),
            _ => Ceiling::Gpu,
        };
        let bursts = self.jobs.values().map(|it| it.mode.burst_ms);
        let burst_ms = bursts.sum::<u32>().min(Mode::MOST_BURST_MS);
        Some((share, Mode { ceiling, burst_ms }))
    }

    /// What each job had of this, by the time for which it had work; the first one, if none had any.
    fn divide(&mut self, had: Totals) -> Vec<(Job, Totals)> {
        let mut worked = std::mem::take(&mut self.departed);
        for (&job, member) in &mut self.jobs {
            let time = worked.entry(job).or_default();
            *time = time.saturating_add(std::mem::take(&mut member.worked));
        }
        // A process can tell of any time.
        let all: i128 = worked.values().copied().map(i128::from).sum();
        let mut left = had;
        let mut parts: Vec<(Job, Totals)> = Vec::new();
        for (job, worked) in worked {
            let part = |time: Nanos| {
                let part = i128::from(time) * i128::from(worked) / all.max(1);
                Nanos::try_from(part).unwrap_or(0)
            };
            let part = Totals {
                charged: part(had.charged),
                waited: part(had.waited),
                interruptions: 0,
            };
            left.charged -= part.charged;
            left.waited -= part.waited;
            parts.push((job, part));
        }
        // What rounding leaves goes to the first of those with the largest part.
        let largest = parts.iter_mut().min_by_key(|(_, it)| Reverse(it.charged));
        if let Some((_, largest)) = largest {
            largest.charged += left.charged;
            largest.waited += left.waited;
            largest.interruptions += left.interruptions;
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const PACK: PackId = PackId::User(2001);
    const OTHER: PackId = PackId::User(2002);

    fn quarter() -> (Share, Mode) {
        (Share::new(1, 4).unwrap(), Mode::HARD)
    }

    fn share(shards: u32) -> Share {
        Share::new(shards, 4).unwrap()
    }

    #[test]
    fn a_pack_has_the_shares_of_its_jobs_with_processes() {
        let mut tenancy = Tenancy::default();
        assert_eq!(tenancy.join(PACK, Job(7), quarter()).0, Job(7));
        let (tenant, sum, mode) = tenancy.join(PACK, Job(9), quarter());
        assert_eq!(
            (tenant, sum, mode.ceiling),
            (Job(7), share(2), Ceiling::Share)
        );
        assert_eq!(mode.burst_ms, 2 * Mode::BURST_MS);
        assert_eq!(tenancy.join(OTHER, Job(8), quarter()).0, Job(8));
        // Another process of a job changes nothing.
        assert_eq!(tenancy.join(PACK, Job(9), quarter()).1, share(2));
        assert_eq!(tenancy.tenant(Job(9)), Job(7));
        assert_eq!(tenancy.tenant(Job(5)), Job(5));
        assert!(!tenancy.is_packed(Job(5)));
        // Of a job that has no seat yet, too.
        assert_eq!(tenancy.tenant_of_unseated(Some(PACK), Job(11)), Job(7));
        assert_eq!(tenancy.tenant_of_unseated(None, Job(11)), Job(11));
        // The one that names the pack leaves first.
        let (tenant, left) = tenancy.leave(Job(7));
        assert_eq!((tenant, left.unwrap().0), (Job(7), share(1)));
        assert_eq!(tenancy.tenant(Job(9)), Job(7));
        assert_eq!(tenancy.leave(Job(9)), (Job(7), None));
        assert_eq!(tenancy.leave(Job(5)), (Job(5), None));
        assert!(!tenancy.is_packed(Job(7)) && tenancy.is_packed(Job(8)));
    }

    #[test]
    fn ceilings_add_up() {
        let ceiling = |modes: &[&str]| {
            let mut tenancy = Tenancy::default();
            let modes = modes.iter().map(|text| Mode::parse(text).unwrap());
            let joined = (1..).zip(modes).map(|(job, mode)| {
                let (_, _, mode) = tenancy.join(PACK, Job(job), (share(1), mode));
                mode.ceiling
            });
            joined.last().unwrap()
        };
        assert_eq!(ceiling(&["hard", "hard"]), Ceiling::Share);
        assert_eq!(ceiling(&["30%", "hard"]), Ceiling::Percent(55));
        assert_eq!(ceiling(&["50%", "50%"]), Ceiling::Gpu);
        assert_eq!(ceiling(&["soft", "hard"]), Ceiling::Gpu);
    }

    proptest! {
        #[test]
        fn what_a_pack_had_is_what_its_jobs_had(
            worked in vec((1u32..6, 0i64..1 << 50), 0..20),
            jobs in 1u32..6,
            charged in 0i64..1 << 50,
            waited in 0i64..1 << 50,
        ) {
            let mut tenancy = Tenancy::default();
            for job in 1..=jobs {
                tenancy.join(PACK, Job(job), quarter());
            }
            for &(job, time) in &worked {
                tenancy.note_work(Job(job), time, false);
            }
            let mut book = Book::default();
            book.charge(Job(1), charged);
            book.wait(Job(1), waited);
            book.charge(Job(77), 5);
            let divided = tenancy.divide(&book);
            prop_assert_eq!(divided.charged, book.charged);
            let of_pack = || divided.jobs().filter(|(job, _)| job.0 <= 5);
            prop_assert_eq!(of_pack().map(|(_, it)| it.charged).sum::<Nanos>(), charged);
            prop_assert_eq!(of_pack().map(|(_, it)| it.waited).sum::<Nanos>(), waited);
            prop_assert!(of_pack().all(|(job, it)| job.0 <= jobs && it.charged >= 0 && it.waited >= 0));
            prop_assert!(divided.jobs().any(|(job, it)| job == Job(77) && it.charged == 5));
            // Who had no work had no time, if another had some.
            let had_work = |job: Job| worked.iter().any(|&(it, time)| it == job.0 && time > 0);
            let is_any = (1..=jobs).any(|job| had_work(Job(job)));
            prop_assert!(!is_any || of_pack().all(|(job, it)| had_work(job) || it.charged == 0));
        }
    }

    #[test]
    fn jobs_of_several_users_have_turns_and_those_of_one_have_none() {
        const MS: Nanos = 1_000_000;
        for (id, is_shared) in [(PACK, false), (PackId::Account(7), true)] {
            let mut tenancy = Tenancy::default();
            for job in [1, 2] {
                tenancy.join(id, Job(job), quarter());
            }
            let mut alone = [0, 0];
            for _ in 0..1000 {
                for job in [1, 2] {
                    tenancy.note_work(Job(job), 4 * MS, true);
                }
                let next = tenancy.look(|tenant| {
                    assert_eq!(tenant, Job(1));
                    4 * MS
                });
                let waits = [2, 1].map(|job| tenancy.waits(Job(job)));
                assert!(next.is_some() || waits == [false; 2]);
                alone = [0, 1].map(|at| alone[at] + u32::from(waits[at]));
            }
            let has_half = |looks: u32| (450..=500).contains(&looks);
            assert_eq!(alone.map(has_half), [is_shared; 2], "{alone:?}");
            // Whose turn it is may leave.
            tenancy.leave(Job(1));
            tenancy.look(|_| 4 * MS);
            assert!(!tenancy.waits(Job(2)));
        }
    }

    #[test]
    fn who_leaves_pays_for_its_work_and_no_page_makes_others_pay() {
        let mut tenancy = Tenancy::default();
        for job in [1, 2, 3] {
            tenancy.join(PACK, Job(job), quarter());
            tenancy.note_work(Job(job), if job == 2 { 0 } else { Nanos::MAX }, false);
        }
        tenancy.leave(Job(3));
        let mut book = Book::default();
        book.charge(Job(1), 100);
        let divided = tenancy.divide(&book);
        let had = divided.jobs().map(|(job, it)| (job.0, it.charged));
        let had: BTreeMap<u32, Nanos> = had.filter(|it| it.1 != 0).collect();
        assert_eq!(had, [(1, 50), (3, 50)].into());
    }

    #[test]
    fn a_jobs_part_is_by_its_work_since_the_last_time() {
        let mut tenancy = Tenancy::default();
        for job in [1, 2] {
            tenancy.join(PACK, Job(job), quarter());
        }
        let mut divide = |worked: [Nanos; 2]| {
            tenancy.note_work(Job(1), worked[0], true);
            tenancy.note_work(Job(2), worked[1], true);
            let mut book = Book::default();
            book.charge(Job(1), 100);
            let divided = tenancy.divide(&book);
            let of = |job| {
                divided
                    .jobs()
                    .find(|(it, _)| *it == Job(job))
                    .map_or(0, |(_, it)| it.charged)
            };
            [of(1), of(2)]
        };
        assert_eq!(divide([30, 10]), [75, 25]);
        assert_eq!(divide([0, 10]), [0, 100]);
        assert_eq!(divide([0, 0]), [100, 0]);
    }
}
