//! The hook in a process, and the program around it.

use softmig_region::seat::{CONTENDED, OPEN};

use super::super::{Nanos, Said, SeatId, Terms};
use super::{Gang, MS, Pace, Program, US};

/// How much work is in flight at most, if that is more than one kernel.
const WINDOW: Nanos = MS;
/// It gives its turn back with this much in flight: the last work runs while the next job gets ready.
const AHEAD: Nanos = 700 * US;
/// The time before the beginning of its turn at which it launches.
const EARLY: Nanos = 250 * US;
/// The time after its turn for which a process waits for work that does not end when it should.
const PATIENCE: Nanos = 30 * MS;
/// The time that a process rests before it gives back a turn that another job waits for.
const REST: Nanos = 100 * US;

/// The next step of a process.
pub(super) enum Step {
    Launch,
    /// It has changed its page.
    Ring,
    WaitUntil(Nanos),
    Wait,
}

/// A process: what it said, the contents of its page, and the wishes of its program.
pub(in super::super) struct Process {
    pub(super) program: Program,
    pub(super) seat: Option<SeatId>,
    pub(super) is_dead: bool,
    pub(super) said: Said,
    pub(super) word: u32,
    pub(super) terms: Terms,
    /// The sum of the kernels that ended.
    pub(super) worked: Nanos,
    /// How long each burst or step took, from when the program wanted it to the end of its last kernel.
    pub(super) steps: Vec<Nanos>,
    /// When it is to act next.
    pub(super) timer: Nanos,
    used: Nanos,
    in_flight: Nanos,
    kernels: u32,
    /// When the program wants its next kernel, if it knows.
    ready: Option<Nanos>,
    /// The rest of a burst, not launched yet.
    burst: Nanos,
    began: Nanos,
    idle_since: Nanos,
    /// When its oldest kernel that is under way can have begun.
    progress: Nanos,
    /// How many kernels and collectives were launched.
    launches: u64,
    /// Since when its turn is over.
    ending_since: Option<Nanos>,
}

impl Process {
    pub(super) fn new(program: Program) -> Self {
        Self {
            program,
            seat: None,
            is_dead: false,
            said: Said {
                together: program.gang.is_some_and(|gang| gang.together),
                ..Said::default()
            },
            word: 0,
            terms: Terms {
                from: 0,
                ahead: 0,
                until: 0,
                budget: 0,
            },
            worked: 0,
            steps: Vec::new(),
            timer: Nanos::MAX,
            used: 0,
            in_flight: 0,
            kernels: 0,
            ready: Some(program.from),
            burst: match program.pace {
                Pace::Bursts { work, .. } => work,
                Pace::Greedy | Pace::Steps(_) => 0,
            },
            began: program.from,
            idle_since: program.from,
            progress: 0,
            launches: 0,
            ending_since: None,
        }
    }

    pub(super) fn is_stopped(&self, now: Nanos) -> bool {
        let stopped = self.program.stopped;
        stopped.is_some_and(|(from, to)| from <= now && now < to)
    }

    fn is_open(&self) -> bool {
        self.word & OPEN != 0 && self.said.done != self.word
    }

    pub(super) fn step(&mut self, now: Nanos) -> Step {
        match self.ready {
            Some(time) if time <= now => self.want(now),
            _ if self.kernels > 0 => Step::Wait,
            ready => self.rest(now, ready),
        }
    }

    /// The program wants to launch.
    fn want(&mut self, now: Nanos) -> Step {
        if !self.said.wishes {
            self.said.wishes = true;
            // It may have the turn, so that there is nothing to ask for.
            if !self.is_open() {
                return Step::Ring;
            }
        }
        let kernel = self.program.kernel.0;
        let has_room = self.kernels == 0 || self.in_flight + kernel <= WINDOW;
        let from = self.terms.from as Nanos - EARLY;
        if self.is_open() && now < from {
            return Step::WaitUntil(from);
        }
        if self.is_open() && (self.fits(now, kernel) || self.program.lies) {
            self.ending_since = None;
            return if has_room { Step::Launch } else { Step::Wait };
        }
        // Kernels take as long as they are known to.
        let ends = self.progress + self.in_flight;
        let ahead = AHEAD.min(self.terms.ahead as Nanos);
        if self.kernels > 0 && ahead == 0 {
            Step::Wait
        } else if self.kernels > 0 && now < ends - ahead {
            Step::WaitUntil(ends - ahead)
        } else if self.is_patient(now, ends) {
            Step::WaitUntil(self.ending_since.map_or(now, |since| since + PATIENCE))
        } else {
            // The part that is over.
            let over = self.in_flight - (ends - now).clamp(0, self.in_flight);
            self.tell(self.used + over);
            self.said.over = ends as u64;
            self.give_back()
        }
    }

    /// Whether it waits for a collective that should have ended.
    fn is_patient(&mut self, now: Nanos, ends: Nanos) -> bool {
        let has_collectives = self.program.gang.is_some_and(|gang| gang.kernels.is_some());
        let since = *self.ending_since.get_or_insert(now);
        has_collectives && self.kernels > 0 && ends < now && now < since + PATIENCE
    }

    /// The number of its next launch, if that is a collective.
    pub(super) fn next_collective(&self) -> Option<u64> {
        let kernels = self.program.gang.and_then(|gang: Gang| gang.kernels)?;
        let (round, at) = (self.launches / (kernels + 1), self.launches % (kernels + 1));
        (at == kernels).then_some(round + 1)
    }

    /// Never takes back what was told.
    fn tell(&mut self, used: Nanos) {
        if !self.program.lies {
            self.said.used = self.said.used.max(used as u64);
        }
    }

    fn fits(&self, now: Nanos, kernel: Nanos) -> bool {
        let (now, used) = (now as u64, self.used as u64);
        let (in_flight, kernel) = (self.in_flight as u64, kernel as u64);
        let is_first = self.kernels == 0 && used < self.terms.budget;
        now < self.terms.until && (is_first || used + in_flight + kernel <= self.terms.budget)
    }

    /// Nothing is in flight, and nothing is to be launched.
    fn rest(&mut self, now: Nanos, ready: Option<Nanos>) -> Step {
        let is_waited_for = self.word & OPEN == 0 || self.word & CONTENDED != 0;
        let rested = self.idle_since + REST;
        let gives_back = self.said.done != self.word && is_waited_for;
        if gives_back && (rested <= now || self.word & OPEN == 0) {
            self.said.wishes = false;
            return self.give_back();
        }
        if !is_waited_for {
            self.said.wishes = false;
        }
        let next = ready.into_iter().chain(gives_back.then_some(rested)).min();
        next.map_or(Step::Wait, Step::WaitUntil)
    }

    fn give_back(&mut self) -> Step {
        if self.said.done == self.word || self.program.lies {
            return Step::Wait;
        }
        self.said.done = self.word;
        Step::Ring
    }

    pub(super) fn launched(&mut self, now: Nanos, length: Nanos) {
        if self.kernels == 0 {
            self.progress = now;
        }
        self.kernels += 1;
        self.launches += 1;
        self.in_flight += length;
        match self.program.pace {
            Pace::Greedy => {}
            Pace::Steps(_) => self.ready = None,
            Pace::Bursts { .. } => {
                self.burst -= length;
                if self.burst <= 0 {
                    self.ready = None;
                }
            }
        }
    }

    pub(super) fn kernel_ended(&mut self, now: Nanos, length: Nanos, took: Nanos) {
        self.kernels -= 1;
        self.in_flight -= length;
        self.worked += length;
        self.used += took;
        self.tell(self.used);
        self.idle_since = now;
        self.progress = now;
        if self.kernels > 0 || self.ready.is_some() {
            return;
        }
        self.steps.push(now - self.began);
        let next = match self.program.pace {
            Pace::Greedy => now,
            Pace::Steps(gap) => now + gap,
            Pace::Bursts { work, every } => {
                self.burst = work;
                (self.began + every).max(now)
            }
        };
        self.began = next;
        self.ready = Some(next);
    }
}
