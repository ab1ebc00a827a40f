//! What takes more than two looks: since when a process has had a context, and how much of a GPU's time a job had.

use crate::enforce::look::{Holder, Look, ProcessId};
use crate::enforce::rules::bounds::Bounds;
use std::collections::BTreeMap;
use std::time::Duration;

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Figures {
    last: Option<Duration>,
    /// When each process was first seen on each GPU, and for how long by now.
    known: BTreeMap<(ProcessId, String), (Duration, Duration)>,
    spent: BTreeMap<(Holder, String), Spent>,
}

/// A job's time on a GPU.
#[derive(Clone, Copy, Debug)]
struct Spent {
    /// When this window began.
    since: Duration,
    /// What the job was charged by then.
    charged: Duration,
    /// What it had in this window.
    had: Duration,
    /// For how many windows in a row it had far more than it was charged.
    windows: u32,
}

impl Figures {
    pub(super) fn note(&mut self, look: &Look, bounds: &Bounds) {
        let since = self.last.replace(look.at).unwrap_or(look.at);
        let time = look.at.saturating_sub(since);
        let mut known = std::mem::take(&mut self.known);
        let mut spent = std::mem::take(&mut self.spent);
        for tenant in &look.tenants {
            for process in &tenant.processes {
                let key = (process.id, tenant.gpu.clone());
                let (first, _) = known.remove(&key).unwrap_or((look.at, Duration::ZERO));
                self.known
                    .insert(key, (first, look.at.saturating_sub(first)));
            }
            let Some(charged) = tenant.charged else {
                continue;
            };
            let key = (tenant.holder.clone(), tenant.gpu.clone());
            let mut so_far = spent.remove(&key).unwrap_or(Spent {
                since: look.at,
                charged,
                had: Duration::ZERO,
                windows: 0,
            });
            let busy = tenant.processes.iter().map(|process| process.busy);
            so_far.had += time * busy.sum::<u32>().min(100) / 100;
            so_far.close(look.at, charged, bounds);
            self.spent.insert(key, so_far);
        }
    }

    /// For how long a process has been seen on a GPU.
    pub(super) fn known_for(&self, id: ProcessId, gpu: &str) -> Duration {
        let known = self.known.get(&(id, gpu.to_owned()));
        known.map_or(Duration::ZERO, |&(_, time)| time)
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
        // An arbiter that charges a job anew begins at zero.
        let paid = charged.saturating_sub(self.charged);
        let most = paid * bounds.times_charged + window * bounds.percent_beyond / 100;
        self.windows = if self.had > most { self.windows + 1 } else { 0 };
        (self.since, self.charged, self.had) = (now, charged, Duration::ZERO);
    }
}
