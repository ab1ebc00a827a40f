//! The turns of a pack's jobs, where they are of several users.
//!
//! Clients of one MPS server run at the same time, and none is held for another there: beside kernels that fill the GPU, small ones
//! are slow. So a job that always has work has its part of the pack's time *alone*: meanwhile the pack's others wait, as their
//! library keeps their launches. In the rest of the time all run at once.
//!
//! Nothing here reads a clock: [`Turns::look`] is told the time and what was seen.

use std::collections::BTreeMap;

use super::{Job, Nanos};

const MS: Nanos = 1_000_000;

/// A turn begins with this much credit. At its begin what others have in flight is still there.
const TURN: Nanos = 16 * MS;
/// The most that a job saves up.
const MOST: Nanos = 4 * TURN;
/// Whether a job always has work is judged after so much time in which it may run, and it does if it has some in so many tenths of it.
const JUDGED: Nanos = 50 * MS;
const TENTHS: Nanos = 9;
/// The interval of looks while a job has turns.
pub const LOOK: Nanos = 4 * MS;

/// A job of the pack since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its part of the pack, as shards of the GPU.
    pub shards: u32,
    /// For how long it had work.
    pub worked: Nanos,
    /// Whether it has some now.
    pub wants_gpu: bool,
}

/// Who has the pack's time alone.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    jobs: BTreeMap<Job, State>,
    alone: Option<Job>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The time that it may still have alone.
    credit: Nanos,
    /// The time in which it could run, and that in which it had work then, since that was judged.
    free: Nanos,
    worked: Nanos,
    /// Whether it always has work, as far as that is known.
    is_busy: bool,
}

impl Turns {
    /// Takes what was seen in this time, in which the pack had the GPU, of all its jobs, and decides.
    pub fn look(&mut self, time: Nanos, seen: &BTreeMap<Job, Seen>) {
        let time = time.max(0);
        self.jobs.retain(|job, _| seen.contains_key(job));
        let all: u32 = seen.values().map(|it| it.shards).sum();
        for (&job, it) in seen {
            let waited = self.waits(job);
            let state = self.jobs.entry(job).or_default();
            if !waited {
                state.note(time, it.worked);
            }
            if state.is_busy {
                let part = time * Nanos::from(it.shards) / Nanos::from(all.max(1));
                state.credit = (state.credit + part).min(MOST);
            } else {
                state.credit = 0;
            }
            if self.alone == Some(job) {
                state.credit -= time;
                if state.credit <= 0 || !it.wants_gpu {
                    self.alone = None;
                }
            }
        }
        self.alone = self.alone.filter(|job| self.jobs.contains_key(job));
        if self.alone.is_none() && self.jobs.len() > 1 {
            let ready = |(job, state): &(&Job, &State)| {
                state.credit >= TURN && seen.get(job).is_some_and(|it| it.wants_gpu)
            };
            let next = self.jobs.iter().filter(ready);
            self.alone = next
                .max_by_key(|(_, state)| state.credit)
                .map(|(&job, _)| job);
        }
    }

    /// Whether a job waits for another's turn.
    pub fn waits(&self, job: Job) -> bool {
        self.alone.is_some_and(|alone| alone != job)
    }

    /// Whether a job has turns, so that the next look is to come soon.
    pub fn are_any(&self) -> bool {
        self.jobs.len() > 1 && self.jobs.values().any(|it| it.is_busy)
    }
}

impl State {
    fn note(&mut self, time: Nanos, worked: Nanos) {
        self.free += time;
        self.worked += worked.clamp(0, time);
        if self.free >= JUDGED {
            self.is_busy = self.worked * 10 >= self.free * TENTHS;
            (self.free, self.worked) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// A pack for this time: for each job its shards, and the part of the time that it could run in which it has work. Returns for each
    /// how long it had the time alone, and how long it could run.
    fn run(jobs: &[(u32, f64)], time: Nanos) -> Vec<(Nanos, Nanos)> {
        let mut turns = Turns::default();
        let mut had = vec![(0, 0); jobs.len()];
        for at in 0..time / LOOK {
            let seen = jobs.iter().zip(0..).map(|(&(shards, part), job)| {
                let seen = Seen {
                    shards,
                    worked: (LOOK as f64 * part) as Nanos,
                    // Who pauses does so at some looks.
                    wants_gpu: part >= 1.0 || at % 10 < (part * 10.0) as Nanos,
                };
                (Job(job), seen)
            });
            turns.look(LOOK, &seen.collect());
            for (job, (alone, ran)) in (0..).zip(&mut had) {
                *alone += if turns.alone == Some(Job(job)) {
                    LOOK
                } else {
                    0
                };
                *ran += if turns.waits(Job(job)) { 0 } else { LOOK };
            }
        }
        had
    }

    proptest! {
        #[test]
        fn who_always_has_work_has_its_part_alone_and_nobody_more(
            jobs in vec((1u32..5, prop_oneof![Just(1.0), 0.0..0.8]), 1..8),
        ) {
            let time = 10_000 * MS;
            let had = run(&jobs, time);
            let all: u32 = jobs.iter().map(|it| it.0).sum();
            for (&(shards, part), &(alone, ran)) in jobs.iter().zip(&had) {
                let due = time * Nanos::from(shards) / Nanos::from(all);
                let is_busy = part >= 1.0 && jobs.len() > 1;
                let due = if is_busy { due } else { 0 };
                prop_assert!((alone - due).abs() <= MOST + JUDGED + TURN, "{alone} of {due}: {jobs:?} {had:?}");
                // The others' turns are all that it waits for.
                let others: Nanos = had.iter().map(|it| it.0).sum::<Nanos>() - alone;
                prop_assert_eq!(ran, time - others);
            }
        }
    }

    #[test]
    fn a_clock_that_goes_back_changes_nothing() {
        let mut turns = Turns::default();
        let seen = Seen {
            shards: 1,
            worked: LOOK,
            wants_gpu: true,
        };
        for time in [LOOK, -LOOK, Nanos::MIN / 2, 0] {
            turns.look(time, &[(Job(1), seen), (Job(2), seen)].into());
        }
        assert!(!turns.are_any() && !turns.waits(Job(1)));
    }

    #[test]
    fn a_turn_ends_when_its_job_has_nothing_to_do() {
        let mut turns = Turns::default();
        let seen = |worked, wants_gpu| Seen {
            shards: 1,
            worked,
            wants_gpu,
        };
        let mut look = |first: Seen| {
            let other = seen(LOOK / 2, false);
            turns.look(LOOK, &[(Job(1), first), (Job(2), other)].into());
            (turns.waits(Job(2)), turns.are_any())
        };
        let mut count = 0;
        while !look(seen(LOOK, true)).0 {
            count += 1;
            assert!(count < 100, "it has no turn");
        }
        assert_eq!(look(seen(LOOK, true)), (true, true));
        assert!(!look(seen(LOOK, false)).0);
        // What it has saved up counts for its next work.
        assert!((0..4).any(|_| look(seen(LOOK, true)).0));
        turns.look(LOOK, &[(Job(2), seen(LOOK, true))].into());
        assert!(!turns.waits(Job(2)));
        assert!(!turns.are_any());
    }
}
