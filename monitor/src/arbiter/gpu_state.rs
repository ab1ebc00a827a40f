//! The state of a GPU's turns and seats at one time, and the steps that follow from it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tracing::warn;

use super::authorizer::Admission;
use super::clock::now;
use super::other_gpus::OtherGpus;
use super::page::Page;
use super::rate_limit::RateLimit;
use super::session::Session;
use super::steering::{Held, Scheduler, SeatState, Steering, Unseated};
use super::tenant::{Account, Member, Sharing, Tenant};
use crate::schedule::turns::{Job, JobStatus, Nanos, Rules, SeatId, Turns};

/// How often processes that wait are told that the arbiter is there. Where there is no heartbeat for twice as long, they see
/// whether it listens.
const HEARTBEAT: Nanos = 25_000_000;
/// The interval at which all seats are polled while some have no listening thread, plus this much for each seat. To poll
/// all of them, and to tell all of them what follows, takes a small part of that.
const POLL_EVERY: Nanos = 1_000_000;
const POLL_EVERY_PER_SEAT: Nanos = 20_000;
/// A process may answer faster than the arbiter updates the GPU. After this many rounds it pauses for this long, so that other
/// processes are polled too.
const MAX_ROUNDS: u32 = 8;
const ROUNDS_PAUSE: Nanos = 100_000;
/// The least time for which jobs take turns before they are steered again.
const PAUSE: Nanos = 500_000_000;

/// A GPU's turns, and the processes that have seats there.
#[derive(Debug)]
pub(super) struct GpuState {
    /// Since when anything is counted here.
    since: Nanos,
    turns: Turns,
    others: OtherGpus,
    scheduler: Scheduler,
    /// While jobs get the GPU by its own scheduler, and take no turns.
    steering: Option<Steering>,
    /// No job is steered before.
    turns_until: Nanos,
    sessions: BTreeMap<SeatId, Arc<Session>>,
    /// Processes of jobs with slices that have no seat, as they were seen last.
    unseated: BTreeMap<u32, Unseated>,
    /// When to look again.
    pub(super) next: Option<Nanos>,
    /// When the clock's thread will.
    pub(super) clock: Option<Nanos>,
    /// The time when all are polled and get a heartbeat, if that does not happen earlier.
    heartbeat: Option<Nanos>,
    /// The time until which there are seats without a listening thread.
    unattended_until: Nanos,
    pub(super) is_over: bool,
}

impl GpuState {
    pub(super) fn new(rules: Rules, others: OtherGpus, scheduler: Scheduler) -> Self {
        Self {
            since: now(),
            turns: Turns::new(now(), rules),
            others,
            scheduler,
            steering: None,
            turns_until: 0,
            sessions: BTreeMap::new(),
            unseated: BTreeMap::new(),
            next: None,
            clock: None,
            heartbeat: None,
            unattended_until: 0,
            is_over: false,
        }
    }

    /// Adds a process; `None` if all is over.
    pub(super) fn sit(
        &mut self,
        admission: Admission,
        page: Page,
        pid: u32,
        process: Option<OwnedFd>,
        count: &Arc<()>,
    ) -> Option<(SeatId, Arc<Session>)> {
        let Admission {
            job, share, mode, ..
        } = admission;
        // Work that waits for another GPU's has its turns on both together.
        let process = process.filter(|_| !admission.is_several);
        if self.is_over {
            return None;
        }
        page.heartbeat(now());
        let session = Session::new(page, pid, process, self.wake_limit(job), Arc::clone(count));
        let session = Arc::new(session);
        let seat = self.turns.sit(now(), job, share, mode);
        self.sessions.insert(seat, Arc::clone(&session));
        Some((seat, session))
    }

    /// Removes a process that has gone.
    pub(super) fn remove(&mut self, seat: SeatId) {
        self.turns.leave(now(), seat);
        if let Some(session) = self.sessions.remove(&seat) {
            let launches = u64::from(session.page.overruns());
            self.turns.book().of(seat.job).launches_without_turn += launches;
            session.close();
        }
        let is_there = self.sessions.keys().any(|other| other.job == seat.job);
        if let Some(steering) = self.steering.as_mut().filter(|_| !is_there) {
            steering.remove(seat.job);
        }
        self.hold();
    }

    /// These have no seat: their jobs pay for what they use.
    pub(super) fn set_unseated(&mut self, unseated: BTreeMap<u32, Unseated>) {
        self.unseated = unseated;
    }

    /// The arbiter ends.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.steering = None;
        self.scheduler.end();
        for session in std::mem::take(&mut self.sessions).into_values() {
            session.close();
        }
    }

    pub(super) fn tenants(&self) -> Vec<Tenant> {
        let now = now();
        let until = |time: Nanos| Duration::from_nanos(u64::try_from(time - now).unwrap_or(0));
        let member = |(&seat, session): (&SeatId, &Arc<Session>)| Member {
            pid: session.pid,
            launches_without_turn: session.page.overruns(),
            shut_out_for: self.turns.is_late_until(seat).map(until),
        };
        let of = |job| {
            self.sessions
                .iter()
                .filter(move |(seat, _)| seat.job == job)
        };
        let steered = |standing: JobStatus| match self.steered(standing.job) {
            Some((is_on, credit, charged)) => JobStatus {
                holds: is_on,
                credit,
                charged: standing.charged + charged,
                ..standing
            },
            None => standing,
        };
        let standings = self.turns.standings().map(steered);
        let tenants = standings.map(|standing| Tenant {
            standing,
            known_for: Duration::from_nanos(u64::try_from(now - standing.since).unwrap_or(0)),
            members: of(standing.job).map(member).collect(),
        });
        tenants.collect()
    }

    /// The jobs' use of the GPU, and their state.
    pub(super) fn account(&mut self) -> Account {
        if let Some(steering) = &mut self.steering {
            self.turns.book().add(&steering.take_book());
        }
        let mut book = self.turns.book().clone();
        let tenants = self.tenants();
        for tenant in &tenants {
            let launches = tenant.members.iter().map(|it| it.launches_without_turn);
            book.of(tenant.standing.job).launches_without_turn +=
                launches.map(u64::from).sum::<u64>();
        }
        Account {
            known_for: Duration::from_nanos(u64::try_from(now() - self.since).unwrap_or(0)),
            sharing: self.sharing(),
            book,
            tenants,
        }
    }

    /// Forgets what jobs had that are over.
    pub(super) fn forget(&mut self, is_over: impl Fn(Job) -> bool) {
        let sessions = &self.sessions;
        let is_here = |job| sessions.keys().any(|seat| seat.job == job);
        // `is_over` may not know a job yet that has just come.
        (self.turns.book()).forget(|job| is_over(job) && !is_here(job));
    }

    /// How jobs share the GPU just now.
    pub(super) fn sharing(&self) -> Sharing {
        if self.steering.is_some() {
            return Sharing::Scheduler;
        }
        let mut wanting = self.wanting_gpu();
        let unknown = wanting.find(|(_, session)| session.known().is_empty());
        let of_a_job = || {
            let (job, session) = unknown?;
            let (job, pid) = (job.0, session.pid);
            Some(format!("process {pid} of job {job} cannot be steered"))
        };
        let of_the_gpu = self.scheduler.why_not().map(str::to_owned);
        Sharing::Turns(of_the_gpu.or_else(of_a_job))
    }

    /// The limit of a job, whose seats share it.
    fn wake_limit(&self, job: Job) -> Arc<RateLimit> {
        let mut sessions = self.sessions.iter();
        let other = sessions.find(|(seat, _)| seat.job == job);
        other.map_or_else(Arc::default, |(_, session)| Arc::clone(&session.wake_limit))
    }

    /// Polls the seat whose process woke its thread, or all seats, and does what follows. Tells when to look again, if it is
    /// known.
    pub(super) fn look(&mut self, mut woken: Option<SeatId>) -> Option<Nanos> {
        for _ in 0..MAX_ROUNDS {
            let time = now();
            match woken.take() {
                Some(seat) => self.poll(time, seat),
                None => self.poll_all(time),
            }
            if self.is_steered(time) {
                self.next = self.next_while_steered();
                return self.next;
            }
            self.others.hear(time, &mut self.turns);
            let look = self.turns.look(time);
            self.others.tell(&self.turns);
            for order in &look.orders {
                if let Some(session) = self.sessions.get(&order.seat) {
                    session.page.write(order);
                }
            }
            self.next = look.next.into_iter().chain(self.heartbeat).min();
            if self.next.is_none_or(|next| next > now()) {
                return self.next;
            }
        }
        self.next = Some(now() + ROUNDS_PAUSE);
        self.next
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
        let state = session.page.state();
        if state.wishes {
            self.heartbeat = self.heartbeat.or(Some(now + HEARTBEAT));
        }
        self.turns.hear(seat, state);
        session.page.heartbeat(now);
    }

    // --- Without turns ---

    #[cfg(test)]
    pub(super) fn session(&self, seat: SeatId) -> &Session {
        &self.sessions[&seat]
    }

    #[cfg(test)]
    pub(super) fn seats(&self) -> impl Iterator<Item = SeatId> {
        self.sessions.keys().copied()
    }

    #[cfg(test)]
    pub(super) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// The state of a job that is steered: whether its channels run, its credit, and what it was charged.
    fn steered(&self, job: Job) -> Option<(bool, Nanos, Nanos)> {
        let steering = self.steering.as_ref()?;
        let (is_on, _) = steering.state(job)?;
        let (credit, charged) = steering.standing(job)?;
        Some((is_on, credit, charged))
    }

    fn next_while_steered(&self) -> Option<Nanos> {
        let next = self.steering.as_ref().and_then(|it| it.next);
        next.into_iter().chain(self.heartbeat).min()
    }

    /// Steers the GPU's own scheduler, and tells whether that shares the GPU. If not, jobs take turns.
    fn is_steered(&mut self, now: Nanos) -> bool {
        if self.steering.is_none() && !self.begin_to_steer(now) {
            return false;
        }
        self.free_sessions();
        let next = self.steering.as_ref().and_then(|it| it.next);
        let is_due = next.is_none_or(|next| next <= now);
        if is_due && !self.steer(now) {
            self.stop_steering(now);
            return false;
        }
        true
    }

    /// The jobs that want the GPU.
    fn wanting_gpu(&self) -> impl Iterator<Item = (Job, &Session)> {
        let wanting = self
            .sessions
            .iter()
            .filter(|(_, session)| session.page.state().wishes);
        wanting.map(|(seat, session)| (seat.job, session.as_ref()))
    }

    fn begin_to_steer(&mut self, now: Nanos) -> bool {
        self.scheduler.let_run();
        if self
            .wanting_gpu()
            .any(|(_, session)| !session.can_be_steered(now))
        {
            self.turns_until = now + PAUSE;
        }
        let is_any = self.wanting_gpu().next().is_some();
        let are_known = || {
            self.wanting_gpu()
                .all(|(_, session)| !session.known().is_empty())
        };
        let is_early = now < self.turns_until;
        if !is_any || is_early || !are_known() {
            return false;
        }
        if self.scheduler.stays().is_none() {
            self.turns_until = now + PAUSE;
            return false;
        }
        let mut steering = Steering::new(now);
        self.turns.suspend(now);
        for known in self.turns.known() {
            steering.add(known.job, known.share, known.mode, known.credit);
            if known.seats == 0 {
                steering.remove(known.job);
            }
        }
        for session in self.sessions.values() {
            session.new_pending();
        }
        self.steering = Some(steering);
        true
    }

    /// Lets those launch as they like who can be steered and have not been told yet.
    fn free_sessions(&mut self) {
        let Some(steering) = &mut self.steering else {
            return;
        };
        for (&seat, session) in &self.sessions {
            if session.is_free.load(SeqCst) || session.known().is_empty() {
                continue;
            }
            session.is_free.store(true, SeqCst);
            let standing = self.turns.standings().find(|it| it.job == seat.job);
            if let Some(it) = standing {
                steering.add(it.job, it.share, it.mode, it.credit);
            }
            if let Some((_, slice)) = steering.state(seat.job) {
                session.request_slice(slice);
            }
            session.page.set_free(true);
            if let Some(order) = self.turns.let_loose(seat) {
                session.page.write(&order);
            }
        }
    }

    /// Does what is to be done; false if jobs are to take turns again.
    fn steer(&mut self, now: Nanos) -> bool {
        if self
            .wanting_gpu()
            .any(|(_, session)| !session.can_be_steered(now))
        {
            return false;
        }
        let seats: Vec<SeatState> = (self.sessions.iter())
            .map(|(seat, session)| {
                let state = session.page.state();
                SeatState {
                    job: seat.job,
                    process: session.pid,
                    wants_gpu: state.wishes,
                    pending: session.new_pending(),
                    slice: session.shortest_slice(),
                    has_new_slice: session.has_new_slice(),
                }
            })
            .collect();
        let (Some(steering), Some(stays)) = (&mut self.steering, self.scheduler.stays()) else {
            return false;
        };
        if self.scheduler.is_to_be_renewed(now) {
            let is_at_work = |it: &&SeatState| it.pending > 0 && steering.is_on(it.job);
            let at_work = seats.iter().find(is_at_work).map(|it| it.process);
            let sessions = self.sessions.values().filter(|it| Some(it.pid) == at_work);
            sessions.for_each(|it| steering.renew(now, &mut self.scheduler, it.known()));
        }
        let has_worked = |pid| stays.get(&pid).is_some_and(|it| it.resident > 0);
        let at_work = self.sessions.values().filter(|it| has_worked(it.pid));
        at_work.for_each(|session| session.note_work());
        let orders = steering.look(now, &stays, &seats, &self.unseated);
        (self.turns).forget_paid(|job| steering.standing(job).is_some());
        for &job in &orders.escaped {
            warn!(
                "job {}: its channels run although they are held, so it and the jobs that share its GPU take turns now",
                job.0
            );
            let seats = self.sessions.iter().filter(|(seat, _)| seat.job == job);
            seats.for_each(|(_, session)| session.cannot_be_held());
        }
        if !orders.escaped.is_empty() {
            return false;
        }
        for &(job, slice) in &orders.slices {
            let seats = self.sessions.iter().filter(|(seat, _)| seat.job == job);
            seats.for_each(|(_, session)| session.request_slice(slice));
        }
        self.hold();
        true
    }

    /// Lets the channels wait of those jobs that are to, and no others.
    fn hold(&mut self) {
        let Some(steering) = &mut self.steering else {
            return;
        };
        let sessions = self.sessions.iter();
        let held: Vec<_> = sessions
            .filter(|(seat, _)| !steering.is_on(seat.job))
            .collect();
        let channels = held
            .iter()
            .flat_map(|(_, session)| session.known())
            .collect();
        let Held { new, gone, .. } = steering.hold(&mut self.scheduler, channels);
        for (_, session) in held {
            session.was_held(&new, &gone, now());
        }
    }

    /// Jobs take turns again.
    fn stop_steering(&mut self, now: Nanos) {
        let Some(mut steering) = self.steering.take() else {
            return;
        };
        self.scheduler.end();
        self.turns.book().add(&steering.take_book());
        self.turns_until = now + PAUSE;
        let orders = self.turns.resume(now, |job| steering.standing(job));
        for order in &orders {
            if let Some(session) = self.sessions.get(&order.seat) {
                session.page.set_free(false);
                session.is_free.store(false, SeqCst);
                session.page.write(order);
            }
        }
    }
}
