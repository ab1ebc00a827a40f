//! Jobs that others wait for in vain.

use super::{CLASSIFY_EVERY, Held, JobState, Nanos, RECHECK, Sharing};

/// Jobs are held for others for this long before it is judged whether the others use that time. If not, they do not wait for them
/// for `CLASSIFY_EVERY`.
const PATIENCE: Nanos = 2 * RECHECK;

impl Sharing {
    /// Jobs for which others are held, and which leave the GPU idle, are not waited for any more for a while. A job leaves it idle
    /// while nobody is there, or while the job itself says that it has no work. No other job can say that of it.
    pub(super) fn note_idle(&mut self, time: Nanos) {
        let is_any_held = self.jobs.values().any(|it| it.held == Some(Held::Ahead));
        let used = |by: fn(&JobState) -> Nanos| {
            let all = self.jobs.values();
            all.map(|it| by(it) + it.unseated + it.changing)
                .sum::<Nanos>()
        };
        let empty = (time - used(|it| it.resident)).max(0);
        let idle = (time - used(|it| it.resident.min(it.pending))).max(0);
        self.waited += time;
        for state in self.jobs.values_mut() {
            state.idle += empty.max(idle.min(time - state.pending));
        }
        // What was before the next hold says nothing about it.
        if is_any_held && self.waited < PATIENCE {
            return;
        }
        let until = self.looked + CLASSIFY_EVERY;
        for state in self.jobs.values_mut() {
            let leaves_idle = std::mem::take(&mut state.idle) > self.waited / 2;
            // A job that has just ended its work wants nothing any more.
            let is_waited_for = !state.is_held() && state.is_backlogged && state.wants_gpu;
            if is_any_held && leaves_idle && is_waited_for {
                state.waited_for_from = until;
            }
        }
        self.waited = 0;
    }
}
