//! The processes that have seats at a GPU, and the steering of their channels.
//!
//! While the GPU can be steered, all jobs are. A process that cannot be steered changes nothing for other jobs: its job is charged
//! by the GPU's log, and the job's other processes are held for it. While the GPU cannot be steered, each process keeps its job's cap
//! itself, and its job is charged for the work that it tells of.

use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

use softmig_region::seat::{MOST_CHANNELS, Pacing, Version};

use super::authorizer::Admission;
use super::borrower::Borrower;
use super::clock::now;
use super::leftovers::Leftovers;
use super::named::Named;
use super::other_gpus::OtherGpus;
use super::page::Page;
use super::rate_limit::RateLimit;
use super::scheduler::Scheduler;
use super::session::Session;
use super::settings::Standing;
use super::steering::{SeatState, Steering, Unseated};
use super::switch_log::Stays;
use super::tenancy::Tenancy;
use super::tenant::{Account, Member, NotSteered, Sharing, Tenant};
use crate::packs::PackMember;
use crate::schedule::gangs::Phase;
use crate::schedule::interruptions::Found;
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
    is_steered: bool,
    /// They are not steered before.
    steered_from: Nanos,
    /// When a process was here last.
    used: Nanos,
    sessions: BTreeMap<SeatId, Arc<Session>>,
    last_seat: u64,
    /// Processes of jobs with slices that have no seat, as they were seen last.
    unseated: BTreeMap<u32, Unseated>,
    pub(super) named: Named,
    /// Those of jobs that are not over.
    limits: BTreeMap<Job, Arc<RateLimit>>,
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

/// A process that comes.
pub(super) struct Newcomer {
    pub(super) pid: u32,
    /// Where the kernel knows such files.
    pub(super) process: Option<OwnedFd>,
    /// What its library can do.
    pub(super) version: Version,
    /// The count of its user's seats.
    pub(super) user: Arc<Borrower>,
    /// Its place in a pack.
    pub(super) pack: Option<PackMember>,
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
            last_seat: 0,
            unseated: BTreeMap::new(),
            named: Named::default(),
            limits: BTreeMap::new(),
            crowded: BTreeSet::new(),
            book: Book::default(),
            next: None,
            heartbeat: None,
            unattended_until: 0,
            interruptions_told: 0,
            is_over: false,
        }
    }

    /// Adds a process. One with an old library gets no seat where it is not steered: it would keep no cap there.
    pub(super) fn sit(
        &mut self,
        admission: Admission,
        page: Page,
        newcomer: Newcomer,
    ) -> io::Result<(SeatId, Arc<Session>)> {
        let Admission {
            job,
            share,
            mode,
            pack: pack_id,
            ..
        } = admission;
        if self.is_over {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let is_old = newcomer.version == Version::Turns;
        if is_old {
            if !self.is_steered() {
                return Err(Errno::NOSYS.into());
            }
            page.set_free_for_good(share);
        }
        page.heartbeat(now());
        let Newcomer {
            pid,
            process,
            user,
            pack,
            ..
        } = newcomer;
        let rate_limit = self.rate_limit(job);
        let session = Session::new(page, pid, process, is_old, rate_limit, (user, pack));
        let session = Arc::new(session);
        let (tenant, share, mode) = match pack_id {
            Some(pack) => self.tenancy.join(pack, job, (share, mode)),
            None => (job, share, mode),
        };
        self.steering.add(tenant, share, mode);
        self.last_seat += 1;
        let seat = SeatId {
            job,
            number: self.last_seat,
        };
        self.sessions.insert(seat, Arc::clone(&session));
        Ok((seat, session))
    }

    /// Removes a process that has ended. Its pack's supervisor disables its channels, and they are not to run again.
    pub(super) fn note_end(&mut self, seat: SeatId) {
        let session = self.sessions.get(&seat);
        if let Some(session) = session.filter(|_| self.tenancy.is_packed(seat.job)) {
            self.scheduler.retire(&session.known());
            if let Some(member) = session.pack().cloned() {
                let tenant = self.tenancy.tenant(seat.job);
                let process = (session.pid, session.page.wants_gpu());
                self.leftovers.add(now(), process, tenant, member);
            }
        }
        self.remove(seat);
        self.leftovers.retain(|job| self.tenancy.is_packed(job));
    }

    /// Tells the supervisors which ended processes' kernels have had their time.
    fn note_leftovers(
        &mut self,
        at: Nanos,
        stays: &BTreeMap<u32, Stays>,
        unseated: &BTreeMap<u32, Unseated>,
    ) {
        if !self.leftovers.is_any() {
            return;
        }
        let sessions = &self.sessions;
        let tenant = |process| {
            let mut seats = sessions.iter();
            let seat = seats.find(|(_, session)| session.pid == process);
            let seated = seat.map(|(seat, _)| self.tenancy.tenant(seat.job));
            seated.or_else(|| unseated.get(&process).map(|it| it.job))
        };
        let is_held = |tenant| self.is_steered && !self.steering.is_on(tenant);
        let off = self.leftovers.count(at, stays, tenant, is_held);
        for member in off {
            let told = self.leftovers.told();
            member.note_off(move |process, is_off| {
                // The GPU's arbiter may have ended.
                let _ = told.send((process, is_off));
            });
        }
    }

    /// Lets the processes of a tenant come to the GPU anew. Clients of an MPS server have one group there, which leaves only when all of
    /// them are held: those of a pack, or of a job with a server of its own.
    fn renew(&mut self, now: Nanos, tenant: Job) {
        let is_its = |seat: &SeatId| self.tenancy.tenant(seat.job) == tenant;
        let all = self.sessions.iter().filter(|(seat, _)| is_its(seat));
        let all: Vec<_> = all.map(|(_, session)| Arc::clone(session)).collect();
        let channels = all.iter().flat_map(|it| it.known()).collect();
        let gone = self.scheduler.renew(now, channels);
        for session in all {
            session.was_held(&BTreeSet::new(), &gone, now);
        }
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

    fn tenants(&self) -> Vec<Tenant> {
        let now = now();
        let jobs: BTreeSet<Job> = self.sessions.keys().map(|seat| seat.job).collect();
        let tenant = |job| Tenant {
            job,
            wants_gpu: self.of_job(job).any(|it| it.page.wants_gpu()),
            is_held: self.is_held(job) || self.is_steered && self.tenancy.waits(job),
            credit: self.steering.credit(self.tenancy.tenant(job)).unwrap_or(0),
            members: self
                .of_job(job)
                .map(|session| Member {
                    pid: session.pid,
                    not_steered: self.not_steered(now, job, session),
                })
                .collect(),
        };
        jobs.into_iter().map(tenant).collect()
    }

    /// Lets go of a GPU that no process has used for long, so that it can be reset, divided by MIG, or get another driver. It is
    /// opened again when a process wants it.
    pub(super) fn let_go(&mut self, now: Nanos) {
        if !self.sessions.is_empty() || !self.unseated.is_empty() {
            self.used = now;
        } else if now - self.used > UNUSED && self.scheduler.let_go() {
            self.is_steered = false;
        }
    }

    /// The jobs' use of the GPU, and their state.
    pub(super) fn account(&mut self) -> Account {
        self.let_go(now());
        let book = self.tenancy.divide(&self.steering.take_book());
        self.book.add(&book);
        Account {
            known_for: Duration::from_nanos(u64::try_from(now() - self.since).unwrap_or(0)),
            sharing: self.sharing(),
            book: self.book.clone(),
            tenants: self.tenants(),
            excess: self.excess(),
        }
    }

    /// The jobs that have more than their share for long, and their processes that cannot be held: of a pack's, each with its own job.
    fn excess(&self) -> BTreeMap<Job, BTreeSet<u32>> {
        let mut jobs: BTreeMap<Job, BTreeSet<u32>> = BTreeMap::new();
        for (tenant, processes) in self.steering.excess() {
            if processes.is_empty() {
                jobs.entry(tenant).or_default();
            }
            for process in processes {
                let mut seated = self.sessions.iter();
                let seated = seated.find(|(_, session)| session.pid == process);
                let unseated = || self.unseated.get(&process).map(|it| it.job);
                let job = seated.map(|(seat, _)| seat.job).or_else(unseated);
                jobs.entry(job.unwrap_or(tenant))
                    .or_default()
                    .insert(process);
            }
        }
        jobs
    }

    /// Forgets what jobs had that are over.
    pub(super) fn forget(&mut self, is_over: impl Fn(Job) -> bool) {
        let sessions = &self.sessions;
        let is_here = |job| sessions.keys().any(|seat| seat.job == job);
        // `is_over` may not know a job yet that has just come.
        self.book.forget(|job| is_over(job) && !is_here(job));
        self.limits.retain(|&job, _| !is_over(job) || is_here(job));
    }

    /// How jobs share the GPU just now.
    fn sharing(&self) -> Sharing {
        if self.is_steered {
            Sharing::Scheduler
        } else {
            Sharing::Caps(self.scheduler.why_not().map(str::to_owned))
        }
    }

    /// The processes of a job.
    fn of_job(&self, job: Job) -> impl Iterator<Item = &Arc<Session>> {
        let sessions = self.sessions.iter();
        let own = sessions.filter(move |(seat, _)| seat.job == job);
        own.map(|(_, session)| session)
    }

    /// The limit of a job, whose seats share it, also those that come later.
    fn rate_limit(&mut self, job: Job) -> Arc<RateLimit> {
        Arc::clone(self.limits.entry(job).or_default())
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

    /// Notes that no thread listens at a seat for this time. Tells when the seat will be polled anyway.
    pub(super) fn poll_soon(&mut self, wait: Duration) -> Nanos {
        let now = now();
        let wait = Nanos::try_from(wait.as_nanos()).unwrap_or(Nanos::MAX);
        self.unattended_until = self.unattended_until.max(now.saturating_add(wait));
        let soon = self.soon(now);
        self.heartbeat = self.heartbeat.into_iter().chain([soon]).min();
        self.next = self.next.into_iter().chain([soon]).min();
        soon
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

    /// Whether jobs are steered, or can be from now on.
    pub(super) fn is_steered(&mut self) -> bool {
        self.begin_to_steer(now());
        self.is_steered
    }

    fn is_held(&self, job: Job) -> bool {
        let tenant = self.tenancy.tenant(job);
        self.is_steered && !self.steering.is_on(tenant)
    }

    fn begin_to_steer(&mut self, now: Nanos) {
        if self.is_steered || now < self.steered_from {
            return;
        }
        self.is_steered = self.scheduler.stays().is_some();
        if !self.is_steered {
            self.steered_from = now + PAUSE;
        }
    }

    /// Why a process is not steered, where the GPU is.
    fn not_steered(&self, now: Nanos, job: Job, session: &Session) -> Option<NotSteered> {
        if !self.is_steered {
            None
        } else if self.crowded.contains(&job) {
            Some(NotSteered::JobHasTooMany)
        } else {
            session.not_steered(now)
        }
    }

    /// The channels of a process that can be held.
    fn can_hold(&self, job: Job, session: &Session) -> bool {
        self.is_steered && !self.crowded.contains(&job) && session.known_count() > 0
    }

    /// Tells each process how to launch.
    fn tell(&self) {
        for (seat, session) in &self.sessions {
            let tenant = self.tenancy.tenant(seat.job);
            let slice = self.steering.state(tenant).map_or(0, |(_, slice)| slice);
            let pacing = match self.can_hold(seat.job, session) {
                true => self.tenancy.pacing(seat.job),
                false => Pacing::OwnCap,
            };
            session.set_pacing(pacing, slice);
        }
    }

    /// Whether a process was held long enough to be off the GPU. The log names one client of a pack for all: so all of them have to be.
    fn is_surely_held(&self, job: Job, session: &Session) -> bool {
        let at = self.steering.looked();
        if !self.tenancy.is_packed(job) {
            return session.is_surely_held(at);
        }
        let tenant = self.tenancy.tenant(job);
        let mut sessions = self.sessions.iter();
        sessions.all(|(seat, it)| {
            let is_held = it.is_surely_held(at) && !it.has_news();
            self.tenancy.tenant(seat.job) != tenant || is_held || it.is_idle()
        })
    }

    /// The state of all processes at that moment, as their pages say.
    fn seat_states(&mut self, now: Nanos) -> Vec<SeatState> {
        let sessions = self.sessions.iter();
        let state = |(seat, session): (&SeatId, &Arc<Session>)| SeatState {
            job: self.tenancy.tenant(seat.job),
            process: session.pid,
            is_steered: self.not_steered(now, seat.job, session).is_none(),
            is_surely_held: self.is_surely_held(seat.job, session),
            hides: self.is_held(seat.job) && session.hides(now),
            // The log does not say which client of a pack is on the GPU.
            may_release: self.can_hold(seat.job, session)
                && !self.tenancy.is_packed(seat.job)
                && !self.is_held(seat.job)
                && session.page.wants_gpu()
                && session.may_be_released(&self.scheduler),
            wants_gpu: session.page.wants_gpu(),
            pending: session.new_pending(now),
            slice: session.shortest_slice(),
            has_new_slice: session.has_new_slice(),
        };
        let states: Vec<SeatState> = sessions.map(state).collect();
        for (seat, state) in self.sessions.keys().zip(&states) {
            let SeatState {
                pending, wants_gpu, ..
            } = *state;
            self.tenancy.note_work(seat.job, pending, wants_gpu);
        }
        states
    }

    /// Charges jobs for the work that their processes tell of: they are not steered.
    fn count(&mut self, now: Nanos) {
        let seats = self.seat_states(now);
        self.note_leftovers(now, &BTreeMap::new(), &BTreeMap::new());
        self.steering.count(now, &seats);
        // Channels that the driver did not let run when steering ended.
        self.hold();
    }

    /// Steers all jobs.
    fn steer(&mut self, now: Nanos) {
        self.note_crowded();
        self.tell();
        if self.steering.next.is_some_and(|next| next > now) {
            return;
        }
        let Some((at, stays)) = self.scheduler.stays() else {
            return self.stop_steering(now);
        };
        // Of the log's moment: what a process had to do since then is not in the log yet.
        let seats = self.seat_states(at);
        self.warn(now);
        if self.scheduler.is_to_be_renewed(now) {
            let mut all = self.sessions.iter().zip(&seats);
            let at_work = all.find(|((seat, _), state)| {
                let may_run = !self.is_held(seat.job) && !self.tenancy.waits(seat.job);
                state.is_steered && state.pending > 0 && may_run
            });
            if let Some(((seat, _), _)) = at_work {
                self.renew(now, self.tenancy.tenant(seat.job));
            }
        }
        let has_worked = |pid| stays.get(&pid).is_some_and(|it| it.resident > 0);
        let at_work = self.sessions.values().filter(|it| has_worked(it.pid));
        at_work.for_each(|session| session.note_work());
        let held = self.sessions.values().zip(&seats);
        for (session, _) in held.filter(|(_, seat)| seat.is_surely_held) {
            let resident = stays.get(&session.pid).map_or(0, |it| it.resident);
            session.note_stay_while_held(resident);
        }
        let is_known = |pid| {
            let mut sessions = self.sessions.values();
            self.unseated.contains_key(&pid) || sessions.any(|it| it.pid == pid)
        };
        self.named.note(self.scheduler.id(), &stays, is_known);
        let mut unseated = self.named.with(&self.unseated);
        for one in unseated.values_mut() {
            one.job = self.tenancy.tenant_of_unseated(one.pack, one.job);
        }
        self.note_leftovers(at, &stays, &unseated);
        let time = (at - self.steering.looked()).max(0);
        let turns = self
            .tenancy
            .look(|tenant| match self.steering.is_on(tenant) {
                true => time,
                false => 0,
            });
        let found = self.steering.find_interruptions(at, &stays, &seats);
        let look = self.steering.look(at, &stays, &seats, &unseated);
        let phase = self.others.look(at, self.steering.standings());
        self.steering.set_phase(phase);
        self.tell();
        if let Some(turns) = turns {
            let next = self.steering.next.unwrap_or(Nanos::MAX);
            self.steering.next = Some(next.min(at + turns));
        }
        for &(tenant, slice) in &look.slices {
            let sessions = self.sessions.iter();
            let own = sessions.filter(|(seat, _)| self.tenancy.tenant(seat.job) == tenant);
            own.for_each(|(_, session)| session.request_slice(slice));
        }
        self.hold();
        self.release(&found);
    }

    /// Lets channels run that something else may keep off the GPU.
    fn release(&mut self, found: &Found) {
        // It may have come to be held just now.
        let is_it = |session: &Session, process| {
            session.pid == process && session.may_be_released(&self.scheduler)
        };
        let mut sessions = self.sessions.iter();
        if let Some((process, amount)) = found.release
            && let Some((seat, session)) = sessions.find(|(_, it)| is_it(it, process))
        {
            let begun = now();
            let (gone, left) = self.scheduler.release(session.known(), amount);
            session.was_held(&BTreeSet::new(), &gone, now());
            let took = now() - begun;
            self.steering.note_release(process, seat.job, took, left);
        }
        if found.is_near {
            self.steering.look_soon();
        }
        self.tell_interruptions(found);
    }

    /// Says which processes were interrupted, and who was there.
    fn tell_interruptions(&mut self, found: &Found) {
        const SELDOM: Nanos = 60_000_000_000;
        let processes: BTreeSet<u32> = found.interrupted.iter().map(|it| it.0).collect();
        if processes.is_empty() || now() < self.interruptions_told {
            return;
        }
        self.interruptions_told = now() + SELDOM;
        let seated = self.sessions.values().map(|session| session.pid);
        let others = seated.chain(self.unseated.keys().copied());
        let others: BTreeSet<u32> = others.filter(|it| !processes.contains(it)).collect();
        warn!(
            "GPU {}: something else kept work of processes {processes:?} off it, and it goes on again; there as well: {others:?}",
            self.scheduler.name()
        );
    }

    /// Notes which jobs have more channels than can be held.
    fn note_crowded(&mut self) {
        let mut counts: BTreeMap<Job, usize> = BTreeMap::new();
        for (seat, session) in &self.sessions {
            *counts.entry(seat.job).or_default() += session.known_count();
        }
        counts.retain(|_, count| *count > MOST_CHANNELS);
        self.crowded = counts.into_keys().collect();
    }

    /// Warns once of each process that is not steered.
    fn warn(&self, now: Nanos) {
        for (seat, session) in &self.sessions {
            if let Some(why) = self.not_steered(now, seat.job, session)
                && session.is_to_be_told()
            {
                let refusal = (why == NotSteered::NotOwn).then(|| session.refusal().clone());
                let refusal = refusal.flatten().map(|it| format!(" ({it})"));
                warn!(
                    "process {} of job {} cannot be held on its GPU: {why}{}; its job pays for the time that it has there",
                    session.pid,
                    seat.job.0,
                    refusal.unwrap_or_default()
                );
            }
        }
    }

    /// Lets the channels wait of those jobs that are to, and no others.
    fn hold(&mut self) {
        // A pack's supervisor has disabled the channels of those that have just ended, and they are not to run again.
        let sessions = self.sessions.iter();
        let (ended, sessions): (Vec<_>, Vec<_>) =
            sessions.partition(|(_, it)| it.pack().is_some() && it.has_ended());
        let ended: Vec<_> = ended.iter().flat_map(|(_, it)| it.known()).collect();
        if !ended.is_empty() {
            self.scheduler.retire(&ended);
        }
        let (held, free): (Vec<_>, Vec<_>) = sessions
            .into_iter()
            .map(|(seat, session)| (seat.job, session))
            .partition(|(job, session)| self.is_held(*job) && self.can_hold(*job, session));
        free.iter().for_each(|(_, session)| session.note_hold(None));
        let channels = held.iter().flat_map(|(_, it)| it.known()).collect();
        let done = self.steering.hold(&mut self.scheduler, channels);
        for (_, session) in held {
            session.was_held(&done.new, &done.gone, now());
            let waiting = &self.scheduler.waiting;
            let is_taken = session.known().iter().all(|it| waiting.contains(it));
            session.note_hold(is_taken.then(now));
        }
    }

    /// The GPU cannot be steered any more, or not just now. Processes with old libraries keep their caps only without a seat.
    fn stop_steering(&mut self, now: Nanos) {
        self.is_steered = false;
        self.others.leave(now);
        self.steering.set_phase(Phase::default());
        self.tenancy.end_turns();
        self.steered_from = now + PAUSE;
        self.scheduler.end();
        let sessions = self.sessions.iter();
        let old = sessions.filter(|(_, session)| session.is_old);
        let old: Vec<SeatId> = old.map(|(&seat, _)| seat).collect();
        for seat in old {
            self.remove(seat);
        }
        self.tell();
        self.count(now);
    }
}
