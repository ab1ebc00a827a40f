//! What is told of a GPU and its jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tracing::warn;

use softmig_region::seat::MOST_CHANNELS;

use super::GpuState;
use crate::arbiter::clock::now;
use crate::arbiter::session::Session;
use crate::arbiter::tenant::{Account, Member, NotSteered, Sharing, Tenant};
use crate::schedule::interruptions::Found;
use crate::schedule::{Job, Nanos};

impl GpuState {
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

    /// The jobs' use of the GPU, and their state.
    pub(in crate::arbiter) fn account(&mut self) -> Account {
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
    /// In a pack of several users that is nobody's: the log names one client for all, which may be another user's.
    fn excess(&self) -> BTreeMap<Job, BTreeSet<u32>> {
        let mut jobs: BTreeMap<Job, BTreeSet<u32>> = BTreeMap::new();
        let excess = self.steering.excess().into_iter();
        for (tenant, processes) in excess.filter(|(tenant, _)| !self.tenancy.is_shared(*tenant)) {
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

    /// How jobs share the GPU just now.
    fn sharing(&self) -> Sharing {
        if self.is_steered {
            Sharing::Scheduler
        } else {
            Sharing::Caps(self.scheduler.why_not().map(str::to_owned))
        }
    }

    /// Why a process is not steered, where the GPU is.
    pub(super) fn not_steered(
        &self,
        now: Nanos,
        job: Job,
        session: &Session,
    ) -> Option<NotSteered> {
        if !self.is_steered {
            None
        } else if self.crowded.contains(&job) {
            Some(NotSteered::JobHasTooMany)
        } else {
            session.not_steered(now)
        }
    }

    /// Says which processes were interrupted, and who was there.
    pub(super) fn tell_interruptions(&mut self, found: &Found) {
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
    pub(super) fn note_crowded(&mut self) {
        let mut counts: BTreeMap<Job, usize> = BTreeMap::new();
        for (seat, session) in &self.sessions {
            *counts.entry(seat.job).or_default() += session.known_count();
        }
        counts.retain(|_, count| *count > MOST_CHANNELS);
        self.crowded = counts.into_keys().collect();
    }

    /// Warns once of each process that is not steered.
    pub(super) fn warn(&self, now: Nanos) {
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
}
