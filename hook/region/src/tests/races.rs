//! Races between threads and processes, in every order that matters.
//!
//! Loom takes every ordering for one of acquire and release; what holds under these holds under SeqCst.

use std::sync::atomic::{AtomicBool, Ordering};

use loom::model::Builder;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

use super::Part;
use super::steps::killed_after;

/// Tries `test` in every order with at most this number of switches where a thread could have gone on.
fn explore(switches: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(test);
}

/// Calls of another process, or of another thread.
fn other<R: 'static>(part: &Arc<Part>, calls: impl FnOnce(&Part) -> R + 'static) -> JoinHandle<R> {
    let part = Arc::clone(part);
    thread::spawn(move || calls(&part))
}

fn reserve(part: &Part, slot: usize, units: u32, limit: u32) -> bool {
    part.gpu().reserve(slot, units, limit).is_ok()
}

/// A part whose slots use and hold these units.
fn part<const N: usize>(slots: [(u32, u32); N]) -> Arc<Part> {
    let part = Part::new(N);
    for (slot, (used, held)) in slots.into_iter().enumerate() {
        assert!(reserve(&part, slot, held, u32::MAX));
        part.gpu().refund(slot, held - used);
    }
    Arc::new(part)
}

#[test]
fn two_processes_race_for_the_last_unit() {
    explore(4, || {
        let part = part([(3, 3), (0, 0)]);
        let theirs = other(&part, |part| reserve(part, 1, 1, 4));
        let ours = reserve(&part, 0, 1, 4);
        assert!(theirs.join().unwrap() ^ ours);
        assert_eq!(part.gpu().held(), 4);
    });
}

#[test]
fn two_threads_of_one_process_race_for_the_last_units() {
    for (limit, both) in [(1, false), (2, true)] {
        explore(4, move || {
            let part = part([(0, 0)]);
            let theirs = other(&part, move |part| reserve(part, 0, 1, limit));
            let ours = reserve(&part, 0, 1, limit);
            let theirs = theirs.join().unwrap();
            assert!(if both { theirs && ours } else { theirs ^ ours });
            assert_eq!(part.gpu().held(), limit.into());
        });
    }
}

#[test]
fn three_race_for_two_units() {
    explore(2, || {
        let part = part([(0, 0), (0, 0), (0, 0)]);
        let others = [1, 2].map(|slot| other(&part, move |part| reserve(part, slot, 1, 2)));
        let mut granted = u64::from(reserve(&part, 0, 1, 2));
        for other in others {
            granted += u64::from(other.join().unwrap());
        }
        assert_eq!(granted, 2);
        assert_eq!(part.gpu().held(), 2);
    });
}

/// The process of a slot takes units from its slack at the moment when another takes that slack back.
#[test]
fn slack_is_used_or_taken_back_but_not_both() {
    for (units, both) in [(1, true), (2, false)] {
        explore(4, move || {
            let part = part([(0, 2), (0, 0)]);
            let thief = other(&part, |part| reserve(part, 1, 1, 2));
            let owner = reserve(&part, 0, units, 2);
            let thief = thief.join().unwrap();
            assert!(if both { thief && owner } else { thief ^ owner });
            let held = u32::from(thief) + units * u32::from(owner);
            assert_eq!(part.gpu().held(), held.into());
        });
    }
}

/// The other takes the slack back, and does not get it either.
#[test]
fn no_process_is_refused_because_another_asks_for_too_much() {
    explore(4, || {
        let part = part([(0, 2), (0, 0)]);
        let other = other(&part, |part| reserve(part, 0, 3, 2));
        assert!(reserve(&part, 1, 2, 2));
        assert!(!other.join().unwrap());
    });
}

#[test]
fn no_process_is_refused_because_units_go_from_one_to_another() {
    // As slack; as a grant; as a grant for which the slack must be taken back.
    for (theirs, limit) in [((0, 1), 2), ((0, 0), 2), ((0, 0), 1)] {
        explore(4, move || {
            let part = part([(1, 1), theirs, (0, 0)]);
            let mover = other(&part, move |part| {
                part.gpu().refund(0, 1);
                let moved = reserve(part, 1, 1, limit);
                // With room for one the other may have been first.
                assert!(moved || limit == 1);
            });
            assert!(reserve(&part, 2, 1, 2));
            mover.join().unwrap();
        });
    }
}

/// The process that made a grant entered it not yet, or never will.
#[test]
fn a_grant_is_entered_once() {
    explore(4, || {
        let part = part([(1, 3), (2, 2)]);
        let (grant, slot) = (part.word(0), 0);
        let latest = crate::word::Grant(1 << 50).next(slot, 4, grant.tag());
        part.grant.store(latest.0, super::steps::Ordering::SeqCst);
        let looks = other(&part, |part| part.gpu().held());
        let uses = other(&part, |part| {
            assert!(reserve(part, 0, 2, 0));
            part.gpu().refund(0, 1);
        });
        let granted = reserve(&part, 1, 1, 10);
        assert!(looks.join().unwrap() >= 3);
        uses.join().unwrap();
        assert!(granted);
        assert_eq!(part.gpu().held_by(0), 1 + 4 + 1);
        assert_eq!(part.gpu().held_by(1), 3);
    });
}

/// Slack that two take back at once, and that one refunds meanwhile.
#[test]
fn a_refund_is_never_lost() {
    explore(3, || {
        let part = part([(3, 4), (0, 0)]);
        let refund = other(&part, |part| part.gpu().refund(0, 2));
        let took = reserve(&part, 1, 2, 5);
        refund.join().unwrap();
        assert_eq!((took, part.gpu().held()), (true, 3));
        part.check_room(1, 5);
    });
}

/// A process that asks after the charge is refused, even if it asks for what it has just given back.
#[test]
fn a_charge_leaves_no_room_that_is_not_there() {
    explore(4, || {
        let part = part([(1, 2), (0, 0), (0, 0)]);
        let charge = other(&part, |part| {
            part.gpu().charge(1, 3);
            assert!(!reserve(part, 1, 1, 3));
        });
        reserve(&part, 0, 1, 3);
        part.gpu().refund(0, 1);
        charge.join().unwrap();
        assert!(!reserve(&part, 0, 1, 3));
        part.gpu().refund(1, 3);
        part.check_room(2, 3);
    });
}

/// A grant whose sum was made before the charge, and which is entered after it.
#[test]
fn a_charge_meets_a_grant() {
    explore(3, || {
        let part = part([(0, 0), (0, 0), (0, 0)]);
        let charge = other(&part, |part| part.gpu().charge(1, 3));
        let granted = reserve(&part, 0, 2, 3);
        charge.join().unwrap();
        assert_eq!(part.gpu().held(), 3 + 2 * u64::from(granted));
        part.gpu().refund(0, 2);
        assert!(!reserve(&part, 0, 1, 3));
        part.gpu().refund(1, 3);
        part.check_room(2, 3);
    });
}

type Calls = (&'static str, fn(&Part, usize));

const CALLS: [Calls; 6] = [
    ("a grant", |part, slot| {
        reserve(part, slot, 2, 6);
    }),
    ("another's slack", |part, slot| {
        reserve(part, slot, 4, 6);
    }),
    ("too much", |part, slot| {
        reserve(part, slot, 7, 6);
    }),
    ("slack", |part, slot| {
        part.gpu().refund(slot, 1);
        reserve(part, slot, 2, 6);
    }),
    ("a charge", |part, slot| part.gpu().charge(slot, 3)),
    ("clearing another", |part, _| {
        part.gpu().clear(2);
    }),
];

/// A process may die after any number of its own steps and at any step of the other's. Its units are free once its slot
/// is cleared, which may be while the other still runs.
#[test]
fn a_death_leaves_nothing_behind() {
    static KILLED: AtomicBool = AtomicBool::new(true);
    for (dead, dies) in CALLS {
        for (alive, lives) in CALLS {
            KILLED.store(true, Ordering::SeqCst);
            for steps in 0.. {
                if !KILLED.swap(false, Ordering::SeqCst) {
                    break;
                }
                explore(2, move || {
                    let part = part([(1, 2), (1, 2), (0, 1)]);
                    let first = other(&part, move |part| killed_after(steps, || dies(part, 0)));
                    let second = other(&part, move |part| lives(part, 1));
                    if first.join().unwrap().is_none() {
                        KILLED.store(true, Ordering::SeqCst);
                    }
                    part.gpu().clear(0);
                    assert_eq!(part.gpu().held_by(0), 0, "{dead}, {alive}");
                    second.join().unwrap();
                    assert_eq!(part.gpu().held_by(0), 0, "{dead}, {alive}");
                    part.gpu().clear(1);
                    assert_eq!(part.gpu().held(), 0, "{dead}, {alive}");
                    part.check_room(2, 6);
                });
            }
        }
    }
}
