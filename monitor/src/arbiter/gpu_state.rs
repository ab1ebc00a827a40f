//! The processes that have seats at a GPU, and the steering of their channels.
//!
//! While the GPU can be steered, all jobs are. A process that cannot be steered changes nothing for other jobs: its job is charged
//! by the GPU's log, and the job's other processes are held for it. While the GPU cannot be steered, each process keeps its job's cap
//! itself, and its job is charged for the work that it tells of.

mod steer;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::authorizer::Admission;
use super::clock::now;
use super::leftovers::Leftovers;
use super::named::Named;
use super::other_gpus::OtherGpus;
use super::scheduler::Scheduler;
use super::session::Session;
use super::settings::Standing;
use super::steering::{Steering, Unseated};
use super::tenancy::Tenancy;
use crate::packs::PackMember;
use crate::schedule::{Book, Job, Nanos, SeatId};

/// How often processes that want the GPU are told that the arbiter is there. Where there is no heartbeat for twice as long, they
/// see whether it listens.
const HEARTBEAT: Nanos = 25_000_000;
/// The interval at which all seats are polled while some have no listening thread, plus this much for each seat. To poll
/// all of them, and to tell all of them what follows, takes a small part of that.
const POLL_EVERY: Nanos = 1_000_000;
const POLL_EVERY_PER_SEAT: Nanos = 20_000;
/// A GPU that no process has used for so long is let go.
const UNUSED: Nanos = 300_000_000_000;
/// The least time for which a GPU is not steered after it could not be.
const PAUSE: Nanos = 500_000_000;

/// The processes that have seats at a GPU.
#[derive(Debug)]
pub(super) struct GpuState {
    /// Since when anything is counted here.
    since: Nanos,
    scheduler: Scheduler,
    steering: Steering,
    tenancy: Tenancy,
    leftovers: Leftovers<PackMember>,
    /// Decides with the other GPUs about jobs that use several.
    others: OtherGpus,
    /// Whether the jobs are steered.
    pub(super) is_steered: bool,
    /// They are not steered before.
    steered_from: Nanos,
    /// When a process was here last.
    used: Nanos,
    sessions: BTreeMap<SeatId, Arc<Session>>,
    /// Processes of jobs with slices that have no seat, as they were seen last.
    unseated: BTreeMap<u32, Unseated>,
    pub(super) named: Named,
    /// Jobs with more channels than can be held.
    crowded: BTreeSet<Job>,
    book: Book,
    /// When to look again.
    pub(super) next: Option<Nanos>,
    /// The time when all are polled and get a heartbeat, if that does not happen earlier.
    heartbeat: Option<Nanos>,
    /// The time until which there are seats without a listening thread.
    unattended_until: Nanos,
    /// No interruption is told before.
    interruptions_told: Nanos,
    pub(super) is_over: bool,
}

/// What has happened to a process.
#[derive(Debug)]
pub(super) enum Change {
    Came(SeatId, Arc<Session>, Admission),
    Ended(SeatId),
    /// It has given up its seat.
    Left(SeatId),
    /// One with an old library has come, and gets a seat once jobs are steered.
    Asked,
}

impl GpuState {
    pub(super) fn new(scheduler: Scheduler, others: OtherGpus) -> Self {
        Self {
            since: now(),
            scheduler,
            steering: Steering::new(now()),
            tenancy: Tenancy::default(),
            leftovers: Leftovers::new(),
            others,
            is_steered: false,
            steered_from: 0,
            used: now(),
            sessions: BTreeMap::new(),
            unseated: BTreeMap::new(),
            named: Named::default(),
            crowded: BTreeSet::new(),
            book: Book::default(),
            next: None,
            heartbeat: None,
            unattended_until: 0,
            interruptions_told: 0,
            is_over: false,
        }
    }

    /// Takes in what has happened, and what follows of it is done at the next look.
    pub(super) fn change(&mut self, change: Change) {
        match change {
            Change::Came(seat, session, admission) => self.add(seat, session, &admission),
            Change::Ended(seat) => self.note_end(seat),
            Change::Left(seat) => self.remove(seat),
            Change::Asked => self.begin_to_steer(now()),
        }
        self.next = Some(now());
    }

    /// Adds a process. One with an old library has no seat where it is not steered: it would keep no cap there.
    fn add(&mut self, seat: SeatId, session: Arc<Session>, admission: &Admission) {
        if self.is_over || session.is_old && !self.is_steered() {
            return session.close();
        }
        let &Admission { share, mode, .. } = admission;
        let (tenant, share, mode) = match admission.pack {
            Some(pack) => self.tenancy.join(pack, seat.job, (share, mode)),
            None => (seat.job, share, mode),
        };
        self.steering.add(tenant, share, mode);
        self.sessions.insert(seat, session);
    }

    /// Removes a process that has ended. Its pack's supervisor has disabled its channels, and they are not to run again.
    pub(super) fn note_end(&mut self, seat: SeatId) {
        let session = self.sessions.get(&seat);
        if let Some(session) = session.filter(|_| self.tenancy.is_packed(seat.job)) {
            self.scheduler.retire(&session.known());
            if let Some(member) = session.pack().cloned() {
                let tenant = self.tenancy.tenant(seat.job);
                let process = (session.pid, session.may_have_work());
                self.leftovers.add(now(), process, tenant, member);
            }
        }
        self.remove(seat);
    }

    /// Removes a process that has no seat any more.
    pub(super) fn remove(&mut self, seat: SeatId) {
        let Some(session) = self.sessions.remove(&seat) else {
            return;
        };
        session.close();
        if self.of_job(seat.job).next().is_none() {
            match self.tenancy.leave(seat.job) {
                (tenant, Some((share, mode))) => self.steering.add(tenant, share, mode),
                (tenant, None) => self.steering.remove(tenant),
            }
            self.leftovers.retain(|job| self.tenancy.is_packed(job));
        }
        self.hold();
    }

    /// Whether this GPU is to be steered.
    pub(super) fn set_standing(&mut self, standing: &Standing) {
        if let Ok(proved) = standing {
            self.steering.default_slice = proved.slice_us;
        }
        if self.scheduler.set_standing(standing) {
            self.steered_from = 0;
        }
    }

    /// These have no seat: their jobs pay for what they use.
    pub(super) fn set_unseated(&mut self, unseated: BTreeMap<u32, Unseated>) {
        self.unseated = unseated;
        self.named.clear();
    }

    /// The arbiter ends.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.is_steered = false;
        self.others.leave(now());
        self.scheduler.end();
        for session in std::mem::take(&mut self.sessions).into_values() {
            session.close();
        }
    }

    /// Forgets what jobs had that are over.
    pub(super) fn forget(&mut self, is_over: impl Fn(Job) -> bool) {
        let sessions = &self.sessions;
        let is_here = |job| sessions.keys().any(|seat| seat.job == job);
        // `is_over` may not know a job yet that has just come.
        self.book.forget(|job| is_over(job) && !is_here(job));
    }

    /// The processes of a tenant, with their seats.
    fn of_tenant(&self, tenant: Job) -> impl Iterator<Item = (&SeatId, &Arc<Session>)> {
        let all = self.sessions.iter();
        all.filter(move |(seat, _)| self.tenancy.tenant(seat.job) == tenant)
    }

    /// The processes of a job.
    fn of_job(&self, job: Job) -> impl Iterator<Item = &Arc<Session>> {
        let sessions = self.sessions.iter();
        let own = sessions.filter(move |(seat, _)| seat.job == job);
        own.map(|(_, session)| session)
    }

    /// Polls the seat whose process woke its thread, or all seats, and does what follows. Tells when to look again, if it is
    /// known.
    pub(super) fn look(&mut self, woken: Option<SeatId>) -> Option<Nanos> {
        let now = now();
        match woken {
            Some(seat) => self.poll(now, seat),
            None => self.poll_all(now),
        }
        if self.sessions.values().any(|it| it.page.wants_gpu()) {
            self.begin_to_steer(now);
        }
        if self.is_steered {
            self.steer(now);
        } else {
            self.count(now);
        }
        let leftovers = self.leftovers.is_any().then(|| now + HEARTBEAT);
        let due = [self.steering.next, self.heartbeat, leftovers];
        self.next = due.into_iter().flatten().min();
        self.next
    }

    /// The same at once, since a job's phase began or ended at another GPU.
    pub(super) fn look_now(&mut self) -> Option<Nanos> {
        self.steering.next = None;
        self.look(None)
    }

    /// Notes that no thread listens at some seats until then.
    pub(super) fn poll_soon(&mut self, until: Nanos) {
        self.unattended_until = self.unattended_until.max(until);
        let soon = self.soon(now());
        self.heartbeat = self.heartbeat.into_iter().chain([soon]).min();
        self.next = self.next.into_iter().chain([soon]).min();
    }

    /// The time to poll the seats without a listening thread.
    fn soon(&self, now: Nanos) -> Nanos {
        let seats = Nanos::try_from(self.sessions.len()).unwrap_or(Nanos::MAX);
        now + POLL_EVERY
            .saturating_add(POLL_EVERY_PER_SEAT.saturating_mul(seats))
            .min(HEARTBEAT)
    }

    fn poll_all(&mut self, now: Nanos) {
        self.heartbeat = (now < self.unattended_until).then(|| self.soon(now));
        let seats: Vec<SeatId> = self.sessions.keys().copied().collect();
        for seat in seats {
            self.poll(now, seat);
        }
    }

    /// Polls a seat, and tells it that the arbiter is there.
    fn poll(&mut self, now: Nanos, seat: SeatId) {
        let Some(session) = self.sessions.get(&seat) else {
            return;
        };
        if session.page.wants_gpu() {
            self.heartbeat = self.heartbeat.or(Some(now + HEARTBEAT));
        }
        session.page.heartbeat(now);
    }

    #[cfg(test)]
    pub(super) fn session(&self, seat: SeatId) -> &Session {
        &self.sessions[&seat]
    }

    #[cfg(test)]
    pub(super) fn has_leftovers(&self) -> bool {
        self.leftovers.is_any()
    }

    #[cfg(test)]
    pub(super) fn steering(&self) -> &Steering {
        &self.steering
    }
}
