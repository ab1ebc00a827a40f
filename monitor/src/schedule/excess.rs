//! Jobs that have more than their share for long by processes that cannot be held alone, while others have less than theirs.
//!
//! All figures are those of the GPU's log. A process that cannot be held keeps its job's cap itself if it has the library; that is
//! within 5 points over ten seconds ([figures](../../../bench/results/cap.md)), but for kernels of half a second and more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use softmig_policy::node::limits::Share;

use super::shares::share_of;
use super::types::{Job, Nanos};

const SECOND: Nanos = 1_000_000_000;
/// The window in which time is compared, in seconds.
const WINDOW: usize = 10;
/// A job has more than its share if it is by more than this part of the window, in percent.
const MARGIN: Nanos = 6;
/// Others have less than theirs if it is by more than this part of the window together, in percent.
const LACK: Nanos = 5;
/// A job with less than this percentage of the window does not count as lacking time: it waits for something else.
const LEAST: Nanos = 1;
/// Others wanted the GPU if they did for this part of the window, in percent.
const WANTED: Nanos = 90;
/// Only processes that were on the GPU in so many last seconds are named. The second that runs counts.
const LATE: usize = 3;
/// A longer time without a look is left out of the window. After one as long as `FORGET` the window begins anew.
const LONGEST: Nanos = SECOND / 10;
const FORGET: Nanos = SECOND;

/// What a job did since the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Its share.
    pub share: Share,
    /// The time that its processes were on the GPU.
    pub had: Nanos,
    /// Whether a process that can be held says that it wants the GPU.
    pub wants_gpu: bool,
    /// The time of its processes that cannot be held, or ran while they were.
    pub loose_time: Nanos,
    /// These processes.
    pub loose: BTreeSet<u32>,
}

/// The last seconds of a GPU.
#[derive(Clone, Debug, Default)]
pub struct Excess {
    looked: Nanos,
    began: Nanos,
    /// The last one is not over.
    seconds: VecDeque<BTreeMap<Job, Second>>,
}

#[derive(Clone, Debug)]
struct Second {
    share: Share,
    had: Nanos,
    loose_time: Nanos,
    /// The time for which it wanted the GPU.
    wanted: Nanos,
    loose: BTreeSet<u32>,
}

impl Excess {
    /// Takes what jobs did since the last look.
    pub fn note(&mut self, now: Nanos, uses: BTreeMap<Job, Use>) {
        let time = now - std::mem::replace(&mut self.looked, now);
        if time > LONGEST {
            // What jobs had in the pause is in no window.
            self.began += time;
            if time > FORGET {
                self.seconds.clear();
            }
            return;
        }
        if self.seconds.is_empty() || now - self.began >= SECOND {
            self.began = now;
            self.seconds.push_back(BTreeMap::new());
            // Full ones, and the one that begins.
            while self.seconds.len() > WINDOW + 1 {
                self.seconds.pop_front();
            }
        }
        let Some(last) = self.seconds.back_mut() else {
            return;
        };
        for (job, by) in uses {
            let second = last.entry(job).or_insert(Second {
                share: by.share,
                had: 0,
                loose_time: 0,
                wanted: 0,
                loose: BTreeSet::new(),
            });
            second.had += by.had;
            second.loose_time += by.loose_time;
            second.wanted += if by.wants_gpu { time } else { 0 };
            second.loose.extend(by.loose);
        }
    }

    /// Forgets all: nobody can tell who is on the GPU.
    pub fn clear(&mut self) {
        self.seconds.clear();
    }

    /// The jobs that had more than their share in the whole window, with those of their processes that cannot be held and were on
    /// the GPU of late.
    pub fn found(&self) -> BTreeMap<Job, BTreeSet<u32>> {
        if self.seconds.len() <= WINDOW {
            return BTreeMap::new();
        }
        let window = WINDOW as Nanos * SECOND;
        let part = |percent: Nanos| window / 100 * percent;
        let mut sums: BTreeMap<Job, Second> = BTreeMap::new();
        for (job, second) in self.seconds.iter().take(WINDOW).flatten() {
            let sum = sums.entry(*job).or_insert_with(|| Second {
                had: 0,
                loose_time: 0,
                wanted: 0,
                ..second.clone()
            });
            sum.had += second.had;
            sum.loose_time += second.loose_time;
            sum.wanted += second.wanted;
        }
        // A process that can be held by now is no longer named.
        let late = self.seconds.iter().rev().take(LATE);
        let loose = |job: Job| -> BTreeSet<u32> {
            let of_job = late.clone().filter_map(|second| second.get(&job));
            of_job.flat_map(|second| &second.loose).copied().collect()
        };
        let lack: Nanos = sums
            .values()
            .filter(|sum| sum.wanted >= part(WANTED) && sum.had >= part(LEAST))
            .map(|sum| (share_of(sum.share, window) - sum.had).max(0))
            .sum();
        let is_beyond = |sum: &Second| sum.loose_time > share_of(sum.share, window) + part(MARGIN);
        if lack < part(LACK) {
            return BTreeMap::new();
        }
        let found = sums.into_iter().filter(|(_, sum)| is_beyond(sum));
        let found = found.map(|(job, _)| (job, loose(job)));
        found.filter(|(_, loose)| !loose.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOOK: Nanos = 4_000_000;

    /// A job with a share of so many eighths, that has so many percent of the GPU, and may have a process that cannot be held.
    #[derive(Clone, Copy, Debug)]
    struct Plays {
        eighths: u32,
        percent: Nanos,
        wants_gpu: bool,
        is_loose: bool,
    }

    fn plays(eighths: u32, percent: Nanos, is_loose: bool) -> Plays {
        Plays {
            eighths,
            percent,
            wants_gpu: true,
            is_loose,
        }
    }

    /// The first second in which a job is found, and which.
    fn found(seconds: Nanos, mut jobs: impl FnMut(Nanos) -> Vec<Plays>) -> Option<(Nanos, Job)> {
        let mut excess = Excess::default();
        let end = seconds * SECOND / LOOK;
        (1..=end).find_map(|look| {
            let at = look * LOOK;
            let uses = (0..).zip(jobs(at / SECOND)).map(|(number, it)| {
                let loose = it.is_loose.then_some(100 + number);
                let by = Use {
                    share: Share::new(it.eighths, 8).unwrap(),
                    had: LOOK * it.percent / 100,
                    wants_gpu: it.wants_gpu,
                    loose_time: if it.is_loose {
                        LOOK * it.percent / 100
                    } else {
                        0
                    },
                    loose: loose.into_iter().collect(),
                };
                (Job(number), by)
            });
            excess.note(at, uses.collect());
            let found = excess.found().into_iter().next();
            found.map(|(job, loose)| {
                assert_eq!(loose, [100 + job.0].into());
                (at / SECOND, job)
            })
        })
    }

    #[test]
    fn who_takes_more_than_a_share_for_ten_seconds_is_found() {
        // A quarter that has half of the GPU or more.
        for percent in [48, 74] {
            let both = |_| vec![plays(2, percent, true), plays(6, 100 - percent, false)];
            assert_eq!(found(60, both), Some((10, Job(0))));
        }
        let three = |_| {
            vec![
                plays(2, 34, true),
                plays(2, 22, false),
                plays(2, 22, false),
                plays(2, 22, false),
            ]
        };
        assert_eq!(found(60, three), Some((10, Job(0))));
        // One that rests for a second has its ten seconds on average, too.
        let rests = |second| {
            vec![
                plays(2, if second % 5 == 0 { 0 } else { 60 }, true),
                plays(6, 40, false),
            ]
        };
        assert!(found(60, rests).is_some_and(|(second, _)| second <= 12));
    }

    #[test]
    fn who_can_be_held_or_takes_what_nobody_wants_is_not_found() {
        let held = |_| vec![plays(2, 74, false), plays(6, 26, false)];
        let alone = |_| vec![plays(2, 100, true)];
        let wants_nothing = |_| {
            let idle = Plays {
                wants_gpu: false,
                ..plays(6, 10, false)
            };
            vec![plays(2, 90, true), idle]
        };
        let within_the_caps_error = |_| vec![plays(2, 30, true), plays(6, 70, false)];
        let others_have_theirs = |_| vec![plays(2, 60, true), plays(2, 24, false)];
        // It only copies, or waits for the host.
        let is_never_there = |_| vec![plays(2, 60, true), plays(6, 0, false)];
        for jobs in [
            held,
            alone,
            wants_nothing,
            within_the_caps_error,
            others_have_theirs,
            is_never_there,
        ] {
            assert_eq!(found(60, jobs), None);
        }
        // What a job had in a pause without looks is not compared.
        let mut excess = Excess::default();
        let uses = |time: Nanos| {
            let by = |eighths, had, loose: &[u32]| Use {
                share: Share::new(eighths, 8).unwrap(),
                had,
                wants_gpu: true,
                loose_time: had,
                loose: loose.iter().copied().collect(),
            };
            BTreeMap::from([(Job(0), by(2, time, &[7])), (Job(1), by(6, time / 50, &[]))])
        };
        let mut now = 0;
        let mut look = |excess: &mut Excess, time: Nanos| {
            now += time;
            excess.note(now, uses(time));
        };
        for _ in 0..=100 {
            look(&mut excess, SECOND / 10);
        }
        assert_eq!(excess.found().len(), 1);
        look(&mut excess, 20 * SECOND);
        assert_eq!(excess.found(), BTreeMap::new());
        // On a busy machine it takes longer.
        for second in 1..=18 {
            look(&mut excess, SECOND / 3);
            for _ in 0..10 {
                look(&mut excess, SECOND / 15);
            }
            let is_found = !excess.found().is_empty();
            assert!(
                is_found == (second > 16) || (15..=16).contains(&second),
                "{second}"
            );
        }
    }

    proptest! {
        /// Whatever jobs do that keep their shares within the cap's error, none is found, with others' processes loose or not.
        #[test]
        fn no_job_within_its_share_is_found(
            seconds in prop::collection::vec((0i64..=30, 0i64..=75, any::<bool>(), any::<bool>()), 40),
        ) {
            // Not more than 30 % over any ten seconds: each second has no more.
            let jobs = |second: Nanos| {
                let (one, other, one_wants, other_wants) = seconds[usize::try_from(second).unwrap_or(0).min(39)];
                let one = Plays { wants_gpu: one_wants, ..plays(2, one, true) };
                let other = Plays { wants_gpu: other_wants, ..plays(6, other.min(100 - one.percent), false) };
                vec![one, other]
            };
            prop_assert_eq!(found(40, jobs), None);
        }
    }
}
