//! Tests of the table of allocations.

use super::*;
use std::collections::HashMap;

fn holding(units: u32) -> Holding {
    Holding {
        units,
        device: 3,
        count: 1,
        other: 7,
    }
}

#[test]
fn it_knows_what_a_map_knows() {
    let (holdings, mut known) = (Holdings::new(), HashMap::new());
    let mut random = 1_u64;
    for round in 0..200_000_u32 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        // Addresses of the driver's: multiples of 512.
        let name = (random >> 50) << 9;
        if random >> 40 & 1 == 0 {
            holdings.put(Kind::Address, name, holding(round));
            known.insert(name, holding(round));
        } else {
            assert_eq!(holdings.take(Kind::Address, name), known.remove(&name));
        }
        assert_eq!(holdings.get(Kind::Array, name), None);
    }
    assert!(known.len() > 1000);
    let mut found = HashMap::new();
    holdings.each(Kind::Address, |name, holding| {
        found.insert(name, holding);
    });
    assert_eq!(found, known);
    holdings.each(Kind::Piece, |_, _| panic!("there is none"));
}

#[test]
fn a_thing_that_was_found_is_not_another_with_its_name() {
    let holdings = Holdings::new();
    holdings.put(Kind::Handle, 5, holding(1));
    let known = holdings.find(Kind::Handle, 5).unwrap();
    let change = |units| {
        let to = |held: Holding| (Some(holding(units)), held.units);
        holdings.change_known(Kind::Handle, 5, &known, to)
    };
    assert_eq!(change(2), Some(1));
    // Others may change it too, and it is the same thing.
    holdings.change(Kind::Handle, 5, |held| (held, ()));
    assert_eq!(change(3), Some(2));
    assert_eq!(holdings.put(Kind::Handle, 5, holding(4)).unwrap().units, 3);
    assert_eq!(change(5), None);
    assert_eq!(holdings.take(Kind::Handle, 5), Some(holding(4)));
    assert_eq!(change(5), None);
    assert_eq!(holdings.get(Kind::Handle, 5), None);
}

#[test]
fn all_of_a_kind_can_be_taken_while_they_are_visited() {
    let holdings = Holdings::new();
    for name in 0..50_000 {
        holdings.put(Kind::Address, name << 21, holding(1));
        holdings.put(Kind::Array, name << 9, holding(1));
    }
    let mut taken = 0;
    holdings.each(Kind::Address, |name, _| {
        taken += u32::from(holdings.take(Kind::Address, name).is_some());
    });
    assert_eq!(taken, 50_000);
    let mut left = 0;
    holdings.each(Kind::Array, |name, held| {
        left += 1;
        holdings.put(Kind::Array, name, held);
    });
    assert_eq!(left, 50_000);
}

#[test]
fn threads_do_not_disturb_each_other() {
    let holdings = Holdings::new();
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let holdings = &holdings;
            scope.spawn(move || {
                for name in (0..20_000).map(|name| name << 4 | thread) {
                    holdings.put(Kind::Handle, name, holding(1));
                    holdings.change(Kind::Piece, 5, |known| {
                        let count = known.map_or(0, |known| known.count).wrapping_add(1);
                        (
                            Some(Holding {
                                count,
                                ..holding(0)
                            }),
                            (),
                        )
                    });
                    if name % 2 == 0 {
                        assert!(holdings.take(Kind::Handle, name).is_some());
                    }
                }
            });
        }
    });
    assert_eq!(holdings.get(Kind::Piece, 5).unwrap().count, 160_000);
    let mut count = 0;
    holdings.each(Kind::Handle, |_, _| count += 1);
    assert_eq!(count, 80_000);
}
