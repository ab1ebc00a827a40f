//! Tests of [`super`], as far as they need no driver.

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
        (0..=number).for_each(|_| slot(number).launch());
    }
    for number in 0..40 {
        let slot = slot(number);
        assert_eq!(slot.take_launched(), 1 + number as u32);
        assert_eq!(slot.launched(), 0);
        assert!(slot.is_of(handle(number)) && !slot.is_of(handle(number + 1)));
        assert_eq!(slot.context(), CONTEXT as u64);
        assert_eq!(slot.stream().unwrap().handle, handle(number).handle);
    }
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
fn a_place_is_anothers_once_its_stream_has_no_work() {
    let streams = streams();
    let slot = streams.slot(handle(0), CONTEXT).unwrap();
    slot.launch();
    assert!(!slot.is_unused());
    slot.take_launched();
    slot.note(os::nanoseconds());
    assert!(!slot.is_unused());
    slot.note(0);
    assert!(slot.is_unused());
    let held = slot.try_hold();
    let late = handle(1);
    assert!(!slot.take_over(name(late, CONTEXT), late, CONTEXT));
    drop(held);
    assert!(slot.take_over(name(late, CONTEXT), late, CONTEXT));
    assert!(slot.is_of(late) && !slot.is_of(handle(0)));
    assert_eq!(slot.stream().unwrap().handle, late.handle);
}

#[test]
fn there_are_places_for_many_streams() {
    const MANY: usize = 20 * SLOTS;
    let streams = streams();
    for number in 0..MANY {
        streams.slot(handle(number), CONTEXT).unwrap().launch();
    }
    assert_eq!(streams.each().count(), MANY);
    assert!(streams.each().all(|slot| slot.launched() == 1));
}

#[test]
fn a_stream_that_ends_gives_back_its_place() {
    let streams = streams();
    streams.slot(handle(0), CONTEXT).unwrap().free(None);
    assert_eq!(streams.each().count(), 0);
    let again = streams.slot(handle(0), OTHER_CONTEXT).unwrap();
    assert_eq!(again.context(), OTHER_CONTEXT as u64);
}

#[test]
fn nobody_asks_of_a_stream_whose_context_may_end() {
    let streams = streams();
    let slot = streams.slot(handle(0), CONTEXT).unwrap();
    slot.close();
    assert!(slot.try_hold().is_none());
    slot.reopen();
    let held = slot.try_hold();
    assert!(held.is_some() && slot.try_hold().is_none());
}
