//! Which processes worked on a GPU without a seat, over several observations.

use crate::enforce::observation::{Holder, Observation, Process, ProcessId, Seat, Tenant};
use crate::enforce::rules::bounds::Bounds;
use std::collections::BTreeMap;
use std::time::Duration;

/// What the observations so far say of work without a seat.
#[derive(Debug, Default)]
pub(super) struct UnseatedWork {
    /// When each process was first seen on each GPU.
    known: BTreeMap<(ProcessId, String), Duration>,
    /// The processes that were busy on each GPU without a seat and got none since, and when.
    worked: BTreeMap<(Holder, String), Vec<(Duration, ProcessId)>>,
}

impl UnseatedWork {
    pub(super) fn note(&mut self, observation: &Observation, bounds: &Bounds) {
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
}
