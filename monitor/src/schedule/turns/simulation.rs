//! A node with one GPU on a virtual clock: programs, the hook in them, the arbiter around [`Turns`], and what it costs
//! to hand the GPU over.
//!
//! The hook is told as the contract in `softmig_region::seat` tells it. The GPU does one kernel after the other; another
//! process's costs a change of contexts. Of a job's processes that all have work each has it for a [`SLICE`].

mod figures;
mod gangs;
mod hook;
mod shares;
mod trouble;
mod waiting;

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::rc::Rc;

use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use softmig_policy::node::limits::{Mode, Share};

use super::types::MS;
use super::{Gangs, Job, Look, Nanos, Rules, SeatId, Turns};
use hook::{Process, Step};

/// Drawn the same each time. `PROPTEST_RNG_SEED` draws others, and whatever fails is printed whole.
fn cases(count: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: count,
        rng_seed: match default.rng_seed {
            RngSeed::Random => RngSeed::Fixed(5),
            fixed @ RngSeed::Fixed(_) => fixed,
        },
        failure_persistence: None,
        ..default
    }
}

const US: Nanos = 1000;
const SECOND: Nanos = 1000 * MS;

/// From the ringing of a futex to the first instruction of who waited there.
const WAKE_UP: Nanos = 20 * US;
/// And how much later it may be: processors sleep, too.
const LATE: Nanos = 250 * US;
/// From the last kernel of one process to the first of another.
const SWITCH: Nanos = 140 * US;
/// For how long the driver lets one of several processes have the GPU.
const SLICE: Nanos = 2 * MS;
/// How much later than another a rank goes on, at most.
const UNEVEN: Nanos = 100 * US;
/// The part of a collective in which it does not wait.
const COLLECTIVE: Nanos = 40 * US;
/// From a process's death to the end of its kernel, at most.
const LAST: Nanos = 10 * MS;
/// From a process's death to the arbiter's hearing of it.
const OBITUARY: Nanos = 100 * US;

/// How a program launches.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// One kernel after the other, without looking.
    Greedy,
    /// It waits for each kernel, and then thinks for this time.
    Steps(Nanos),
    /// The work at the beginning of each period.
    Bursts { work: Nanos, every: Nanos },
}

/// A program and what befalls it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub(super) job: Job,
    pub(super) share: (u32, u32),
    pub(super) mode: Mode,
    pub(super) pace: Pace,
    /// The shortest and the longest kernel.
    pub(super) kernel: (Nanos, Nanos),
    pub(super) from: Nanos,
    pub(super) dies: Option<Nanos>,
    /// Stopped by a signal between these times.
    pub(super) stopped: Option<(Nanos, Nanos)>,
    /// It keeps every turn, and says that it never used anything.
    pub(super) lies: bool,
    /// Its job has more GPUs.
    pub(super) gang: Option<Gang>,
}

/// The relation of a program to its job's work on other GPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gang {
    /// After this number of kernels comes a collective, which ends when it runs on all GPUs.
    pub(super) kernels: Option<u64>,
    /// So it says.
    pub(super) together: bool,
}

impl Program {
    pub(super) fn new(job: u32, share: (u32, u32), mode: Mode, kernel: Nanos) -> Self {
        Self {
            job: Job(job),
            share,
            mode,
            pace: Pace::Greedy,
            kernel: (kernel, kernel),
            from: 0,
            dies: None,
            stopped: None,
            lies: false,
            gang: None,
        }
    }

    pub(super) fn hard(job: u32, share: (u32, u32), kernel: Nanos) -> Self {
        Self::new(job, share, Mode::Hard, kernel)
    }

    pub(super) fn soft(job: u32, share: (u32, u32), kernel: Nanos) -> Self {
        Self::new(job, share, Mode::Soft, kernel)
    }

    pub(super) fn paced(self, pace: Pace) -> Self {
        Self { pace, ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The arbiter's timer or a bell.
    Arbiter,
    /// Something for a process to do.
    Process(usize),
    /// The time that it waits for.
    Timer(usize),
    /// The running kernel ends.
    Gpu,
    Arrives(usize),
    Dies(usize),
    Buried(usize),
}

#[derive(Clone, Copy, Debug)]
struct Kernel {
    process: usize,
    length: Nanos,
    /// How many collectives its process has launched with it.
    collective: Option<u64>,
    began: Nanos,
    /// How long it keeps the GPU busy, as far as that is known.
    took: Nanos,
}

/// The node.
pub(super) struct World {
    pub(super) now: Nanos,
    pub(super) turns: Turns,
    pub(super) processes: Vec<Process>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    count: u64,
    /// How much has happened at this time.
    still: u32,
    /// When the arbiter is to look next.
    arbiter_at: Nanos,
    queue: VecDeque<Kernel>,
    running: Option<Kernel>,
    /// Collectives that wait for other GPUs: other jobs' kernels then have half of this one.
    spinning: Vec<Kernel>,
    /// Which collective each job came to.
    reached: BTreeMap<Job, u64>,
    gangs: Rc<RefCell<Gangs>>,
    gpu: usize,
    /// When that ends.
    gpu_at: Nanos,
    /// Whose context is on the GPU.
    context: Option<usize>,
    /// Since when.
    context_since: Nanos,
    pub(super) busy: Nanos,
    random: u64,
}

impl World {
    pub(super) fn new(rules: Rules, programs: &[Program], seed: u64) -> Self {
        let mut world = Self {
            now: 0,
            turns: Turns::new(0, rules),
            processes: programs.iter().map(|&it| Process::new(it)).collect(),
            events: BinaryHeap::new(),
            count: 0,
            still: 0,
            arbiter_at: Nanos::MAX,
            queue: VecDeque::new(),
            running: None,
            spinning: Vec::new(),
            reached: BTreeMap::new(),
            gangs: Rc::default(),
            gpu: 0,
            gpu_at: Nanos::MAX,
            context: None,
            context_since: 0,
            busy: 0,
            random: seed,
        };
        for (at, program) in programs.iter().enumerate() {
            world.schedule(program.from, Event::Arrives(at));
            if let Some(time) = program.dies {
                world.schedule(time, Event::Dies(at));
            }
            if let Some((_, time)) = program.stopped {
                world.schedule(time, Event::Process(at));
            }
        }
        world
    }

    /// Lets time pass until then.
    pub(super) fn run_until(&mut self, end: Nanos) {
        while let Some(&Reverse((time, _, event))) = self.events.peek() {
            if time > end {
                break;
            }
            self.events.pop();
            self.still = if self.now == time { self.still + 1 } else { 0 };
            assert!(self.still < 1000, "time stands still at {time}: {event:?}");
            self.now = time;
            self.happens(event);
        }
        self.now = end;
    }

    /// How much of the time each job's kernels ran from then on, in the order of the programs.
    pub(super) fn shares_over(&mut self, from: Nanos, to: Nanos) -> Vec<f64> {
        self.run_until(from);
        let before: Vec<Nanos> = self.processes.iter().map(|it| it.worked).collect();
        self.run_until(to);
        let after = self.processes.iter().map(|it| it.worked);
        let part = |time: Nanos| time as f64 / (to - from) as f64;
        let parts = after
            .zip(before)
            .map(|(after, before)| part(after - before));
        parts.collect()
    }

    fn schedule(&mut self, time: Nanos, event: Event) {
        self.count += 1;
        self.events.push(Reverse((time, self.count, event)));
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Arbiter if self.arbiter_at == self.now => self.look(),
            Event::Arbiter => {}
            Event::Process(at) => self.act(at),
            Event::Timer(at) if self.processes[at].timer == self.now => {
                self.processes[at].timer = Nanos::MAX;
                self.act(at);
            }
            Event::Timer(_) => {}
            Event::Gpu if self.gpu_at == self.now => self.kernel_ends(),
            Event::Gpu => {}
            Event::Arrives(at) => {
                let program = self.processes[at].program;
                let share = Share::new(program.share.0, program.share.1).unwrap();
                let seat = self.turns.sit(self.now, program.job, share, program.mode);
                self.processes[at].seat = Some(seat);
                self.act(at);
            }
            Event::Dies(at) => {
                self.processes[at].is_dead = true;
                self.queue.retain(|kernel| kernel.process != at);
                self.spinning.retain(|kernel| kernel.process != at);
                self.cut_short(at);
                self.schedule(self.now + OBITUARY, Event::Buried(at));
            }
            Event::Buried(at) => {
                if let Some(seat) = self.processes[at].seat.take() {
                    self.turns.leave(self.now, seat);
                    self.look();
                }
            }
        }
    }

    fn wake_arbiter(&mut self, time: Nanos) {
        // A timer that is due later is set anew by the look.
        if time < self.arbiter_at {
            self.arbiter_at = time;
            self.schedule(time, Event::Arbiter);
        }
    }

    fn look(&mut self) {
        self.arbiter_at = Nanos::MAX;
        for again in 0.. {
            assert!(
                again < 10,
                "the arbiter looks for ever at {}: {:#?}",
                self.now,
                self.turns
            );
            for process in self.processes.iter().filter(|it| !it.is_dead) {
                if let Some(seat) = process.seat {
                    self.turns.hear(seat, process.said);
                }
            }
            self.turns
                .note_elsewhere(self.now, self.gpu, &self.gangs.borrow());
            let Look { orders, next } = self.turns.look(self.now);
            (self.turns).tell_others(self.gpu, &mut self.gangs.borrow_mut());
            for order in orders {
                let at = self.process_at(order.seat);
                self.processes[at].word = order.word;
                if let Some(terms) = order.terms {
                    self.processes[at].terms = terms;
                }
                let time = self.now + self.wake_up();
                self.schedule(time, Event::Process(at));
            }
            match next {
                Some(time) if time <= self.now => {}
                Some(time) => {
                    let time = time + self.wake_up();
                    return self.wake_arbiter(time);
                }
                None => return,
            }
        }
    }

    fn process_at(&self, seat: SeatId) -> usize {
        let is_his = |it: &Process| it.seat == Some(seat);
        self.processes.iter().position(is_his).unwrap()
    }

    /// A process does what it can.
    fn act(&mut self, at: usize) {
        loop {
            let process = &mut self.processes[at];
            if process.is_dead || process.seat.is_none() || process.is_stopped(self.now) {
                return;
            }
            match process.step(self.now) {
                Step::Launch => self.launch(at),
                Step::Ring => {
                    let time = self.now + self.wake_up();
                    self.wake_arbiter(time);
                }
                Step::WaitUntil(time) if time < process.timer => {
                    process.timer = time;
                    return self.schedule(time, Event::Timer(at));
                }
                Step::WaitUntil(_) => return,
                Step::Wait => return,
            }
        }
    }

    fn launch(&mut self, process: usize) {
        let (shortest, longest) = self.processes[process].program.kernel;
        let collective = self.processes[process].next_collective();
        let length = match collective {
            Some(_) => COLLECTIVE,
            None => shortest + self.draw(longest - shortest),
        };
        self.processes[process].launched(self.now, length);
        self.queue.push_back(Kernel {
            process,
            length,
            collective,
            began: self.now,
            took: length,
        });
        self.start_kernel();
    }

    fn wake_up(&mut self) -> Nanos {
        WAKE_UP + self.draw(LATE)
    }

    /// Up to `most`.
    fn draw(&mut self, most: Nanos) -> Nanos {
        if most == 0 {
            return 0;
        }
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 1) as Nanos % (most + 1)
    }

    /// Which kernel comes in the place of the first: of the processes of a job, one goes on for a slice.
    fn in_its_slice(&self, first: usize, spins: impl Fn(&Kernel) -> bool) -> usize {
        let job_of = |it: &Kernel| self.processes[it.process].program.job;
        let job = self.queue.get(first).map(job_of);
        let is_over = self.now - self.context_since >= SLICE;
        let goes_on = |it: &Kernel| (self.context == Some(it.process)) != is_over;
        let mut kernels = self.queue.iter();
        let next = kernels.position(|it| Some(job_of(it)) == job && !spins(it) && goes_on(it));
        next.unwrap_or(first)
    }

    fn start_kernel(&mut self) {
        if self.running.is_some() {
            return;
        }
        let spins = |it: &Kernel| {
            self.spinning
                .iter()
                .any(|other| other.process == it.process)
        };
        let Some(at) = self.queue.iter().position(|it| !spins(it)) else {
            return;
        };
        let at = self.in_its_slice(at, spins);
        let Some(mut kernel) = self.queue.remove(at) else {
            return;
        };
        let job = self.processes[kernel.process].program.job;
        kernel.began = self.now;
        kernel.took = kernel.length * (1 + self.spinning.len() as Nanos);
        if let Some(number) = kernel.collective {
            self.reached.insert(job, number);
            self.spinning.push(kernel);
            return self.start_kernel();
        }
        let is_same = self.context == Some(kernel.process);
        let switch = if is_same { 0 } else { SWITCH };
        if !is_same {
            self.context = Some(kernel.process);
            self.context_since = self.now;
        }
        self.running = Some(kernel);
        self.gpu_at = self.now + switch + kernel.took;
        self.schedule(self.gpu_at, Event::Gpu);
    }

    /// A job's collective with that number has ended everywhere.
    pub(super) fn end_collective(&mut self, job: Job, number: u64) {
        let is_it = |it: &Kernel| {
            it.collective == Some(number) && self.processes[it.process].program.job == job
        };
        let Some(at) = self.spinning.iter().position(is_it) else {
            return;
        };
        let kernel = self.spinning.remove(at);
        let process = &mut self.processes[kernel.process];
        process.kernel_ended(self.now, kernel.length, self.now - kernel.began);
        self.start_kernel();
        self.act_soon(kernel.process);
    }

    /// A process sees that a kernel has ended. One of several ranks is not as far as the others then.
    fn act_soon(&mut self, at: usize) {
        if self.processes[at].program.gang.is_none() {
            return self.act(at);
        }
        let time = self.now + self.draw(UNEVEN);
        self.schedule(time, Event::Process(at));
    }

    /// A kernel does not live much longer than its process.
    fn cut_short(&mut self, process: usize) {
        let Some(kernel) = &mut self.running else {
            return;
        };
        let rest = self.gpu_at - self.now;
        if kernel.process == process && rest > LAST {
            kernel.length -= rest - LAST;
            self.gpu_at = self.now + LAST;
            self.schedule(self.gpu_at, Event::Gpu);
        }
    }

    fn kernel_ends(&mut self) {
        let Some(kernel) = self.running.take() else {
            return;
        };
        self.busy += kernel.length;
        self.start_kernel();
        self.processes[kernel.process].kernel_ended(self.now, kernel.length, kernel.took);
        self.act_soon(kernel.process);
    }
}
