//! The figures that take more than two observations: which processes worked without a seat, and how much of a GPU's time a
//! job had.

use crate::enforce::observation::{Holder, Observation, Process, ProcessId, Seat, Tenant};
use crate::enforce::rules::bounds::Bounds;
use std::collections::BTreeMap;
use std::time::Duration;

/// The sums over the observations so far.
#[derive(Debug, Default)]
pub(super) struct Figures {
    last: Option<Duration>,
    /// When each process was first seen on each GPU.
    known: BTreeMap<(ProcessId, String), Duration>,
    /// The processes that were busy on each GPU without a seat and got none since, and when.
    worked: BTreeMap<(Holder, String), Vec<(Duration, ProcessId)>>,
    spent: BTreeMap<(Holder, String), Spent>,
}

/// A job's time on a GPU.
#[derive(Clone, Copy, Debug)]
struct Spent {
    /// When this window began.
    since: Duration,
    /// The job's charge by then.
    charged: Duration,
    /// Its use in this window.
    had: Duration,
    /// For how many windows in a row it had far more than it was charged.
    windows: u32,
}

impl Figures {
    pub(super) fn note(&mut self, observation: &Observation, bounds: &Bounds) {
        let since = self.last.replace(observation.at).unwrap_or(observation.at);
        let time = observation.at.saturating_sub(since);
        self.note_work(observation, bounds);
        let mut spent = std::mem::take(&mut self.spent);
        for tenant in &observation.tenants {
            let Some(charged) = tenant.charged else {
                continue;
            };
            let key = (tenant.holder.clone(), tenant.gpu.clone());
            let mut so_far = spent.remove(&key).unwrap_or(Spent {
                since: observation.at,
                charged,
                had: Duration::ZERO,
                windows: 0,
            });
            let busy = tenant.processes.iter().map(|process| process.busy);
            so_far.had += time * busy.sum::<u32>().min(100) / 100;
            so_far.close(observation.at, charged, bounds);
            self.spent.insert(key, so_far);
        }
    }

    fn note_work(&mut self, observation: &Observation, bounds: &Bounds) {
        let mut before = std::mem::take(&mut self.known);
        for tenant in &observation.tenants {
            for process in &tenant.processes {
                let key = (process.id, tenant.gpu.clone());
                let first = before.remove(&key).unwrap_or(observation.at);
                self.known.insert(key, first);
            }
            let key = (tenant.holder.clone(), tenant.gpu.clone());
            let worked = self.worked.entry(key).or_default();
            // One that was still making its context has its seat by now.
            let has_seat = |id| {
                let mut processes = tenant.processes.iter();
                processes.any(|it| it.id == id && it.seat == Seat::Given)
            };
            worked.retain(|&(_, id)| !has_seat(id));
            let is_late = |it: &Process| {
                let first = self.known.get(&(it.id, tenant.gpu.clone()));
                let known_for = first.map_or(Duration::ZERO, |first| {
                    observation.at.saturating_sub(*first)
                });
                it.seat == Seat::None || known_for >= bounds.making_context
            };
            let busy = (tenant.unseated()).filter(|it| it.busy > 0 && is_late(it));
            worked.extend(busy.map(|it| (observation.at, it.id)));
        }
        self.worked.retain(|_, worked| {
            worked.retain(|(at, _)| observation.at.saturating_sub(*at) <= bounds.remembered);
            !worked.is_empty()
        });
    }

    /// The times at which a holder's processes were busy without a seat, and which.
    fn worked(&self, tenant: &Tenant) -> &[(Duration, ProcessId)] {
        let key = (tenant.holder.clone(), tenant.gpu.clone());
        self.worked.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Whether a holder's processes were busy without a seat at all.
    pub(super) fn is_suspect(&self, tenant: &Tenant) -> bool {
        !self.worked(tenant).is_empty()
    }

    /// Whether they were in two observations that are so far apart.
    pub(super) fn has_worked_twice(&self, tenant: &Tenant, apart: Duration) -> bool {
        let worked = self.worked(tenant);
        let (first, last) = (worked.first(), worked.last());
        let times = first.zip(last);
        times.is_some_and(|((first, _), (last, _))| last.saturating_sub(*first) >= apart)
    }

    /// Whether a process was among them.
    pub(super) fn has_worked(&self, tenant: &Tenant, id: ProcessId) -> bool {
        self.worked(tenant).iter().any(|&(_, other)| other == id)
    }

    /// Whether a job had far more than it was charged, in the last two windows.
    pub(super) fn is_far_beyond(&self, holder: &Holder, gpu: &str) -> bool {
        let spent = self.spent.get(&(holder.clone(), gpu.to_owned()));
        spent.is_some_and(|spent| spent.windows >= 2)
    }
}

impl Spent {
    /// Ends the window if it is time.
    fn close(&mut self, now: Duration, charged: Duration, bounds: &Bounds) {
        let window = now.saturating_sub(self.since);
        if window < bounds.window {
            return;
        }
        // A job that Slurm starts anew may begin at zero.
        let paid = charged.saturating_sub(self.charged);
        let most = paid * bounds.times_charged + window * bounds.percent_beyond / 100;
        self.windows = if self.had > most { self.windows + 1 } else { 0 };
        (self.since, self.charged, self.had) = (now, charged, Duration::ZERO);
    }
}
