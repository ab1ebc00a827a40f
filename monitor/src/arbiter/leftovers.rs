//! The work that clients of packs leave on the GPU when they end: kernels that have begun go on to their end, as long as the pack has
//! the GPU.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::switch_log::Stays;
use crate::schedule::{Job, Nanos};

/// For so much of its pack's time kernels may go on after their process's channels are off the GPU. Few take half as long. But the log
/// also counts time in which the driver takes other processes off the GPU and no kernel runs: some 20 ms for each.
const LONGEST_KERNEL: Nanos = 2_000_000_000;
/// A pack that may have the GPU and is not there for so long has no kernel that runs. Before, it may wait for the slices of others.
const LONGEST_TURN: Nanos = 200_000_000;
/// How often a supervisor is asked whether they are.
const ASK_EVERY: Nanos = 50_000_000;
/// For so long it is asked. Then the supervisor counts by itself.
const LONGEST_ASKING: Nanos = 30_000_000_000;

/// The processes of packs that have ended. `M` speaks with a pack's supervisor about one.
#[derive(Debug)]
pub(super) struct Leftovers<M> {
    processes: BTreeMap<u32, Leftover<M>>,
    /// For how long each of their packs could have had the GPU and was not there.
    absent: BTreeMap<Job, Nanos>,
    /// The moment until which time was counted.
    counted: Nanos,
    answers: (Sender<Answer>, Receiver<Answer>),
}

#[derive(Debug)]
struct Leftover<M> {
    tenant: Job,
    has_work: bool,
    place: Place,
    member: M,
}

#[derive(Debug)]
enum Place {
    /// Its channels may be on the GPU. When it ended, and when to ask; `None` while there is a question.
    On { since: Nanos, ask_at: Option<Nanos> },
    /// They are not. The time of the pack's that its kernels have left to end.
    Off { left: Nanos },
}

/// A process, and whether its channels are off the GPU, if its supervisor answers.
pub(super) type Answer = (u32, Option<bool>);

/// What a supervisor is to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Word {
    /// The question whether the channels of a process are off the GPU.
    IsOff,
    /// That it may let go of it.
    LetGo,
}

impl<M: Clone> Leftovers<M> {
    pub(super) fn new() -> Self {
        Self {
            processes: BTreeMap::new(),
            absent: BTreeMap::new(),
            counted: 0,
            answers: channel(),
        }
    }

    /// A process has ended, and its pack has this tenant.
    pub(super) fn add(
        &mut self,
        now: Nanos,
        (process, has_work): (u32, bool),
        tenant: Job,
        member: M,
    ) {
        if self.processes.is_empty() {
            self.counted = now;
        }
        let place = Place::On {
            since: now,
            ask_at: Some(now),
        };
        let leftover = Leftover {
            tenant,
            has_work,
            place,
            member,
        };
        self.processes.insert(process, leftover);
    }

    /// Whether there are any.
    pub(super) fn is_any(&self) -> bool {
        !self.processes.is_empty()
    }

    /// Where answers go.
    pub(super) fn answers(&self) -> Sender<Answer> {
        self.answers.0.clone()
    }

    /// Counts the time until now, by the GPU's log. `tenant` says whose a process is, and `is_held` who could not have the GPU by then.
    /// Returns what supervisors are to hear, and of whom.
    pub(super) fn count(
        &mut self,
        now: Nanos,
        stays: &BTreeMap<u32, Stays>,
        tenant: impl Fn(u32) -> Option<Job>,
        is_held: impl Fn(Job) -> bool,
    ) -> Vec<(Word, Vec<M>)> {
        let mut had: BTreeMap<Job, Nanos> = BTreeMap::new();
        let passed = (now - std::mem::replace(&mut self.counted, now)).max(0);
        let mut idle = passed;
        for (&process, stays) in stays {
            let ended = || self.processes.get(&process).map(|it| it.tenant);
            if let Some(tenant) = tenant(process).or_else(ended) {
                *had.entry(tenant).or_default() += stays.resident;
            }
            idle -= stays.resident;
        }
        let idle = idle.max(0);
        let tenants: BTreeSet<Job> = self.processes.values().map(|it| it.tenant).collect();
        self.absent.retain(|tenant, _| tenants.contains(tenant));
        for tenant in tenants {
            let had = had.get(&tenant).copied().unwrap_or(0);
            let absent = self.absent.entry(tenant).or_default();
            let time = match had {
                had if is_held(tenant) => had,
                0 => {
                    *absent += passed;
                    if *absent > LONGEST_TURN { passed } else { idle }
                }
                // A kernel whose process has ended makes no entry in the log if the group is there already.
                had => {
                    *absent = 0;
                    had + idle
                }
            };
            let its = self.processes.values_mut();
            for one in its.filter(|it| it.tenant == tenant) {
                if let Place::Off { left } = &mut one.place {
                    *left -= time;
                }
            }
        }
        self.take_answers(now);
        self.words(now)
    }

    /// The time of those whose channels are off begins now. A supervisor that does not answer is asked again: the driver may keep it
    /// waiting.
    fn take_answers(&mut self, now: Nanos) {
        for (process, is_off) in self.answers.1.try_iter() {
            let Some(one) = self.processes.get_mut(&process) else {
                continue;
            };
            if let Place::On { ask_at, .. } = &mut one.place {
                *ask_at = Some(now + ASK_EVERY);
                if is_off == Some(true) {
                    let left = if one.has_work { LONGEST_KERNEL } else { 0 };
                    one.place = Place::Off { left };
                }
            }
        }
    }

    /// A pack's supervisor is asked of all its processes at once, and not before it has answered: whoever ends many of them gives it no
    /// more to do.
    fn words(&mut self, now: Nanos) -> Vec<(Word, Vec<M>)> {
        let is_asked = |it: &Leftover<M>| matches!(it.place, Place::On { ask_at: None, .. });
        let asked = self.processes.values().filter(|it| is_asked(it));
        let asked: BTreeSet<Job> = asked.map(|it| it.tenant).collect();
        let mut words: BTreeMap<(Job, Word), Vec<M>> = BTreeMap::new();
        let mut say = |word, one: &Leftover<M>| {
            let members = words.entry((one.tenant, word)).or_default();
            members.push(one.member.clone());
        };
        self.processes.retain(|_, one| match one.place {
            Place::On { since, .. } if now - since > LONGEST_ASKING => false,
            Place::On { since, ask_at } => {
                if ask_at.is_some_and(|at| at <= now) && !asked.contains(&one.tenant) {
                    let ask_at = None;
                    one.place = Place::On { since, ask_at };
                    say(Word::IsOff, one);
                }
                true
            }
            Place::Off { left } if left <= 0 => {
                say(Word::LetGo, one);
                false
            }
            Place::Off { .. } => true,
        });
        let words = words.into_iter();
        words.map(|((_, word), members)| (word, members)).collect()
    }

    /// Forgets those of packs that have no tenant any more: the supervisor counts by itself where nobody else is there.
    pub(super) fn retain(&mut self, is_tenant: impl Fn(Job) -> bool) {
        self.processes.retain(|_, it| is_tenant(it.tenant));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const MS: Nanos = 1_000_000;
    const PACK: Job = Job(7);

    fn stay(resident: Nanos) -> Stays {
        Stays {
            resident,
            ..Stays::default()
        }
    }

    proptest! {
        /// Looks of up to 100 ms, in which process 1 of the pack and process 2 of another job have parts of the time, and the pack is
        /// held or not. The supervisor says from the look of some number on that the channels are off, so many looks after it was asked.
        #[test]
        fn kernels_have_their_time_once_their_channels_are_off_and_no_less(
            looks in vec((1..100 * MS, 0.0..0.6, 0.0..0.4, any::<bool>()), 1..400),
            (off_at, late) in (0_usize..40, 0_usize..4),
            has_work: bool,
        ) {
            let mut leftovers = Leftovers::new();
            leftovers.add(0, (5, has_work), PACK, "five");
            let needs = if has_work { LONGEST_KERNEL } else { 0 };
            let (mut now, mut had, mut off, mut absent) = (0, 0, false, 0);
            // Not before this time, and never while an answer is awaited.
            let mut asks_from = Some(0);
            let mut answers = Vec::new();
            for (number, (time, own, others, is_held)) in looks.into_iter().enumerate() {
                now += time;
                let part = |part: f64| (time as f64 * part) as Nanos;
                let resident = if is_held { 0 } else { part(own) };
                // Now and then others have it meanwhile.
                let resident = if resident < 10 * MS { 0 } else { resident };
                let stays = [(1, stay(resident)), (2, stay(part(others)))].into();
                absent = match resident {
                    _ if is_held => absent,
                    0 => absent + time,
                    _ => 0,
                };
                if off && !is_held {
                    had += if absent > LONGEST_TURN { time } else { time - part(others) };
                }
                answers.retain(|(at, is_off)| {
                    if *at <= number {
                        leftovers.answers().send((5, *is_off)).unwrap();
                        off |= *is_off == Some(true);
                        asks_from = Some(now + ASK_EVERY);
                    }
                    *at > number
                });
                let tenant = |process| Some(if process == 1 { PACK } else { Job(8) });
                let words = leftovers.count(now, &stays, tenant, |_| is_held);
                match words[..] {
                    [] => prop_assert!(!off || had < needs),
                    [(Word::IsOff, _)] => {
                        prop_assert!(!off && asks_from.is_some_and(|at| now >= at));
                        asks_from = None;
                        let is_silent = number % 3 == 0 && number < off_at;
                        let is_off = (!is_silent).then_some(number >= off_at);
                        answers.push((number + 1 + late, is_off));
                    }
                    [(Word::LetGo, _)] => {
                        prop_assert!(off && had >= needs);
                        prop_assert!(!leftovers.is_any());
                        break;
                    }
                    _ => prop_assert!(false, "{words:?}"),
                }
            }
        }
    }

    #[test]
    fn a_packs_supervisor_is_asked_once_however_many_have_ended() {
        let none = BTreeMap::new();
        let mut leftovers = Leftovers::new();
        for process in 1..=600 {
            let tenant = Job(process % 2);
            leftovers.add(0, (process, true), tenant, process);
        }
        let mut look = |now, answered: &[u32]| {
            for process in answered {
                leftovers.answers().send((*process, Some(false))).unwrap();
            }
            let words = leftovers.count(now, &none, |_| None, |_| true);
            words.iter().map(|(_, its)| its.len()).collect::<Vec<_>>()
        };
        assert_eq!(look(0, &[]), [300, 300]);
        let of_first: Vec<u32> = (2..=600).step_by(2).collect();
        assert_eq!(look(ASK_EVERY, &of_first[1..]), [0; 0]);
        // The other pack's supervisor does not answer.
        assert_eq!(look(2 * ASK_EVERY, &of_first[..1]), [299]);
        assert_eq!(look(3 * ASK_EVERY, &of_first[1..]), [1]);
    }

    #[test]
    fn the_log_may_name_who_has_ended() {
        let mut leftovers = Leftovers::new();
        leftovers.add(0, (5, true), PACK, ());
        leftovers.add(0, (6, true), Job(9), ());
        leftovers.answers().send((5, Some(true))).unwrap();
        leftovers.answers().send((6, Some(true))).unwrap();
        let none = BTreeMap::new();
        assert!(leftovers.count(0, &none, |_| None, |_| true).is_empty());
        let stays = [(5, stay(LONGEST_KERNEL))].into();
        let words = leftovers.count(LONGEST_KERNEL, &stays, |_| None, |_| true);
        assert_eq!(words, [(Word::LetGo, vec![()])]);
        leftovers.retain(|tenant| tenant == PACK);
        assert!(!leftovers.is_any());
    }

    #[test]
    fn who_gets_no_answer_leaves_it_to_the_supervisor() {
        let none = BTreeMap::new();
        let mut leftovers = Leftovers::new();
        leftovers.add(0, (5, true), PACK, ());
        assert_eq!(leftovers.count(0, &none, |_| None, |_| true).len(), 1);
        assert!(
            leftovers
                .count(ASK_EVERY, &none, |_| None, |_| true)
                .is_empty()
        );
        assert!(leftovers.is_any());
        leftovers.count(LONGEST_ASKING + 2, &none, |_| None, |_| true);
        assert!(!leftovers.is_any());
    }
}
