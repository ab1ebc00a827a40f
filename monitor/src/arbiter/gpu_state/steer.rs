//! Steering by the GPU's own scheduler: who is held, and what the log says of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use softmig_region::seat::Pacing;
use softmig_rm::Channel;

use super::{GpuState, PAUSE, UNUSED};
use crate::arbiter::clock::now;
use crate::arbiter::leftovers::Word;
use crate::arbiter::session::Session;
use crate::arbiter::steering::{SeatState, Unseated};
use crate::arbiter::switch_log::Stays;
use crate::packs::PackMember;
use crate::schedule::gangs::Phase;
use crate::schedule::interruptions::Found;
use crate::schedule::{Job, Nanos, SeatId};

impl GpuState {
    /// Asks the supervisors which ended processes' channels are off the GPU, and tells them whose kernels have had their time.
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
        let words = self.leftovers.count(at, stays, tenant, is_held);
        for (word, members) in words {
            match word {
                Word::IsOff => PackMember::ask_whether_off(members, self.leftovers.answers()),
                Word::LetGo => PackMember::let_go(members),
            }
        }
    }

    /// Lets the processes of a tenant come to the GPU anew. Clients of an MPS server have one group there, which leaves only when all of
    /// them are held: those of a pack, or of a job with a server of its own.
    fn renew(&mut self, now: Nanos, tenant: Job) {
        let all = self.of_tenant(tenant);
        let all = all.filter(|(seat, it)| self.can_hold(seat.job, it) && !it.has_ended());
        let all: Vec<_> = all.map(|(_, session)| Arc::clone(session)).collect();
        let channels = all.iter().flat_map(|it| it.known()).collect();
        let ended = || ended(&self.sessions);
        let gone = self.scheduler.renew(now, channels, &ended);
        for session in all {
            session.was_held(&BTreeSet::new(), &gone, now);
        }
    }

    /// Lets go of a GPU that no process has used for long, so that it can be reset, divided by MIG, or get another driver. It is
    /// opened again when a process wants it.
    pub(in crate::arbiter) fn let_go(&mut self, now: Nanos) {
        if !self.sessions.is_empty() || !self.unseated.is_empty() {
            self.used = now;
        } else if now - self.used > UNUSED && self.scheduler.let_go() {
            self.is_steered = false;
        }
    }

    /// Whether jobs are steered, or can be from now on.
    pub(in crate::arbiter) fn is_steered(&mut self) -> bool {
        self.begin_to_steer(now());
        self.is_steered
    }

    pub(super) fn is_held(&self, job: Job) -> bool {
        let tenant = self.tenancy.tenant(job);
        self.is_steered && !self.steering.is_on(tenant)
    }

    pub(super) fn begin_to_steer(&mut self, now: Nanos) {
        if self.is_steered || now < self.steered_from {
            return;
        }
        self.is_steered = self.scheduler.stays().is_some();
        if !self.is_steered {
            self.steered_from = now + PAUSE;
        }
    }

    /// The channels of a process that can be held.
    pub(super) fn can_hold(&self, job: Job, session: &Session) -> bool {
        self.is_steered && !self.crowded.contains(&job) && session.known_count() > 0
    }

    /// Tells each process how to launch.
    pub(super) fn tell(&self) {
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
        let mut sessions = self.of_tenant(self.tenancy.tenant(job));
        sessions.all(|(_, it)| it.is_surely_held(at) && !it.has_news() || it.is_idle())
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
        // Who is stopped has no turns, and does not pay for others.
        for ((seat, session), state) in self.sessions.iter().zip(&states) {
            if session.tells_of_work(now) {
                self.tenancy
                    .note_work(seat.job, state.pending, state.wants_gpu);
            }
        }
        states
    }

    /// Charges jobs for the work that their processes tell of: they are not steered.
    pub(super) fn count(&mut self, now: Nanos) {
        let seats = self.seat_states(now);
        self.note_leftovers(now, &BTreeMap::new(), &BTreeMap::new());
        self.steering.count(now, &seats);
        // Channels that the driver did not let run when steering ended.
        self.hold();
    }

    /// Steers all jobs.
    pub(super) fn steer(&mut self, now: Nanos) {
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
        // The log names one client of a pack for all, also for one that has no seat.
        let held = held.filter(|(session, _)| session.pack().is_none());
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
            let own = self.of_tenant(tenant);
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

    /// Lets the channels wait of those jobs that are to, and no others.
    pub(super) fn hold(&mut self) {
        let sessions = self.sessions.iter();
        let (left, sessions): (Vec<_>, Vec<_>) = sessions.partition(|(_, it)| has_left_pack(it));
        let left: Vec<_> = left.iter().flat_map(|(_, it)| it.known()).collect();
        if !left.is_empty() {
            self.scheduler.retire(&left);
        }
        let (held, free): (Vec<_>, Vec<_>) = sessions
            .into_iter()
            .map(|(seat, session)| (seat.job, session))
            .partition(|(job, session)| self.is_held(*job) && self.can_hold(*job, session));
        free.iter().for_each(|(_, session)| session.note_hold(None));
        let channels = held.iter().flat_map(|(_, it)| it.known()).collect();
        let ended = || ended(&self.sessions);
        let done = self.steering.hold(&mut self.scheduler, channels, &ended);
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

/// Whether a process of a pack has ended. Its channels are its supervisor's then, and not to run again.
fn has_left_pack(session: &Session) -> bool {
    session.pack().is_some() && session.has_ended()
}

/// The channels of those that have.
fn ended(sessions: &BTreeMap<SeatId, Arc<Session>>) -> BTreeSet<Channel> {
    let left = sessions.values().filter(|it| has_left_pack(it));
    left.flat_map(|it| it.known()).collect()
}
