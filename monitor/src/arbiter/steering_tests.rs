//! The charges by the log.

use super::*;

const MS: Nanos = 1_000_000;

/// The doings of a process that was on the GPU for these times.
fn stays(lengths: &[Nanos]) -> BTreeMap<u32, Stays> {
    let (resident, lengths) = (lengths.iter().sum(), lengths.to_vec());
    [(7, Stays { resident, lengths })].into()
}

fn busy() -> SeatState {
    SeatState {
        job: Job(1),
        process: 7,
        is_steered: true,
        is_surely_held: false,
        hides: false,
        may_release: true,
        wants_gpu: true,
        pending: 10 * MS,
        slice: 0,
        has_new_slice: false,
    }
}

#[test]
fn no_job_pays_for_a_change() {
    let whole = Share::new(1, 1).unwrap();
    let charged = |length: Nanos| {
        let mut steering = Steering::new(0);
        steering.add(Job(1), whole, Mode::SOFT);
        steering.look(10 * MS, &stays(&[length]), &[busy()], &BTreeMap::new());
        steering.take_book().of(Job(1)).charged
    };
    assert_eq!(charged(MS), MS, "it left by itself");
    assert_eq!(charged(3 * MS), 3 * MS - INTERRUPTING, "it was interrupted");
}

#[test]
fn a_job_alone_pays_for_its_processes_without_a_seat() {
    let half = Share::new(1, 2).unwrap();
    let unseated = |process: u32, job: u32| {
        let of = Unseated {
            job: Job(job),
            share: half,
            mode: Mode::SOFT,
            pack: None,
        };
        (process, of)
    };
    let mut steering = Steering::new(0);
    steering.add(Job(1), half, Mode::SOFT);
    let mut seen = stays(&[MS]);
    let long = |resident| Stays {
        resident,
        lengths: Vec::new(),
    };
    // One of a job that is here, one of a job that is not, one without a job; and one that has a seat by now.
    seen.extend([(8, long(2 * MS)), (9, long(3 * MS)), (10, long(4 * MS))]);
    let of = [unseated(8, 1), unseated(9, 2), unseated(7, 2)].into();
    steering.look(10 * MS, &seen, &[busy()], &of);
    let mut book = steering.take_book();
    assert_eq!(book.of(Job(1)).charged, 3 * MS);
    assert_eq!(book.of(Job(2)).charged, 3 * MS);
    // A job that has paid and has no seat is forgotten.
    for at in 2..100 {
        steering.look(at * 10 * MS, &BTreeMap::new(), &[busy()], &BTreeMap::new());
    }
    assert_eq!(steering.credit(Job(2)), None);
}

#[test]
fn a_process_that_cannot_be_held_pays_by_the_log() {
    let half = Share::new(1, 2).unwrap();
    let mut steering = Steering::new(0);
    for job in [1, 2] {
        steering.add(Job(job), half, Mode::SOFT);
    }
    // Whatever it says.
    let silent = SeatState {
        process: 8,
        is_steered: false,
        pending: 0,
        ..busy()
    };
    let other = SeatState {
        job: Job(2),
        process: 9,
        ..busy()
    };
    let alone = Stays {
        resident: 10 * MS,
        lengths: Vec::new(),
    };
    let look = |steering: &mut Steering, now| {
        let seen = [(8, alone.clone())].into();
        steering.look(now, &seen, &[busy(), silent, other], &BTreeMap::new());
    };
    for at in 1..=10 {
        look(&mut steering, at * 10 * MS);
    }
    let mut book = steering.take_book();
    assert_eq!(book.of(Job(1)).charged, 100 * MS);
    assert!(!steering.is_on(Job(1)), "its other process waits");
    assert!(steering.is_on(Job(2)));
}

#[test]
fn who_hides_its_channels_while_it_is_held_is_found() {
    let (quarter, rest) = (Share::new(1, 4).unwrap(), Share::new(3, 4).unwrap());
    let found = |hides: bool| {
        let mut steering = Steering::new(0);
        steering.add(Job(1), quarter, Mode::HARD);
        steering.add(Job(2), rest, Mode::HARD);
        let seats = |pending| {
            let hidden = SeatState {
                hides,
                pending,
                ..busy()
            };
            let other = SeatState {
                job: Job(2),
                process: 9,
                pending,
                ..busy()
            };
            [hidden, other]
        };
        // It has three quarters of the GPU, whether its job is held or not.
        for at in 1..=3_000 {
            let stay = |part: Nanos| Stays {
                resident: part * MS,
                lengths: Vec::new(),
            };
            let seen = [(7, stay(3)), (9, stay(1))].into();
            steering.look(at * 4 * MS, &seen, &seats(4 * MS), &BTreeMap::new());
        }
        steering.excess()
    };
    assert_eq!(found(true), [(Job(1), [7].into())].into());
    assert_eq!(found(false), BTreeMap::new());
}

#[test]
fn while_nobody_is_steered_jobs_pay_for_what_they_tell() {
    let half = Share::new(1, 2).unwrap();
    let mut steering = Steering::new(0);
    for job in [1, 2] {
        steering.add(Job(job), half, Mode::HARD);
    }
    let seat = |job, pending| SeatState {
        job: Job(job),
        pending,
        ..busy()
    };
    // Two processes of the first job work at the same time.
    for at in 1..=100 {
        let seats = [seat(1, 8 * MS), seat(1, 8 * MS), seat(2, 3 * MS)];
        steering.count(at * 10 * MS, &seats);
    }
    let mut book = steering.take_book();
    assert_eq!(book.of(Job(1)).charged, 1_000 * MS);
    assert_eq!(book.of(Job(2)).charged, 300 * MS);
    assert_eq!(steering.next, None);
    // One that has gone is forgotten once it has paid.
    steering.remove(Job(1));
    for at in 101..200 {
        steering.count(at * 10 * MS, &[]);
    }
    assert_eq!(steering.credit(Job(1)), None);
}

#[test]
fn a_job_that_is_held_before_its_slice_ends_does_not_yield() {
    let quarter = Share::new(1, 4).unwrap();
    let mut steering = Steering::new(0);
    steering.add(Job(1), quarter, Mode::HARD);
    // A program that starts waits for each of its first steps.
    let none = BTreeMap::new();
    steering.look(100 * MS, &stays(&[MS; 10]), &[busy()], &none);
    let slice = |steering: &Steering| steering.state(Job(1)).unwrap().1;
    let of_a_yielding_job = slice(&steering);
    // From now on it is busy. Its cap takes it from the GPU before the slice ends.
    for at in 1..=20 {
        let is_on = steering.is_on(Job(1));
        let lengths: &[Nanos] = if is_on { &[] } else { &[9 * MS] };
        let mut seen = stays(lengths);
        seen.entry(7).or_default().resident = if is_on { 9 * MS } else { 0 };
        steering.look((100 + at * 10) * MS, &seen, &[busy()], &none);
    }
    assert!(slice(&steering) < of_a_yielding_job);
}

#[test]
fn a_slice_that_is_not_set_yet_makes_no_job_yield() {
    let quarter = Share::new(1, 4).unwrap();
    let mut steering = Steering::new(0);
    steering.add(Job(1), quarter, Mode::HARD);
    let none = BTreeMap::new();
    // It is to have a long slice, and its stays still end with the driver's own.
    let stay = stays(&[Nanos::try_from(DEFAULT_SLICE_US * 1000).unwrap(); 4]);
    for at in 1..=4 {
        steering.look(at * 100 * MS, &stay, &[busy()], &none);
        let (_, slice) = steering.state(Job(1)).unwrap();
        assert!(slice > 2 * DEFAULT_SLICE_US, "{slice}");
        assert_ne!(slice, slice_of_a_yielding_job(), "{at}");
    }
}

#[test]
fn a_clock_that_is_read_twice_makes_no_job_yield() {
    let slice_after = |pending| {
        let mut steering = Steering::new(0);
        steering.add(Job(1), Share::new(1, 4).unwrap(), Mode::SOFT);
        for at in 1..=20 {
            let seat = SeatState { pending, ..busy() };
            // It is there for the whole time, and each third look sees the end of a slice.
            let lengths: &[Nanos] = if at % 3 == 0 { &[16 * MS] } else { &[] };
            let mut seen = stays(lengths);
            seen.entry(7).or_default().resident = 8 * MS;
            steering.look(at * 8 * MS, &seen, &[seat], &BTreeMap::new());
        }
        steering.state(Job(1)).unwrap().1
    };
    let yielding = slice_of_a_yielding_job();
    assert_ne!(slice_after(8 * MS - 5_000), yielding);
    assert_eq!(slice_after(2 * MS), yielding, "it stays without work");
}

#[test]
fn a_stay_that_a_new_round_ends_makes_no_job_yield() {
    let slice_after = |change: fn(&mut Steering, &mut SeatState)| {
        let mut steering = Steering::new(0);
        steering.add(Job(1), Share::new(1, 4).unwrap(), Mode::HARD);
        for at in 1..=4 {
            let mut seat = busy();
            change(&mut steering, &mut seat);
            steering.look(at * 100 * MS, &stays(&[MS]), &[seat], &BTreeMap::new());
        }
        steering.state(Job(1)).unwrap().1
    };
    let yielding = slice_of_a_yielding_job();
    assert_eq!(slice_after(|_, _| ()), yielding);
    let held = |steering: &mut Steering, _: &mut SeatState| steering.has_changed = true;
    assert_ne!(slice_after(held), yielding);
    assert_ne!(slice_after(|_, seat| seat.has_new_slice = true), yielding);
}

/// The slice of a job that mostly yields.
fn slice_of_a_yielding_job() -> u64 {
    let mut steering = Steering::new(0);
    steering.add(Job(1), Share::new(1, 4).unwrap(), Mode::HARD);
    steering.look(100 * MS, &stays(&[MS; 10]), &[busy()], &BTreeMap::new());
    steering.state(Job(1)).unwrap().1
}

#[test]
fn the_sums_of_jobs_changes_and_others_are_the_cards() {
    let half = Share::new(1, 2).unwrap();
    let mut steering = Steering::new(0);
    steering.add(Job(1), half, Mode::SOFT);
    steering.add(Job(2), half, Mode::SOFT);
    let seat = |job, process| SeatState {
        job: Job(job),
        process,
        ..busy()
    };
    let stay = |length: Nanos| Stays {
        resident: length - CHANGING,
        lengths: vec![length],
    };
    // Two jobs and a process of no job fill 10 ms: the jobs by their whole slices, the last by less than one.
    let seen = [(7, stay(4 * MS)), (8, stay(5 * MS)), (9, stay(MS))].into();
    steering.look(10 * MS, &seen, &[seat(1, 7), seat(2, 8)], &BTreeMap::new());
    let book = steering.take_book();
    assert_eq!(book.unclaimed, MS - CHANGING);
    assert_eq!(book.change, 3 * CHANGING + 2 * INTERRUPTING);
    assert_eq!(book.charged + book.change + book.unclaimed, 10 * MS);
    let waited: Vec<Nanos> = book.jobs().map(|(_, totals)| totals.waited).collect();
    let [first, second] = [4 * MS, 5 * MS].map(|time| time - CHANGING - INTERRUPTING);
    // Each waited for the other and for the process of no job.
    assert_eq!(waited, [second + MS - CHANGING, first + MS - CHANGING]);
    assert_eq!(steering.take_book(), Book::default());
}

#[test]
fn the_last_stretch_of_a_process_that_has_gone_is_its_jobs() {
    let whole = Share::new(1, 1).unwrap();
    let mut steering = Steering::new(0);
    steering.add(Job(1), whole, Mode::SOFT);
    let none = BTreeMap::new();
    steering.look(10 * MS, &stays(&[MS]), &[busy()], &none);
    steering.remove(Job(1));
    steering.look(20 * MS, &stays(&[2 * MS]), &[], &none);
    // Later its number is that of a process of no job.
    steering.look(30 * MS, &stays(&[4 * MS]), &[], &none);
    let book = steering.take_book();
    assert_eq!((book.charged, book.unclaimed), (3 * MS, 4 * MS));
}
