//! One thread's calls against what they should do.

use std::rc::Rc;

use proptest::prelude::*;

use super::Part;
use super::steps::{Ordering, watched};
use crate::gpu_ledger::{Full, Taken};
use crate::word::{Grant, MOST};

const SLOTS: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Call {
    Reserve(usize, u32),
    Charge(usize, u32),
    Refund(usize, u32),
    /// As much as the process holds.
    RefundAll(usize),
    Clear(usize),
}

fn calls(most: u32) -> impl Strategy<Value = Vec<Call>> {
    let (slot, units) = (0..SLOTS, 0..=most);
    let both = (slot.clone(), units);
    let call = prop_oneof![
        6 => both.clone().prop_map(|(slot, units)| Call::Reserve(slot, units)),
        1 => both.clone().prop_map(|(slot, units)| Call::Charge(slot, units)),
        4 => both.prop_map(|(slot, units)| Call::Refund(slot, units)),
        1 => slot.clone().prop_map(Call::RefundAll),
        1 => slot.prop_map(Call::Clear),
    ];
    proptest::collection::vec(call, 1..200)
}

/// The units that each process uses: all that the ledger should know.
#[derive(Default)]
struct Model {
    used: [u32; SLOTS],
}

impl Model {
    fn held(&self) -> u64 {
        self.used.iter().map(|used| u64::from(*used)).sum()
    }

    /// True if the call is not to be refused.
    fn has_room(&self, call: Call, limit: u32) -> bool {
        match call {
            Call::Reserve(slot, units) => {
                let all = self.held() + u64::from(units);
                units == 0 || all <= limit.into() && self.used[slot] + units <= MOST
            }
            _ => true,
        }
    }
}

/// Does one call; true if it was not refused.
fn call(part: &Part, model: &mut Model, call: Call, limit: u32) -> bool {
    let gpu = part.gpu();
    match call {
        Call::Reserve(slot, units) => match gpu.reserve(slot, units, limit) {
            Ok(taken) => {
                model.used[slot] += units;
                if let Taken::Granted { held } = taken {
                    assert!(held >= model.held());
                }
            }
            Err(full) => {
                assert_eq!(full, Full { held: model.held() });
                return false;
            }
        },
        Call::Charge(slot, units) => {
            gpu.charge(slot, units);
            model.used[slot] = (model.used[slot] + units).min(MOST);
        }
        Call::Refund(slot, units) => {
            gpu.refund(slot, units);
            model.used[slot] = model.used[slot].saturating_sub(units);
        }
        Call::RefundAll(slot) => {
            gpu.refund(slot, model.used[slot]);
            model.used[slot] = 0;
        }
        Call::Clear(slot) => {
            let held_any = part.word(slot).held() > 0;
            assert_eq!(gpu.clear(slot), held_any);
            model.used[slot] = 0;
        }
    }
    true
}

fn check(part: &Part, model: &Model) {
    for (slot, used) in model.used.iter().enumerate() {
        assert_eq!(part.gpu().held_by(slot), *used);
    }
    assert_eq!(part.gpu().held(), model.held());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Refused is what does not fit, and nothing else: whatever was charged, refunded to whomever or left by the dead.
    #[test]
    fn what_fits_is_granted_and_nothing_else(
        (calls, limit) in prop_oneof![
            3 => (calls(12), 0_u32..40),
            1 => (calls(MOST), any::<u32>()),
        ],
    ) {
        let (part, mut model) = (Part::new(SLOTS), Model::default());
        for one in calls {
            let fits = model.has_room(one, limit);
            prop_assert_eq!(call(&part, &mut model, one, limit), fits, "{:?}", one);
            check(&part, &model);
        }
    }

    /// As after a change of the job's conf. A process is never refused what fits its own limit, and all together stay
    /// below the largest. A process may still use what it was granted under another's limit.
    #[test]
    fn processes_may_know_different_limits(
        calls in calls(12).prop_map(|mut calls| {
            calls.retain(|call| !matches!(call, Call::Charge(..)));
            calls
        }),
        limits in proptest::array::uniform4(0_u32..40),
    ) {
        let (part, mut model) = (Part::new(SLOTS), Model::default());
        let largest = limits.iter().max().copied().unwrap_or(0);
        for one in calls {
            let limit = match one {
                Call::Reserve(slot, _) => limits[slot],
                _ => 0,
            };
            let fits = model.has_room(one, limit);
            prop_assert!(call(&part, &mut model, one, limit) || !fits, "{:?}", one);
            prop_assert!(model.held() <= largest.into());
            check(&part, &model);
        }
    }
}

#[test]
fn what_one_gave_back_another_can_have() {
    let part = Part::new(2);
    let gpu = part.gpu();
    gpu.reserve(0, 10, 10).unwrap();
    gpu.refund(0, 4);
    assert_eq!(gpu.reserve(0, 1, 10), Ok(Taken::FromSlack));
    assert_eq!(gpu.reserve(1, 3, 10), Ok(Taken::Granted { held: 10 }));
    assert_eq!(gpu.reserve(0, 1, 10), Err(Full { held: 10 }));
    assert_eq!(gpu.reserve(1, 1, 10), Err(Full { held: 10 }));
}

/// A context, say, of a process that came when all was taken.
#[test]
fn a_refund_beyond_the_limit_makes_room_only_below_it() {
    let part = Part::new(2);
    let gpu = part.gpu();
    gpu.reserve(0, 8, 10).unwrap();
    gpu.charge(1, 6);
    assert_eq!(gpu.held(), 14);
    gpu.refund(0, 5);
    assert_eq!(gpu.held(), 9);
    gpu.reserve(0, 2, 10).unwrap_err();
    assert_eq!(gpu.reserve(0, 1, 10), Ok(Taken::Granted { held: 10 }));
    gpu.refund(1, 6);
    gpu.reserve(1, 7, 10).unwrap_err();
    gpu.reserve(1, 6, 10).unwrap();
}

/// The tag and the count begin again at zero.
#[test]
fn more_grants_than_can_be_counted_are_each_entered_once() {
    let part = Part::new(2);
    let gpu = part.gpu();
    gpu.reserve(1, 5, 100).unwrap();
    for _ in 0..200_000 {
        assert_eq!(gpu.reserve(0, 3, 100), Ok(Taken::Granted { held: 8 }));
        assert!(gpu.clear(0));
    }
    assert_eq!(gpu.held(), 5);
}

/// A process is stopped between any two steps of entering a grant, until all counts are the same again or nearly so.
#[test]
fn who_comes_late_enters_nothing() {
    for grants in [(1 << 16) - 1, 1 << 16] {
        for stop in 1..6 {
            let part = Rc::new(Part::new(2));
            // A grant that was not entered yet.
            part.grant.store(Grant(0).next(0, 3, 0).0, Ordering::SeqCst);
            let (others, mut step) = (Rc::clone(&part), 0);
            let meanwhile = move || {
                step += 1;
                for _ in 0..if step == stop { grants } else { 0 } {
                    others.gpu().clear(0);
                    others.gpu().reserve(0, 3, 100).unwrap();
                }
            };
            watched(meanwhile, || part.gpu().held());
            assert_eq!(part.word(0).used(), 3);
        }
    }
}

#[test]
fn a_slot_that_is_none_gets_and_harms_nothing() {
    let part = Part::new(2);
    let gpu = part.gpu();
    gpu.reserve(2, 1, 10).unwrap_err();
    gpu.charge(2, 1);
    gpu.refund(usize::MAX, 1);
    assert!(!gpu.clear(1024));
    assert_eq!((gpu.held(), gpu.held_by(2)), (0, 0));
}
