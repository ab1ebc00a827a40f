//! The state of a job at each of its GPUs.

use std::collections::BTreeMap;

use super::types::{Job, LONGEST_TAIL, Nanos};

/// If GPUs become free within this time of each other, their turns begin at once.
pub(super) const AT_ONCE: Nanos = 2 * LONGEST_TAIL;

/// The state of a job at one GPU. For several GPUs, each time is the latest or longest of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stand {
    /// When it could begin a turn. During a turn, this is as it was when the turn began.
    pub(super) from: Nanos,
    /// How long it would have to wait for other jobs' work, as far as that is known, before they give the GPU up.
    pub(super) wait: Nanos,
    /// The same while they give it up.
    pub(super) tail: Nanos,
    /// When the turn of another job ends.
    pub(super) free: Nanos,
    /// The turn that it has, if that has an end.
    pub(super) turn: Option<Current>,
}

/// A turn that a job has at one GPU. It may be over when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Current {
    pub(super) until: Nanos,
    /// Others that begin later do not begin with this one any more.
    pub(super) latest: Nanos,
    /// From when on it could have the next one.
    pub(super) next: Nanos,
}

/// The states of jobs at all GPUs, each of which has a number. Only those count that say that their GPUs belong
/// together.
#[derive(Clone, Debug, Default)]
pub struct Gangs(BTreeMap<Job, BTreeMap<usize, Stand>>);

impl Gangs {
    /// The state of a job at other GPUs than this; `None` if it uses no other.
    pub(super) fn elsewhere(&self, now: Nanos, job: Job, gpu: usize) -> Option<Stand> {
        let all = self.0.get(&job)?.iter();
        let others = all.filter(|&(&other, _)| other != gpu);
        let others = others.map(|(_, stand)| stand.at(now));
        others.reduce(|one, other| Stand {
            from: one.from.max(other.from),
            wait: one.wait.max(other.wait),
            tail: one.tail.max(other.tail),
            free: one.free.max(other.free),
            turn: one.turn.or(other.turn),
        })
    }

    /// All that there is to say of a GPU.
    pub(super) fn tell(&mut self, gpu: usize, stands: impl Iterator<Item = (Job, Stand)>) {
        for gpus in self.0.values_mut() {
            gpus.remove(&gpu);
        }
        for (job, stand) in stands {
            self.0.entry(job).or_default().insert(gpu, stand);
        }
        self.0.retain(|_, gpus| !gpus.is_empty());
    }
}

impl Stand {
    /// As it is then, if nothing else has happened there.
    fn at(self, now: Nanos) -> Self {
        match self.turn.filter(|turn| turn.latest < now) {
            None => self,
            Some(turn) => Self {
                from: turn.next,
                turn: None,
                ..self
            },
        }
    }

    /// From when on the job could begin.
    pub(super) fn from(&self) -> Nanos {
        self.from
    }

    pub(super) fn longest_wait(&self) -> Nanos {
        self.wait.max(self.tail)
    }

    /// When a turn ends that begins now and is to end with those that it has elsewhere, or will have there.
    pub(super) fn common_end(&self, now: Nanos, length: Nanos) -> Nanos {
        let wait = self.longest_wait();
        let wait = if wait > AT_ONCE { wait } else { 0 };
        self.turn.map_or(now + length + wait, |turn| turn.until)
    }
}
