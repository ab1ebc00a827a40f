//! Tests of [`super`], as far as they need no driver.

use super::super::estimates::UNKNOWN_NS;
use super::super::work::Work;
use super::*;

fn streams() -> &'static Streams {
    Fresh::<Streams>::zeroed().unwrap().0.leaked()
}

const CONTEXT: CUcontext = 0x1000 as CUcontext;
const OTHER_CONTEXT: CUcontext = 0x2000 as CUcontext;

fn handle(number: usize) -> Stream {
    Stream::plain((0x7f00_0000_0000 | number << 6) as CUstream)
}

fn default() -> Stream {
    Stream::plain(core::ptr::null_mut())
}

fn own() -> Stream {
    Stream::per_thread(core::ptr::null_mut())
}

fn work(what: u64) -> Key {
    Key::from_work(Work {
        what,
        size: 1,
        is_chained: false,
        guess: UNKNOWN_NS,
    })
}

#[test]
fn a_stream_has_one_name_in_each_context() {
    let of = |stream| name(stream, CONTEXT);
    let by_number = |number: u64| number as usize as CUstream;
    for form in [Stream::plain, Stream::per_thread] {
        assert_eq!(of(form(by_number(LEGACY))), of(default()));
        assert_eq!(of(form(by_number(PER_THREAD))), of(own()));
        assert_eq!(of(form(handle(3).handle)), of(handle(3)));
    }
    let names = [of(default()), of(own()), of(handle(0)), of(handle(1))];
    for (at, one) in names.iter().enumerate() {
        assert!(!names.iter().skip(at + 1).any(|other| other == one));
    }
    for stream in [default(), own(), handle(0)] {
        assert_ne!(name(stream, CONTEXT), name(stream, OTHER_CONTEXT));
    }
    let other_threads = std::thread::spawn(|| [name(default(), CONTEXT), name(own(), CONTEXT)]);
    let other_threads = other_threads.join().unwrap();
    assert_eq!(other_threads[0], of(default()));
    assert_ne!(other_threads[1], of(own()));
}

#[test]
fn a_stream_keeps_its_place() {
    let streams = streams();
    let slot = |number| streams.slot(handle(number), CONTEXT).unwrap();
    for number in 0..40 {
        slot(number).add(work(1), 1000 + number as u64);
    }
    for number in 0..40 {
        let slot = slot(number);
        assert_eq!(slot.take_pending().cost, 1000 + number as u64);
        assert!(slot.is_of(handle(number)) && !slot.is_of(handle(number + 1)));
        assert_eq!(slot.context(), CONTEXT as u64);
        assert_eq!(slot.stream().unwrap().handle, handle(number).handle);
        let found = streams.find(handle(number), CONTEXT).unwrap();
        assert!(core::ptr::eq(found, slot));
    }
    assert!(streams.find(handle(0), OTHER_CONTEXT).is_none());
    assert_eq!(streams.each().count(), 40);
}

#[test]
fn a_threads_own_stream_is_that_threads_alone() {
    let streams = streams();
    let slot = streams.slot(own(), CONTEXT).unwrap();
    assert!(slot.stream().unwrap().is_per_thread);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| slot.stream().is_none());
        assert!(other.join().unwrap());
        let others = scope.spawn(|| streams.slot(own(), CONTEXT).unwrap().name.as_ptr() as usize);
        assert_ne!(others.join().unwrap(), slot.name.as_ptr() as usize);
    });
    let shared = streams.slot(default(), CONTEXT).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| shared.stream().is_some());
        assert!(other.join().unwrap());
    });
}

#[test]
fn a_place_is_anothers_once_nothing_is_under_way_there() {
    let streams = streams();
    let slot = streams.slot(handle(0), CONTEXT).unwrap();
    let late = handle(1);
    let is_taken = |context| slot.take_over(name(late, context), late, context);
    slot.add(work(1), 700);
    assert!(!is_taken(CONTEXT));
    slot.take_pending();
    // The events that may be there are its context's.
    assert!(!is_taken(OTHER_CONTEXT));
    slot.break_off();
    assert!(is_taken(CONTEXT));
    assert!(slot.is_of(late) && !slot.is_of(handle(0)));
    assert!(!slot.take_break());
    assert_eq!(slot.stream().unwrap().handle, late.handle);
}

#[test]
fn there_are_places_for_many_streams() {
    const MANY: usize = 20 * SLOTS;
    let streams = streams();
    for number in 0..MANY {
        let slot = streams.slot(handle(number), CONTEXT).unwrap();
        slot.add(work(1), 700);
    }
    assert_eq!(streams.each().count(), MANY);
    for number in 0..MANY {
        let slot = streams.find(handle(number), CONTEXT).unwrap();
        assert_eq!(slot.take_pending().count, 1);
    }
}

#[test]
fn what_is_pending_is_counted_and_taken_once() {
    let streams = streams();
    let slot = streams.slot(handle(0), CONTEXT).unwrap();
    assert!(!slot.has_pending());
    for at in 1..=100 {
        let pending = slot.add(work(1), 700);
        assert_eq!((pending.cost, pending.count), (700 * at, at));
    }
    let all = slot.take_pending();
    assert_eq!((all.cost, all.count), (70_000, 100));
    assert!(all.key == Some(work(1)));
    assert!(!slot.has_pending());
    let none = slot.take_pending();
    assert_eq!((none.cost, none.count), (0, 0));
}

#[test]
fn what_is_not_known_well_is_told_with_all_that_is_pending() {
    let streams = streams();
    let slot = streams.slot(handle(0), CONTEXT).unwrap();
    slot.add(work(1), 700);
    slot.add_unsure(work(1), 500_000);
    slot.add(work(1), 700);
    assert_eq!(slot.pending_cost(), 501_400);
    let all = slot.take_pending();
    assert_eq!((all.cost, all.count, all.is_unsure), (501_400, 3, true));
    slot.put_back(all, 0);
    let again = slot.take_pending();
    assert_eq!((again.count, again.is_unsure), (3, true));
    slot.add(work(1), 700);
    assert!(!slot.take_pending().is_unsure);
}

#[test]
fn launches_of_several_kinds_have_none_together() {
    let streams = streams();
    let slot = streams.slot(handle(0), CONTEXT).unwrap();
    slot.add(work(1), 700);
    slot.add(work(2), 700);
    slot.add(work(2), 700);
    assert!(slot.take_pending().key.is_none());
    slot.add(work(2), 700);
    assert!(slot.take_pending().key == Some(work(2)));
}

#[test]
fn counts_of_several_threads_add_up() {
    let streams = streams();
    let slot = streams.slot(handle(0), CONTEXT).unwrap();
    let taken = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    slot.add(work(1), 3);
                }
            });
        }
        let taker = scope.spawn(|| {
            let (mut cost, mut count) = (0, 0);
            while count < 40_000 {
                let taken = slot.take_pending();
                cost += taken.cost;
                count += taken.count;
            }
            (cost, count)
        });
        taker.join().unwrap()
    });
    assert_eq!(taken, (120_000, 40_000));
}

#[test]
fn launches_that_are_known_well_come_one_behind_the_other() {
    let streams = streams();
    let slot = streams.slot(handle(0), CONTEXT).unwrap();
    let now = 5_000_000;
    assert_eq!(slot.backlog(now), 0);
    slot.add(work(1), 10_000);
    slot.expect(now, 10_000);
    let first = slot.backlog(now);
    assert!((10_000..30_000).contains(&first), "{first}");
    slot.add(work(1), 10_000);
    slot.expect(now, 10_000);
    assert_eq!(slot.backlog(now), first + 10_000);
    // Work that was charged before it was over is still before the work that comes then.
    slot.take_pending();
    assert_eq!(slot.backlog(now), 0);
    slot.add(work(1), 10_000);
    slot.expect(now, 10_000);
    assert_eq!(slot.backlog(now), first + 20_000);
    // But not for ever.
    slot.take_pending();
    slot.add(work(1), 10_000);
    slot.expect(2 * now, 10_000);
    assert_eq!(slot.backlog(2 * now), first);
}

#[test]
fn little_that_is_known_well_is_not_worth_an_event() {
    let streams = streams();
    let slot = streams.slot(handle(0), CONTEXT).unwrap();
    assert!(!slot.has_much_pending());
    slot.add(work(1), 10_000);
    assert!(slot.has_much_pending());
    assert_eq!(slot.over_for(u64::MAX), None);
    slot.expect(5_000_000, 10_000);
    assert!(!slot.has_much_pending());
    assert_eq!(slot.over_for(5_010_000), None);
    assert!(slot.over_for(5_100_000).is_some());
    slot.add(work(1), 40_000);
    assert!(slot.has_much_pending());
    slot.take_pending();
    assert_eq!(slot.over_for(u64::MAX), None);
}

#[test]
fn time_begins_anew_in_an_idle_or_paused_stream() {
    let streams = streams();
    let slot = streams.slot(handle(0), CONTEXT).unwrap();
    assert!(slot.is_idle());
    slot.add(work(1), 700);
    assert!(!slot.is_idle());
    slot.take_pending();
    assert!(slot.is_idle());
    slot.marked.store(1, Ordering::Relaxed);
    assert!(!slot.is_idle());
    slot.break_off();
    assert!(slot.is_idle());
    assert!(slot.take_break() && !slot.take_break());
    assert!(!slot.is_idle());
}

#[test]
fn a_stream_that_ends_gives_back_its_work_and_its_place() {
    let streams = streams();
    let slot = streams.slot(handle(0), CONTEXT).unwrap();
    slot.add(work(1), 700);
    slot.break_off();
    assert_eq!(slot.end_stream(), 700);
    assert!(!slot.has_pending() && !slot.take_break());
    assert_eq!(streams.each().count(), 0);
    let again = streams.slot(handle(0), OTHER_CONTEXT).unwrap();
    assert_eq!(again.context(), OTHER_CONTEXT as u64);
}

#[test]
fn a_context_that_ends_takes_what_is_in_flight_with_it() {
    let streams = streams();
    let slot = streams.slot(handle(0), CONTEXT).unwrap();
    slot.note(5000);
    slot.add(work(1), 700);
    assert_eq!(slot.end(9000), (700, 4000));
    assert_eq!(streams.each().count(), 0);
    let idle = streams.slot(handle(0), CONTEXT).unwrap();
    assert_eq!(idle.end(9000), (0, 0));
}

#[test]
fn no_thread_touches_the_events_while_the_context_may_end() {
    let streams = streams();
    let slot = streams.slot(handle(0), CONTEXT).unwrap();
    let is_touched = || slot.try_marks(|_, _| ()).is_some();
    slot.close();
    assert!(!is_touched());
    slot.reopen();
    assert!(is_touched());
    slot.close();
    slot.end(0);
    assert!(is_touched());
}

#[test]
fn who_finds_the_events_in_use_goes_on_without() {
    let streams = streams();
    let slot = streams.slot(handle(0), CONTEXT).unwrap();
    let inner = slot.try_marks(|slot, _| slot.try_marks(|_, _| ()));
    assert_eq!(inner, Some(None));
    assert_eq!(slot.try_marks(|_, marks| marks.is_empty()), Some(true));
}
