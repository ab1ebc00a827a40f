//! A process killed before any step of any call leaves an account that is exact once its slot is cleared.

use std::cell::Cell;
use std::rc::Rc;

use super::Part;
use super::steps::{Ordering, killed_after, watched};
use crate::word::Grant;

const LIMIT: u32 = 20;
/// The process that is killed first, the one that finds what it left and is killed as well, and the one that lives on.
const FIRST: usize = 0;
const SECOND: usize = 1;
const ALIVE: usize = 2;
const LONG_DEAD: usize = 3;
/// The units of the process that lives on.
const KEPT: u32 = 7;

type Call = fn(&Part, usize);

const CALLS: [(&str, Call); 9] = [
    ("from slack", |part, slot| reserve(part, slot, 2)),
    ("a grant", |part, slot| reserve(part, slot, 3)),
    ("others' slack", |part, slot| reserve(part, slot, 6)),
    ("too much", |part, slot| reserve(part, slot, LIMIT)),
    ("a charge", |part, slot| part.gpu().charge(slot, 4)),
    ("a refund", |part, slot| part.gpu().refund(slot, 1)),
    ("a look", |part, _| assert!(part.gpu().held() > 0)),
    ("clearing one long dead", |part, _| clear(part, LONG_DEAD)),
    ("clearing the first", |part, _| clear(part, FIRST)),
];

fn reserve(part: &Part, slot: usize, units: u32) {
    let _ = part.gpu().reserve(slot, units, LIMIT);
}

fn clear(part: &Part, slot: usize) {
    part.gpu().clear(slot);
}

/// How many steps `work` takes.
fn steps_of<R>(work: impl FnOnce() -> R) -> (usize, R) {
    let count = Rc::new(Cell::new(0));
    let counter = Rc::clone(&count);
    let result = watched(move || counter.set(counter.get() + 1), work);
    (count.get(), result)
}

/// The living have some slack.
fn part() -> Part {
    let part = Part::new(4);
    let gpu = part.gpu();
    for (slot, units) in [(FIRST, 3), (SECOND, 3), (ALIVE, KEPT + 2), (LONG_DEAD, 2)] {
        gpu.reserve(slot, units, LIMIT).unwrap();
    }
    for slot in [FIRST, SECOND, ALIVE] {
        gpu.refund(slot, 2);
    }
    part
}

fn check(part: &Part) {
    for dead in [FIRST, SECOND, LONG_DEAD] {
        part.gpu().clear(dead);
        assert_eq!(part.gpu().held_by(dead), 0);
    }
    assert_eq!(part.gpu().held(), KEPT.into());
    part.check_room(SECOND, LIMIT);
    part.gpu().clear(SECOND);
    part.check_room(ALIVE, LIMIT);
    assert_eq!(part.gpu().held_by(ALIVE), KEPT);
}

#[test]
fn one_death_at_any_step() {
    for (name, call) in CALLS {
        let alone = part();
        let (steps, ()) = steps_of(|| call(&alone, FIRST));
        for step in 0..=steps {
            let part = part();
            let done = killed_after(step, || call(&part, FIRST));
            assert_eq!(done.is_some(), step == steps, "{name}, {step}");
            check(&part);
        }
    }
}

/// No other process knows yet that it is dead.
#[test]
fn what_the_dead_was_granted_counts_until_it_is_cleared() {
    for step in 0.. {
        let killed = || {
            let part = part();
            let before = Grant(part.grant.load(Ordering::SeqCst));
            let done = killed_after(step, || reserve(&part, FIRST, 3));
            let was_granted = Grant(part.grant.load(Ordering::SeqCst)) != before;
            (part, was_granted, done.is_some())
        };
        let (part, was_granted, done) = killed();
        let held = if was_granted { 1 + 3 } else { 1 };
        assert_eq!(part.gpu().held_by(FIRST), held);
        let (part, ..) = killed();
        assert_eq!(part.gpu().held(), u64::from(held + 1 + KEPT + 2));
        if done {
            break;
        }
    }
}

#[test]
fn a_second_death_at_any_step_after_the_first() {
    for (_, first) in CALLS {
        for (_, second) in CALLS {
            let mut killed = true;
            for step in 0.. {
                if !killed {
                    break;
                }
                for next in 0.. {
                    let part = part();
                    killed = killed_after(step, || first(&part, FIRST)).is_none();
                    let done = killed_after(next, || second(&part, SECOND));
                    check(&part);
                    if done.is_some() {
                        break;
                    }
                }
            }
        }
    }
}
