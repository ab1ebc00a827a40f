//! Thousands of honest jobs, which do all that honest jobs do, and none of which is ended.

use super::tests::{all, id, process, slice};
use super::*;
use crate::enforce::observation::{Process, Seat};

const JOBS: u32 = 10_000;
const JOBS_AT_ONCE: u32 = 50;
const OBSERVATIONS: u64 = 40;
/// Milliseconds between two events of a job.
const EVENT: u64 = 200;
const SLICE_MIB: u64 = 10_000;
/// The time in which each context is made.
const LONGEST_START: u64 = 5000;
/// The time for which a dead process's memory stays charged.
const CHARGED_AFTER_DEATH: u64 = 1000;

/// xorshift64*: the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

/// The steps that a job's program repeats, beside those of all programs.
#[derive(Clone, Copy, Debug)]
enum Habit {
    /// Workers come and go.
    Forks,
    /// Allocates until that is refused, dies of it, and is started anew.
    RunsOutOfMemory,
    /// Is killed at any moment, and started anew at once.
    IsKilled,
    /// Gives its memory back and takes it again, as for a checkpoint.
    Checkpoints,
    /// Becomes another program, with its number and its seat.
    Execs,
    /// Comes where other users have nearly all seats, so that some get none.
    FindsNoRoom,
}

const HABITS: [Habit; 6] = [
    Habit::Forks,
    Habit::RunsOutOfMemory,
    Habit::IsKilled,
    Habit::Checkpoints,
    Habit::Execs,
    Habit::FindsNoRoom,
];

/// An honest job: its library charges each allocation before the driver has it, and asks for a seat once its context is made, which
/// keeps the GPU busy.
struct Honest {
    habit: Habit,
    job: u32,
    next_pid: u32,
    processes: Vec<Process>,
    /// When each began.
    began: BTreeMap<ProcessId, u64>,
    /// The memory of dead processes, and until when it stays charged.
    dead: Vec<(u64, u64)>,
}

impl Honest {
    fn new(job: u32, random: &mut Random) -> Self {
        Self {
            habit: HABITS[random.below(HABITS.len() as u64) as usize],
            job,
            next_pid: job * 1000,
            processes: Vec::new(),
            began: BTreeMap::new(),
            dead: Vec::new(),
        }
    }

    fn start(&mut self, now: u64, random: &mut Random) {
        // A number may come again, for a process that began later.
        self.next_pid = self.job * 1000 + (self.next_pid + 1) % 7;
        let mut id = id(self.next_pid);
        id.began += random.below(u64::from(u32::MAX));
        self.began.insert(id, now);
        self.processes.push(Process {
            id,
            seat: Seat::Expected,
            busy: random.below(3) as u32,
            ..process(0, 0)
        });
    }

    fn held(&self) -> u64 {
        let alive = self.processes.iter().filter_map(|it| it.memory);
        alive.map(|bytes| bytes >> 20).sum::<u64>()
            + self.dead.iter().map(|dead| dead.0).sum::<u64>()
    }

    /// Whether there was room.
    fn allocate(&mut self, at: usize, mib: u64) -> bool {
        let has_room = self.held() + mib <= SLICE_MIB;
        if has_room {
            let memory = self.processes[at].memory.get_or_insert(0);
            *memory += mib << 20;
        }
        has_room
    }

    fn die(&mut self, at: usize, now: u64) {
        let process = self.processes.swap_remove(at);
        let mib = process.memory.unwrap_or(0) >> 20;
        self.dead.push((mib, now + CHARGED_AFTER_DEATH));
    }

    fn launch(&mut self, at: usize, random: &mut Random) {
        let process = &mut self.processes[at];
        if process.seat == Seat::Expected {
            let is_refused = matches!(self.habit, Habit::FindsNoRoom) && random.below(3) == 0;
            process.seat = if is_refused {
                Seat::Excused
            } else {
                Seat::Given
            };
        }
        process.busy = 1 + random.below(100) as u32;
    }

    fn step(&mut self, now: u64, random: &mut Random) {
        self.dead.retain(|dead| dead.1 > now);
        for at in 0..self.processes.len() {
            let process = self.processes[at];
            if process.seat == Seat::Expected && now >= self.began[&process.id] + LONGEST_START {
                self.launch(at, random);
            }
        }
        if self.processes.is_empty() || (self.processes.len() < 6 && random.below(8) == 0) {
            return self.start(now, random);
        }
        let at = random.below(self.processes.len() as u64) as usize;
        match (random.below(6), self.habit) {
            (0 | 1, _) => self.launch(at, random),
            (2, Habit::RunsOutOfMemory) => {
                while self.allocate(at, 1 + random.below(3000)) {}
                self.die(at, now);
                self.start(now, random);
            }
            (2, Habit::IsKilled) => {
                self.die(at, now);
                self.start(now, random);
            }
            (2, Habit::Checkpoints) => self.processes[at].memory = Some(0),
            (2, Habit::Execs) => {
                let process = &mut self.processes[at];
                (process.memory, process.busy) = (Some(0), 0);
            }
            (2, Habit::Forks | Habit::FindsNoRoom) if self.processes.len() > 2 => self.die(at, now),
            (3, _) if random.below(20) == 0 => self.die(at, now),
            (3 | 4, _) => {
                self.allocate(at, random.below(4000));
            }
            _ => {}
        }
    }

    fn tenant(&mut self) -> Tenant {
        let tenant = slice(self.job, self.processes.clone());
        // From here on a new time begins.
        for process in &mut self.processes {
            let is_making_its_context = process.seat == Seat::Expected && process.busy > 0;
            process.busy = u32::from(is_making_its_context);
        }
        tenant
    }
}

/// The violations of these honest jobs, beside one that may have got past the library.
fn violations(jobs: std::ops::Range<u32>, escapes: bool) -> Vec<Violation> {
    let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ u64::from(jobs.start));
    let mut honest: Vec<_> = jobs.map(|job| Honest::new(job, &mut random)).collect();
    let mut evaluator = Evaluator::default();
    let (mut found, mut now) = (Vec::new(), 0);
    for _ in 0..OBSERVATIONS {
        let wait = [250, 500, 1000][random.below(3) as usize];
        let until = now + wait;
        while now < until {
            now += EVENT;
            honest.iter_mut().for_each(|job| job.step(now, &mut random));
        }
        let mut tenants: Vec<_> = honest.iter_mut().map(Honest::tenant).collect();
        if escapes {
            let escaped = Process {
                busy: 50,
                seat: Seat::None,
                ..process(1, 100)
            };
            tenants.push(slice(u32::MAX, vec![escaped]));
        }
        let observation = Observation {
            at: Duration::from_millis(now),
            tenants,
            unattributed: Vec::new(),
        };
        let evaluation = evaluator.evaluate(&observation, &all(), &BTreeSet::new());
        found.extend(evaluation.violations);
    }
    found
}

#[test]
fn of_ten_thousand_honest_jobs_none_is_ended() {
    for first in (0..JOBS).step_by(JOBS_AT_ONCE as usize) {
        let found = violations(first..first + JOBS_AT_ONCE, false);
        assert!(found.is_empty(), "{found:?}");
    }
}

#[test]
fn among_honest_jobs_one_that_is_not_is_found() {
    let found = violations(0..JOBS_AT_ONCE, true);
    let holders: BTreeSet<_> = found.iter().map(|it| it.holder.clone()).collect();
    assert!(holders.contains(&Holder::Job(u32::MAX)), "{holders:?}");
    assert!(found.iter().filter(|it| it.rule == Rule::Seat).count() as u64 >= OBSERVATIONS - 2);
}
