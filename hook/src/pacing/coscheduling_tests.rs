//! Tests of [`super`] and of [`super::super::job_cap`]: two ranks of a job, a GPU each, whose collectives wait for each other, by a
//! clock of their own.

use std::collections::VecDeque;

use softmig_driver_sys::cuda::CUuuid;
use softmig_region::seat::WHOLE;

use super::super::job_cap::JobCap;
use super::super::job_cap::tests::gpus;
use super::super::work::Admission;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const TICK: u64 = 20 * US;
const WINDOW: u64 = MS;
/// A kernel, and a collective without its waiting.
const KERNEL: u64 = 100 * US;
const COLLECTIVE: u64 = 40 * US;

/// This number of GPUs of one job.
fn job(count: usize, share: u32) -> Vec<JobCap> {
    let cap = |gpu| JobCap::new(gpu, share, CUuuid { bytes: [0; 16] });
    gpus(count).into_iter().map(cap).collect()
}

#[derive(Clone, Copy, PartialEq)]
enum Work {
    Kernel,
    Collective(u64),
}

impl Work {
    fn time(self) -> u64 {
        match self {
            Work::Kernel => KERNEL,
            Work::Collective(_) => COLLECTIVE,
        }
    }
}

/// The program of a rank: a number of kernels and a collective, again and again, and once nothing for a while.
#[derive(Clone, Copy)]
struct Program {
    kernels: u64,
    pause_at: u64,
    pause: u64,
}

const PLAIN: Program = Program {
    kernels: 20,
    pause_at: u64::MAX,
    pause: 0,
};

struct Rank {
    cap: JobCap,
    program: Program,
    /// The work that was launched, and when the first of it began.
    queue: VecDeque<Work>,
    began: Option<u64>,
    worked: u64,
    launched: u64,
    asleep_until: u64,
    used: u64,
    dice: u64,
}

impl Rank {
    fn new(cap: JobCap, program: Program, number: u64) -> Self {
        Self {
            cap,
            program,
            queue: VecDeque::new(),
            began: None,
            worked: 0,
            launched: 0,
            asleep_until: 0,
            used: 0,
            dice: number,
        }
    }

    /// Up to that much, at random, the same in each run.
    fn up_to(&mut self, most: u64) -> u64 {
        const MANY: u64 = 6_364_136_223_846_793_005;
        self.dice = self.dice.wrapping_mul(MANY).wrapping_add(1);
        (self.dice >> 33) % most
    }

    fn in_flight(&self) -> u64 {
        self.queue.iter().map(|work| work.time()).sum()
    }

    fn round(&self) -> u64 {
        self.launched / (self.program.kernels + 1)
    }

    fn launch(&mut self, now: u64) {
        while now >= self.asleep_until {
            let at = self.launched % (self.program.kernels + 1);
            if at == 0 && self.round() == self.program.pause_at {
                self.program.pause_at = u64::MAX;
                self.asleep_until = now + self.program.pause;
                return;
            }
            let in_flight = self.in_flight();
            let most = match self.cap.may(now, in_flight, self.used) {
                Admission::InFlight(left) => left.min(WINDOW),
                Admission::OnlyAwaited(ahead) => ahead,
                Admission::RetryAfter(time) => {
                    // Threads sleep a little longer than they wanted.
                    self.asleep_until = now + time.min(MS) + self.up_to(200 * US);
                    return;
                }
                Admission::WaitForTurn(turn) => panic!("there are no turns here: {turn}"),
            };
            if in_flight > 0 && in_flight >= most {
                return;
            }
            let work = if at == self.program.kernels {
                Work::Collective(self.round())
            } else {
                Work::Kernel
            };
            self.queue.push_back(work);
            self.cap.coscheduling.launched(now, work.time());
            self.launched += 1;
        }
    }

    /// The collective that it runs, if it is at one.
    fn collective(&self) -> Option<u64> {
        match self.queue.front() {
            Some(Work::Collective(number)) => Some(*number),
            _ => None,
        }
    }

    /// The GPU works for a tick; `other` is the collective that the other one runs.
    fn work(&mut self, now: u64, other: Option<u64>) {
        let Some(first) = self.queue.front().copied() else {
            return;
        };
        let began = *self.began.get_or_insert(now);
        let waits =
            matches!(first, Work::Collective(number) if other.is_none_or(|other| other < number));
        if !waits {
            self.worked += TICK;
        }
        if self.worked < first.time() {
            return;
        }
        self.queue.pop_front();
        (self.began, self.worked) = (None, 0);
        let end = now + TICK;
        self.used += end - began;
        self.cap.charge(end, end - began, self.in_flight());
        let next = self.queue.front().map(|work| work.time());
        self.cap.coscheduling.moved(end, next);
    }
}

/// How many rounds both got through, and what part of the time each GPU was at work.
fn run(cap: Vec<JobCap>, programs: [Program; 2], time: u64) -> (u64, [f64; 2]) {
    const START: u64 = 1_000_000 * MS;
    let mut ranks: Vec<Rank> = cap
        .into_iter()
        .zip(programs)
        .zip(1..)
        .map(|((cap, program), number)| Rank::new(cap, program, number))
        .collect();
    let mut now = START;
    // How far each collective got: who has ended one has been at it.
    let mut reached = [0, 0];
    while now < START + time {
        for at in [0, 1] {
            ranks[at].launch(now);
            if let Some(number) = ranks[at].collective() {
                reached[at] = number + 1;
            }
        }
        for at in [0, 1] {
            let other = reached[1 - at].checked_sub(1);
            ranks[at].work(now, other);
        }
        now += TICK;
    }
    let rounds = ranks.iter().map(Rank::round).min().unwrap();
    let part = |rank: &Rank| rank.used as f64 / time as f64;
    (rounds, [part(&ranks[0]), part(&ranks[1])])
}

/// The time that the slower one needs for a round.
fn round_time(programs: [Program; 2]) -> u64 {
    let kernels = programs.map(|program| program.kernels).into_iter().max();
    kernels.unwrap() * KERNEL + COLLECTIVE
}

/// The job has at least this part of its share, and at most the share.
fn has_its_share(share: f64, programs: [Program; 2], seconds: u64, least: f64) {
    let cap = job(2, (share * f64::from(WHOLE)) as u32);
    let time = seconds * 1000 * MS;
    let (rounds, parts) = run(cap, programs, time);
    let got = (rounds * round_time(programs)) as f64 / time as f64 / share;
    println!("{share}: {got:.3} of the share in collectives, at work {parts:.3?}");
    assert!(got > least, "{got} of {share}");
    // Launches that went on although they had to wait are paid for: beside the debt at the end, neither rank has more.
    assert!(
        parts.iter().all(|part| *part < share + 0.02),
        "{parts:?} of {share}"
    );
}

#[test]
fn ranks_that_wait_for_each_other_have_their_share() {
    for share in [0.1, 0.25, 0.5, 0.75] {
        has_its_share(share, [PLAIN; 2], 60, 0.84);
    }
}

#[test]
fn collectives_close_to_each_other_cost_a_part_of_it() {
    let program = Program {
        kernels: 1,
        ..PLAIN
    };
    has_its_share(0.25, [program; 2], 60, 0.7);
    has_its_share(0.5, [program; 2], 60, 0.85);
}

#[test]
fn ranks_with_more_and_less_to_do_have_the_share_of_the_slower() {
    let little = Program {
        kernels: 4,
        ..PLAIN
    };
    has_its_share(0.25, [PLAIN, little], 60, 0.75);
    has_its_share(0.25, [little, PLAIN], 60, 0.75);
}

#[test]
fn what_spun_for_a_rank_that_paused_is_paid_once() {
    for pause in [100, 1000, 2000] {
        let pauses = Program {
            pause_at: 100,
            pause: pause * MS,
            ..PLAIN
        };
        // A pause of 2 s is 8 s of the share.
        has_its_share(0.25, [pauses, PLAIN], 60, 0.6);
        has_its_share(0.25, [PLAIN, pauses], 60, 0.6);
    }
}

/// The control for the others: if the GPUs do not share a gang, each wait makes the next one longer.
#[test]
fn gpus_that_do_not_know_of_each_other_keep_each_other_waiting() {
    let share = WHOLE / 4;
    let cap = [job(1, share), job(1, share)]
        .into_iter()
        .flatten()
        .collect();
    let time = 60_000 * MS;
    let (rounds, _) = run(cap, [PLAIN; 2], time);
    let got = (rounds * round_time([PLAIN; 2])) as f64 / time as f64 / 0.25;
    assert!(got < 0.2, "{got}");
}

#[test]
fn gpus_whose_work_does_not_wait_do_not_wait() {
    // One never launches a collective that the other would have to run.
    let alone = Program {
        kernels: u64::MAX - 1,
        ..PLAIN
    };
    let cap = job(2, WHOLE / 4);
    let (_, parts) = run(cap, [alone; 2], 20_000 * MS);
    assert!(
        parts.iter().all(|part| (part - 0.25).abs() < 0.005),
        "{parts:?}"
    );
}
