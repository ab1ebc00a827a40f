//! Tests of [`super`], as far as they need no driver.

use super::super::estimates::UNKNOWN as UNKNOWN_TIME;
use super::super::work::Work;
use super::*;

fn streams() -> Box<Streams> {
    // SAFETY: all zero is what nothing is known of.
    unsafe { Box::<Streams>::new_zeroed().assume_init() }
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
    Key::of(Work {
        what,
        size: 1,
        is_chained: false,
        guess: UNKNOWN_TIME,
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
    let place = |number| streams.place(handle(number), CONTEXT).unwrap();
    for number in 0..40 {
        place(number).add(work(1), 1000 + number as u64);
    }
    for number in 0..40 {
        let place = place(number);
        assert_eq!(place.take_pending().cost, 1000 + number as u64);
        assert!(place.is_of(handle(number)) && !place.is_of(handle(number + 1)));
        assert_eq!(place.context(), CONTEXT as u64);
        assert_eq!(place.stream().unwrap().handle, handle(number).handle);
        let found = streams.find(handle(number), CONTEXT).unwrap();
        assert!(core::ptr::eq(found, place));
    }
    assert!(streams.find(handle(0), OTHER_CONTEXT).is_none());
    assert_eq!(streams.each().count(), 40);
}

#[test]
fn a_threads_own_stream_is_nobody_elses() {
    let streams = streams();
    let place = streams.place(own(), CONTEXT).unwrap();
    assert!(place.stream().unwrap().is_per_thread);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| place.stream().is_none());
        assert!(other.join().unwrap());
        let others = scope.spawn(|| streams.place(own(), CONTEXT).unwrap().name.as_ptr() as usize);
        assert_ne!(others.join().unwrap(), place.name.as_ptr() as usize);
    });
    let everybodys = streams.place(default(), CONTEXT).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| everybodys.stream().is_some());
        assert!(other.join().unwrap());
    });
}

#[test]
fn a_place_is_anothers_once_nothing_is_under_way_there() {
    let streams = streams();
    let place = streams.place(handle(0), CONTEXT).unwrap();
    let late = handle(1);
    let is_taken = |context| place.take_over(name(late, context), late, context);
    place.add(work(1), 700);
    assert!(!is_taken(CONTEXT));
    place.take_pending();
    // The events that may be there are its context's.
    assert!(!is_taken(OTHER_CONTEXT));
    place.break_off();
    assert!(is_taken(CONTEXT));
    assert!(place.is_of(late) && !place.is_of(handle(0)));
    assert!(!place.take_break());
    assert_eq!(place.stream().unwrap().handle, late.handle);
}

#[test]
fn there_are_places_for_many_streams() {
    const MANY: usize = 20 * PLACES;
    let streams = streams();
    for number in 0..MANY {
        let place = streams.place(handle(number), CONTEXT).unwrap();
        place.add(work(1), 700);
    }
    assert_eq!(streams.each().count(), MANY);
    for number in 0..MANY {
        let place = streams.find(handle(number), CONTEXT).unwrap();
        assert_eq!(place.take_pending().count, 1);
    }
}

#[test]
fn what_is_pending_is_counted_and_taken_once() {
    let streams = streams();
    let place = streams.place(handle(0), CONTEXT).unwrap();
    assert!(!place.has_pending());
    for at in 1..=100 {
        let pending = place.add(work(1), 700);
        assert_eq!((pending.cost, pending.count), (700 * at, at));
    }
    let all = place.take_pending();
    assert_eq!((all.cost, all.count), (70_000, 100));
    assert!(all.key == Some(work(1)));
    assert!(!place.has_pending());
    let none = place.take_pending();
    assert_eq!((none.cost, none.count), (0, 0));
}

#[test]
fn what_is_not_known_well_is_told_with_all_that_is_pending() {
    let streams = streams();
    let place = streams.place(handle(0), CONTEXT).unwrap();
    place.add(work(1), 700);
    place.add_unsure(work(1), 500_000);
    place.add(work(1), 700);
    assert_eq!(place.pending_cost(), 501_400);
    let all = place.take_pending();
    assert_eq!((all.cost, all.count, all.is_unsure), (501_400, 3, true));
    place.put_back(all, 0);
    let again = place.take_pending();
    assert_eq!((again.count, again.is_unsure), (3, true));
    place.add(work(1), 700);
    assert!(!place.take_pending().is_unsure);
}

#[test]
fn launches_of_several_kinds_have_none_together() {
    let streams = streams();
    let place = streams.place(handle(0), CONTEXT).unwrap();
    place.add(work(1), 700);
    place.add(work(2), 700);
    place.add(work(2), 700);
    assert!(place.take_pending().key.is_none());
    place.add(work(2), 700);
    assert!(place.take_pending().key == Some(work(2)));
}

#[test]
fn counts_of_several_threads_add_up() {
    let streams = streams();
    let place = streams.place(handle(0), CONTEXT).unwrap();
    let taken = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    place.add(work(1), 3);
                }
            });
        }
        let taker = scope.spawn(|| {
            let (mut cost, mut count) = (0, 0);
            while count < 40_000 {
                let taken = place.take_pending();
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
    let place = streams.place(handle(0), CONTEXT).unwrap();
    let now = 5_000_000;
    assert_eq!(place.backlog(now), 0);
    place.add(work(1), 10_000);
    place.expect(now, 10_000);
    let first = place.backlog(now);
    assert!((10_000..30_000).contains(&first), "{first}");
    place.add(work(1), 10_000);
    place.expect(now, 10_000);
    assert_eq!(place.backlog(now), first + 10_000);
    // What was charged before it was over is still before what comes then.
    place.take_pending();
    assert_eq!(place.backlog(now), 0);
    place.add(work(1), 10_000);
    place.expect(now, 10_000);
    assert_eq!(place.backlog(now), first + 20_000);
    // But not for ever.
    place.take_pending();
    place.add(work(1), 10_000);
    place.expect(2 * now, 10_000);
    assert_eq!(place.backlog(2 * now), first);
}

#[test]
fn little_that_is_known_well_is_not_worth_an_event() {
    let streams = streams();
    let place = streams.place(handle(0), CONTEXT).unwrap();
    assert!(!place.has_much_pending());
    place.add(work(1), 10_000);
    assert!(place.has_much_pending());
    assert_eq!(place.over_for(u64::MAX), None);
    place.expect(5_000_000, 10_000);
    assert!(!place.has_much_pending());
    assert_eq!(place.over_for(5_010_000), None);
    assert!(place.over_for(5_100_000).is_some());
    place.add(work(1), 40_000);
    assert!(place.has_much_pending());
    place.take_pending();
    assert_eq!(place.over_for(u64::MAX), None);
}

#[test]
fn time_begins_anew_where_nothing_is_under_way_or_the_stream_paused() {
    let streams = streams();
    let place = streams.place(handle(0), CONTEXT).unwrap();
    assert!(place.is_idle());
    place.add(work(1), 700);
    assert!(!place.is_idle());
    place.take_pending();
    assert!(place.is_idle());
    place.marked.store(1, Ordering::Relaxed);
    assert!(!place.is_idle());
    place.break_off();
    assert!(place.is_idle());
    assert!(place.take_break() && !place.take_break());
    assert!(!place.is_idle());
}

#[test]
fn a_stream_that_ends_gives_back_what_is_in_flight_and_its_place() {
    let streams = streams();
    let place = streams.place(handle(0), CONTEXT).unwrap();
    place.add(work(1), 700);
    place.break_off();
    assert_eq!(place.end_stream(), 700);
    assert!(!place.has_pending() && !place.take_break());
    assert_eq!(streams.each().count(), 0);
    let again = streams.place(handle(0), OTHER_CONTEXT).unwrap();
    assert_eq!(again.context(), OTHER_CONTEXT as u64);
}

#[test]
fn a_context_that_ends_takes_what_is_in_flight_with_it() {
    let streams = streams();
    let place = streams.place(handle(0), CONTEXT).unwrap();
    place.note(5000);
    place.add(work(1), 700);
    assert_eq!(place.end(9000), (700, 4000));
    assert_eq!(streams.each().count(), 0);
    let idle = streams.place(handle(0), CONTEXT).unwrap();
    assert_eq!(idle.end(9000), (0, 0));
}

#[test]
fn nobody_touches_the_events_while_the_context_may_end() {
    let streams = streams();
    let place = streams.place(handle(0), CONTEXT).unwrap();
    let is_touched = || place.try_marks(|_, _| ()).is_some();
    place.close();
    assert!(!is_touched());
    place.reopen();
    assert!(is_touched());
    place.close();
    place.end(0);
    assert!(is_touched());
}

#[test]
fn who_finds_the_events_in_use_goes_on_without() {
    let streams = streams();
    let place = streams.place(handle(0), CONTEXT).unwrap();
    let inner = place.try_marks(|place, _| place.try_marks(|_, _| ()));
    assert_eq!(inner, Some(None));
    assert_eq!(place.try_marks(|_, marks| marks.is_empty()), Some(true));
}
