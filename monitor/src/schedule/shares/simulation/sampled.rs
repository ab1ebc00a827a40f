//! Programs whose work the library samples, in the way of hook/src/pacing/gpu/at_once.rs.

use super::*;

/// The first interval, the longest, and the time from a launch until the thread is awake.
const FIRST: Nanos = 125_000;
const LONGEST: Nanos = 2 * MS;
const WAKES_AFTER: Nanos = 20_000;

/// The thread that samples, and its page.
#[derive(Clone, Debug, Default)]
pub(super) struct Sampler {
    /// The next sample; `None` while the thread sleeps.
    pub(super) next: Option<Nanos>,
    is_woken: bool,
    at: Nanos,
    had_work: bool,
    has_launched: bool,
    interval: Nanos,
    /// The time with work until the last sample, and as the monitor read it.
    worked: Nanos,
    read: Nanos,
}

impl Sampler {
    pub(super) fn launch(&mut self, now: Nanos) {
        self.has_launched = true;
        if self.next.is_none() {
            self.is_woken = true;
            self.next = Some(now + WAKES_AFTER);
        }
    }

    pub(super) fn step(&mut self, now: Nanos, has_work: bool) {
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        let passed = now - std::mem::replace(&mut self.at, now);
        let had_work = std::mem::replace(&mut self.had_work, has_work);
        self.worked += match (had_work, has_work) {
            _ if self.is_woken => 0,
            (true, true) => passed,
            (false, false) => 0,
            _ => passed / 2,
        };
        let stays = has_work || std::mem::take(&mut self.has_launched);
        self.next = stays.then(|| now + self.interval(now));
    }

    fn interval(&mut self, now: Nanos) -> Nanos {
        let random = now.unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let some = |time: Nanos| (random as Nanos * time) >> 32;
        let next = if std::mem::take(&mut self.is_woken) {
            FIRST + some(FIRST)
        } else {
            self.interval * 3 / 2
        };
        self.interval = next.min(LONGEST);
        if next < LONGEST {
            next
        } else {
            LONGEST / 2 + some(LONGEST)
        }
    }

    /// The time with work since this was last read.
    pub(super) fn read(&mut self, now: Nanos) -> Nanos {
        let since = if self.had_work { now - self.at } else { 0 };
        let before = self.read;
        self.read = before.max(self.worked + since);
        self.read - before
    }
}

/// The parts of the GPU that jobs get, and what they are charged.
fn got_and_charged(jobs: &[(u32, u32, Mode, Program)]) -> Vec<[f64; 2]> {
    let (sims, book) = simulate_as(jobs, &[], true);
    let charged = book.jobs().map(|(_, it)| it.charged as f64 / 5e9);
    let done = sims.iter().map(|it| it.done as f64 / 4e9);
    done.zip(charged)
        .map(|(done, charged)| [done, charged])
        .collect()
}

const fn bursts(work_us: Nanos, pause_us: Nanos) -> Program {
    Program::Waits {
        work: work_us * 1_000,
        pause: pause_us * 1_000,
    }
}

#[test]
fn a_cap_holds_bursts_beside_a_job_that_waits_for_its_own() {
    for (shards, own) in [
        (1, bursts(500, 3_000)),
        (1, bursts(1_000, 3_000)),
        (1, bursts(1_000, 4_500)),
        (2, bursts(1_500, 2_500)),
    ] {
        for other in [bursts(100, 100), bursts(500, 500), bursts(1_000, 1_000)] {
            let got = got_and_charged(&[(shards, 8, HARD, own), (4, 8, HARD, other)]);
            let cap = f64::from(shards) / 8.0;
            eprintln!(
                "{shards} {own:?} {other:?}: {:.4?} {:.3}",
                got,
                got[0][0] / cap
            );
        }
    }
}

#[test]
fn bursts_beside_capped_jobs_are_charged_in_full() {
    let jobs = [
        (4, 8, HARD, Program::Queue),
        (2, 8, HARD, bursts(2_000, 20)),
        (1, 8, HARD, bursts(1_000, 19_000)),
    ];
    for [got, charged] in got_and_charged(&jobs) {
        assert_near(&[charged], &[got], 0.006);
    }
}
