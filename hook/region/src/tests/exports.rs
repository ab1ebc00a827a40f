//! Exported memory over random histories: never less is charged than somebody has, and no more once somebody has looked.

use std::cell::Cell;
use std::rc::Rc;

use proptest::prelude::*;

use super::Part;
use super::steps::watched;
use crate::exports::Orphans;

const SLOTS: usize = 4;
const LOOKERS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A process takes memory, and mostly shows it to others.
    Take(usize, u32, bool),
    /// It gives back the oldest that it has.
    Free(usize),
    /// Others let the oldest go that they have.
    Close,
    /// It ends, and another one forgets it.
    End(usize),
    /// It ends, and a child of its has its mapping.
    Leave(usize),
    /// A look, in its three parts, of one of those who look.
    See(usize),
    Measure(usize),
    Give(usize),
    Look,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (slot, looker) = (0..SLOTS, 0..LOOKERS);
    let step = prop_oneof![
        4 => (slot.clone(), 0..100_u32, proptest::bool::weighted(0.8)).prop_map(|(slot, units, is_shown)| Step::Take(slot, units, is_shown)),
        3 => slot.clone().prop_map(Step::Free),
        3 => Just(Step::Close),
        1 => slot.clone().prop_map(Step::End),
        1 => slot.prop_map(Step::Leave),
        3 => looker.clone().prop_map(Step::See),
        3 => looker.clone().prop_map(Step::Measure),
        3 => looker.prop_map(Step::Give),
        1 => Just(Step::Look),
    ];
    proptest::collection::vec(step, 1..200)
}

/// What there is: units, and whether others have them.
#[derive(Default)]
struct Model {
    own: [Vec<(u32, bool)>; SLOTS],
    /// Of nobody but others.
    left: Vec<u32>,
    /// What each who looks has seen, and then found that others have.
    seen: [Option<(Orphans, Option<u64>)>; LOOKERS],
}

impl Model {
    fn of_processes(&self) -> u64 {
        self.own
            .iter()
            .flatten()
            .map(|(units, _)| u64::from(*units))
            .sum()
    }

    fn of_others(&self) -> u64 {
        self.left.iter().copied().map(u64::from).sum()
    }

    fn ends(&mut self, slot: usize) {
        let own = std::mem::take(&mut self.own[slot]);
        self.left
            .extend(own.iter().filter(|one| one.1).map(|one| one.0));
    }
}

fn take(part: &Part, model: &mut Model, step: Step) {
    let gpu = part.gpu();
    match step {
        Step::Take(slot, units, is_shown) => {
            gpu.charge(slot, units);
            if is_shown {
                gpu.export(slot, units);
            }
            model.own[slot].push((units, is_shown));
        }
        Step::Free(slot) if !model.own[slot].is_empty() => match model.own[slot].remove(0) {
            (units, true) => {
                gpu.orphan(slot, units);
                model.left.push(units);
            }
            (units, false) => gpu.refund(slot, units),
        },
        Step::Close if !model.left.is_empty() => {
            model.left.remove(0);
        }
        Step::End(slot) => {
            gpu.orphan_exported(slot);
            model.ends(slot);
        }
        Step::Leave(slot) => {
            gpu.orphan_all(slot);
            model.ends(slot);
        }
        Step::See(looker) => model.seen[looker] = Some((gpu.orphans(), None)),
        Step::Measure(looker) => {
            let kept = model.of_others();
            if let Some((_, measured)) = &mut model.seen[looker] {
                *measured = Some(kept);
            }
        }
        Step::Give(looker) => {
            if let Some((seen, Some(kept))) = model.seen[looker].take() {
                gpu.keep_orphans(seen, u32::try_from(kept).unwrap());
            }
        }
        Step::Look => {
            let kept = model.of_others();
            assert!(gpu.keep_orphans(gpu.orphans(), u32::try_from(kept).unwrap()));
            assert_eq!(gpu.held(), model.of_processes() + kept);
        }
        _ => {}
    }
    assert!(gpu.held() >= model.of_processes() + model.of_others());
}

proptest! {
    #[test]
    fn what_others_keep_stays_charged_until_a_look(steps in steps()) {
        let (part, mut model) = (Part::new(SLOTS), Model::default());
        for step in steps {
            take(&part, &mut model, step);
        }
        take(&part, &mut model, Step::Look);
    }

    #[test]
    fn what_is_shared_is_known_and_nothing_else(names in proptest::collection::vec(1..u64::MAX, 1..16), other in 1..u64::MAX) {
        let part = Part::new(64);
        let gpu = part.gpu();
        for name in &names {
            gpu.share(7, *name);
            prop_assert!(!gpu.is_shared(*name));
        }
        gpu.export(7, 1);
        let is_close = |name: &u64| name >> 10 == other >> 10;
        prop_assert!(!gpu.is_shared(other) || names.iter().any(is_close));
        for name in &names {
            gpu.share(7, *name);
            prop_assert!(gpu.is_shared(*name));
        }
    }
}

const UNITS: u32 = 5;

/// A look, each of whose parts comes after so many steps of somebody else.
struct Look {
    see: usize,
    measure: usize,
    give: usize,
}

/// Moves the units of a process out of its slot while somebody looks; the driver counts them for that process. Tells the steps.
fn moved(part: &Rc<Part>, way: fn(&Part), look: Look) -> usize {
    let state = Rc::new(Cell::new((0, None, None)));
    let (watched_part, seen) = (Rc::clone(part), Rc::clone(&state));
    let is_busy = Cell::new(false);
    let step = move || {
        if is_busy.replace(true) {
            return;
        }
        let gpu = watched_part.gpu();
        let (count, mut orphans, mut kept) = seen.get();
        if count == look.see {
            orphans = Some(gpu.orphans());
        }
        if count == look.measure {
            kept = Some(UNITS - UNITS.min(gpu.held_by(0)));
        }
        if let (true, Some(orphans), Some(kept)) = (count == look.give, orphans, kept) {
            gpu.keep_orphans(orphans, kept);
        }
        seen.set((count + 1, orphans, kept));
        is_busy.set(false);
    };
    watched(step, || way(part));
    state.get().0
}

#[test]
fn a_look_at_any_step_of_a_move_loses_nothing() {
    let ways: [fn(&Part); 3] = [
        |part| part.gpu().orphan(0, UNITS),
        |part| part.gpu().orphan_all(0),
        |part| part.gpu().orphan_exported(0),
    ];
    for way in ways {
        let part = || {
            let part = Rc::new(Part::new(SLOTS));
            part.gpu().charge(0, UNITS);
            part.gpu().export(0, UNITS);
            part
        };
        let never = usize::MAX;
        let steps = moved(
            &part(),
            way,
            Look {
                see: never,
                measure: never,
                give: never,
            },
        );
        for see in 0..steps {
            for measure in see..steps {
                for give in measure..steps {
                    let part = part();
                    moved(&part, way, Look { see, measure, give });
                    let gpu = part.gpu();
                    assert!(
                        gpu.held() >= UNITS.into(),
                        "{see} {measure} {give} of {steps}: {}",
                        gpu.held()
                    );
                    assert!(gpu.keep_orphans(gpu.orphans(), UNITS));
                    assert_eq!(gpu.held(), UNITS.into());
                }
            }
        }
    }
}
