//! Tests of [`super`], on a page of which the test writes the arbiter's half.

use super::turn_keeper::Duty;
use super::*;
use crate::os::cells::Fresh;
use softmig_region::seat::STEP;

const MS: u64 = 1_000_000;
const NOW: u64 = 1_000_000 * MS;
const END: u64 = NOW + 20 * MS;
const BUDGET: u64 = 5 * MS;

/// A client with a page, and the page.
struct Stand {
    arbiter: &'static ArbiterClient,
    seat: &'static Seat,
}

fn alone() -> &'static ArbiterClient {
    Fresh::<ArbiterClient>::zeroed().unwrap().0.leaked()
}

fn stand() -> Stand {
    let seat = seat_of_test();
    let arbiter = alone();
    arbiter.seat.keep(seat);
    seat.heartbeat().store(NOW, Ordering::SeqCst);
    Stand { arbiter, seat }
}

/// The time that was used, the time in flight, and the rest of that.
fn flight(used: u64, time: u64, left: u64) -> WorkInFlight<'static> {
    WorkInFlight {
        used,
        time,
        left: Box::leak(Box::new(move || left)),
        is_stuck: &|| false,
    }
}

impl Stand {
    /// The arbiter opens a turn.
    fn open(&self, number: u32, flags: u32) -> u32 {
        self.seat.budget().store(BUDGET, Ordering::SeqCst);
        self.seat.until().store(END, Ordering::SeqCst);
        self.seat.ahead().store(u64::MAX, Ordering::SeqCst);
        self.say(number.wrapping_mul(STEP) | OPEN | flags)
    }

    /// It closes one.
    fn close(&self, number: u32) -> u32 {
        self.say(number.wrapping_mul(STEP))
    }

    fn say(&self, word: u32) -> u32 {
        self.seat.turn().store(word, Ordering::SeqCst);
        word
    }

    /// A thread of the program asks.
    fn may(&self, now: u64, used: u64, in_flight: u64) -> Option<Admission> {
        self.arbiter.may(now, &flight(used, in_flight, in_flight))
    }

    /// The thread that looks after turns does.
    fn attend(&self, now: u64, in_flight: u64, is_idle: bool) -> Duty {
        self.arbiter
            .attend(now, &flight(0, in_flight, in_flight), is_idle)
    }

    /// The words that the arbiter reads: the wish, that of the last turn that is done with, and how often the bell was
    /// rung.
    fn said(&self) -> (u32, u32, u32) {
        let seat = self.seat;
        let [wish, done, bell] = [seat.wants_gpu(), seat.done(), seat.wakes()];
        let [wish, done, bell] = [wish, done, bell].map(|word| word.load(Ordering::SeqCst));
        (wish, done, bell)
    }
}

#[test]
fn without_an_arbiter_there_are_no_turns() {
    let arbiter = alone();
    assert!(arbiter.goes_on());
    assert_eq!(arbiter.left(7), None);
    assert_eq!(arbiter.may(NOW, &flight(0, 0, 0)), None);
    assert_eq!(arbiter.turn(), 0);
    let duty = arbiter.attend(NOW, &flight(0, MS, MS), false);
    assert!(matches!(duty, Duty::End));
}

#[test]
fn who_wants_a_turn_says_so_and_rings_once() {
    let stand = stand();
    for _ in 0..3 {
        assert_eq!(stand.may(NOW, 0, 0), Some(Admission::WaitForTurn(0)));
        assert_eq!(stand.said(), (1, 0, 1));
    }
}

#[test]
fn launches_go_on_in_a_turn_until_its_end() {
    let stand = stand();
    let turn = stand.open(1, CONTENDED);
    assert!(!stand.arbiter.goes_on());
    assert_eq!(stand.may(NOW, 0, 0), Some(Admission::InFlight(BUDGET)));
    assert!(stand.arbiter.goes_on());
    assert_eq!(stand.may(END - 1, 0, 0), Some(Admission::InFlight(BUDGET)));
    assert_eq!(stand.may(END, 0, 0), Some(Admission::WaitForTurn(turn)));
    assert!(!stand.arbiter.goes_on());
    // Nothing was in flight: the turn is given back.
    assert_eq!(stand.said().1, turn);
    assert_eq!(stand.may(NOW, 0, 0), Some(Admission::WaitForTurn(turn)));
}

#[test]
fn launches_go_on_in_a_turn_until_what_it_has_is_used_up() {
    let stand = stand();
    let turn = stand.open(1, 0);
    assert_eq!(stand.may(NOW, 2 * MS, 0), Some(Admission::InFlight(3 * MS)));
    assert_eq!(stand.arbiter.left(2 * MS), Some(3 * MS));
    assert_eq!(
        stand.may(NOW, 2 * MS, 2 * MS),
        Some(Admission::InFlight(3 * MS))
    );
    assert!(matches!(
        stand.may(NOW, 2 * MS, 3 * MS),
        Some(Admission::RetryAfter(_))
    ));
    assert!(!stand.arbiter.goes_on());
    // It stays over, though some took less than it should have.
    assert!(matches!(
        stand.may(NOW, 2 * MS, MS),
        Some(Admission::RetryAfter(_))
    ));
    assert_eq!(
        stand.may(NOW, BUDGET, 0),
        Some(Admission::WaitForTurn(turn))
    );
    assert_eq!(stand.said().1, turn);
}

#[test]
fn an_end_is_answered_when_the_work_is_done() {
    let stand = stand();
    stand.open(1, 0);
    stand.may(NOW, 0, 0);
    let closed = stand.close(2);
    assert!(!stand.arbiter.goes_on());
    for _ in 0..2 {
        assert!(matches!(
            stand.may(NOW, 0, MS),
            Some(Admission::RetryAfter(_))
        ));
        assert!(matches!(stand.attend(NOW, MS, true), Duty::Look(_)));
        assert_ne!(stand.said().1, closed);
    }
    assert_eq!(stand.may(NOW, 0, 0), Some(Admission::WaitForTurn(closed)));
    assert_eq!(stand.said().0, 1);
    assert_eq!(stand.said().1, closed);
}

#[test]
fn an_end_is_answered_by_the_thread_that_looks_after_turns() {
    let stand = stand();
    stand.open(1, 0);
    stand.may(NOW, 0, 0);
    let closed = stand.close(2);
    assert!(matches!(stand.attend(NOW, MS, true), Duty::Look(_)));
    assert!(matches!(stand.attend(NOW, 0, true), Duty::Rest));
    let (wish, done, bell) = stand.said();
    // No launch waits, so the process wishes for nothing.
    assert_eq!((wish, done), (0, closed));
    assert!(matches!(stand.attend(NOW, 0, true), Duty::Rest));
    assert_eq!(stand.said().2, bell);
}

#[test]
fn a_process_that_answers_says_that_its_launches_wait() {
    let stand = stand();
    stand.open(1, 0);
    stand.may(NOW, 0, 0);
    let closed = stand.close(2);
    stand.arbiter.wait_begins();
    stand.attend(NOW, 0, true);
    assert_eq!(stand.said().0, 1);
    assert_eq!(stand.said().1, closed);
    stand.arbiter.wait_ends();
}

#[test]
fn the_end_of_an_unseen_turn_is_answered() {
    let stand = stand();
    stand.open(1, CONTENDED);
    let closed = stand.close(2);
    stand.attend(NOW, 0, true);
    assert_eq!(stand.said().1, closed);
}

#[test]
fn work_that_does_not_end_is_not_waited_for_for_ever() {
    let stand = stand();
    stand.open(1, 0);
    stand.may(NOW, 0, 0);
    let closed = stand.close(2);
    assert!(matches!(stand.attend(NOW, MS, true), Duty::Look(_)));
    assert!(matches!(
        stand.attend(NOW + MAX_PATIENCE_NS, MS, true),
        Duty::Look(MAX_SLEEP_NS)
    ));
    assert_eq!(stand.said().1, closed);
}

#[test]
fn work_that_waits_for_the_next_turn_is_not_waited_for() {
    let stand = stand();
    stand.open(1, 0);
    stand.may(NOW, 0, 0);
    let closed = stand.close(2);
    let stuck = WorkInFlight {
        is_stuck: &|| true,
        ..flight(0, MS, MS)
    };
    let may = stand.arbiter.may(NOW, &stuck);
    assert_eq!(may, Some(Admission::WaitForTurn(closed)));
    assert_eq!(stand.said().1, closed);
}

#[test]
fn what_a_turn_before_left_in_flight_takes_nothing_of_this_one() {
    let stand = stand();
    stand.open(1, 0);
    assert_eq!(
        stand.may(NOW, 0, 50 * MS),
        Some(Admission::InFlight(BUDGET))
    );
    assert_eq!(
        stand.may(NOW, 0, 54 * MS),
        Some(Admission::InFlight(BUDGET))
    );
    assert!(!matches!(
        stand.may(NOW, 0, 55 * MS),
        None | Some(Admission::InFlight(_))
    ));
}

#[test]
fn what_was_used_before_there_was_a_seat_is_not_told() {
    let stand = stand();
    stand.arbiter.before.store(3 * MS, Ordering::SeqCst);
    stand.arbiter.used(4 * MS);
    assert_eq!(stand.seat.used().load(Ordering::SeqCst), MS);
    stand.open(1, 0);
    assert_eq!(stand.arbiter.left(4 * MS), Some(BUDGET - MS));
}

#[test]
fn each_seat_has_the_place_of_the_last() {
    let folder = tempfile::tempdir().unwrap();
    let at = core::ptr::from_ref(seat_of_test().heartbeat()).addr() % Seat::SIZE;
    let file = |beat: u64| {
        let path = folder.path().join(beat.to_string());
        let mut page = vec![0; Seat::SIZE];
        page[at..at + 8].copy_from_slice(&beat.to_ne_bytes());
        std::fs::write(&path, page).unwrap();
        let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        os::File::open(&path, libc::O_RDWR).unwrap()
    };
    let first = page_of(&file(1), None).unwrap();
    for beat in 2..100 {
        let seat = page_of(&file(beat), Some(first)).unwrap();
        assert!(core::ptr::eq(first, seat), "{beat}");
        assert_eq!(first.heartbeat().load(Ordering::SeqCst), beat);
    }
}

#[test]
fn launches_without_a_turn_are_told_to_one_seat() {
    let stand = stand();
    (0..5).for_each(|_| stand.arbiter.overran());
    assert_eq!(stand.seat.overruns().load(Ordering::SeqCst), 5);
    stand.arbiter.seat.forget();
    // Without an arbiter there are no turns.
    stand.arbiter.overran();
    let next = seat_of_test();
    stand.arbiter.seat.keep(next);
    stand.arbiter.overran();
    assert_eq!(next.overruns().load(Ordering::SeqCst), 1);
}

#[test]
fn an_idle_process_gives_a_turn_back_that_others_wait_for() {
    let stand = stand();
    let turn = stand.open(1, CONTENDED);
    stand.may(NOW, 0, 0);
    assert!(matches!(stand.attend(NOW, 0, true), Duty::Look(_)));
    stand.arbiter.give_back(|| Some(0));
    let (wish, done, _) = stand.said();
    assert_eq!((wish, done), (0, turn));
    assert!(!stand.arbiter.goes_on());
    assert!(matches!(stand.attend(NOW, 0, true), Duty::Rest));
}

#[test]
fn a_thread_that_comes_as_a_turn_is_given_back_looks_again() {
    let stand = stand();
    let turn = stand.open(1, CONTENDED);
    stand.arbiter.give_back(|| {
        stand.arbiter.wait_begins();
        // The word may not change any more: this turn is still open then.
        let may = stand.may(NOW, 0, 0);
        assert!(matches!(may, Some(Admission::RetryAfter(_))), "{may:?}");
        Some(0)
    });
    assert_ne!(stand.said().1, turn);
    assert_eq!(stand.may(NOW, 0, 0), Some(Admission::InFlight(BUDGET)));
}

#[test]
fn launches_wait_until_the_turn_before_is_nearly_over() {
    let stand = stand();
    stand.seat.from().store(NOW + 600_000, Ordering::SeqCst);
    stand.open(1, CONTENDED);
    let wait = 600_000 - LAUNCH_EARLY_NS;
    assert_eq!(stand.may(NOW, 0, 0), Some(Admission::RetryAfter(wait)));
    assert!(!stand.arbiter.goes_on());
    assert_eq!(
        stand.may(NOW + wait, 0, 0),
        Some(Admission::InFlight(BUDGET))
    );
    // No process waits for ever because of another's word.
    stand.seat.from().store(u64::MAX, Ordering::SeqCst);
    stand.open(2, CONTENDED);
    assert_eq!(stand.may(NOW, 0, 0), Some(Admission::InFlight(BUDGET)));
}

#[test]
fn a_turn_is_given_back_when_its_last_kernel_is_nearly_over() {
    let stand = stand();
    stand.open(1, CONTENDED);
    stand.may(NOW, 3 * MS, 0);
    let long = 20 * MS;
    let wait = stand.arbiter.may(END, &flight(3 * MS, long, long - MS));
    assert!(matches!(wait, Some(Admission::RetryAfter(_))), "{wait:?}");
    assert_eq!(stand.seat.used().load(Ordering::SeqCst), 0);
    let may = stand
        .arbiter
        .may(END, &flight(3 * MS, long, HANDOVER_LEFT_NS));
    assert!(matches!(may, Some(Admission::WaitForTurn(_))), "{may:?}");
    let over = stand.seat.over().load(Ordering::SeqCst);
    assert_eq!(over, END + HANDOVER_LEFT_NS);
    // Time that is over is told once.
    let told = || stand.seat.used().load(Ordering::SeqCst);
    assert_eq!(told(), 3 * MS + long - HANDOVER_LEFT_NS);
    stand.arbiter.used(3 * MS + MS);
    assert_eq!(told(), 3 * MS + long - HANDOVER_LEFT_NS);
    stand.arbiter.used(3 * MS + long);
    assert_eq!(told(), 3 * MS + long);
}

#[test]
fn another_jobs_last_work_may_run_as_a_turn_begins() {
    let stand = stand();
    stand.open(1, 0);
    stand.may(NOW, 0, 0);
    assert!(!stand.arbiter.is_new(NOW));
    stand.open(2, CONTENDED);
    stand.may(NOW, 0, 0);
    assert!(stand.arbiter.is_new(NOW) && stand.arbiter.is_new(NOW + MS));
    assert!(!stand.arbiter.is_new(NOW - 1) && !stand.arbiter.is_new(NOW + 2 * MS));
}

#[test]
fn of_several_processes_in_a_turn_each_finishes_first() {
    let stand = stand();
    let turn = stand.open(1, CONTENDED);
    stand.seat.ahead().store(0, Ordering::SeqCst);
    stand.may(NOW, 0, 0);
    let wait = stand.arbiter.may(END, &flight(0, HANDOVER_LEFT_NS, 1));
    assert!(matches!(wait, Some(Admission::RetryAfter(_))), "{wait:?}");
    assert_eq!(
        stand.may(END, HANDOVER_LEFT_NS, 0),
        Some(Admission::WaitForTurn(turn))
    );
}

#[test]
fn work_in_flight_after_a_turn_is_checked_ever_more_seldom() {
    let stand = stand();
    let turn = stand.open(1, CONTENDED);
    stand.may(NOW, 0, 0);
    assert_eq!(
        stand.may(END, 0, HANDOVER_LEFT_NS),
        Some(Admission::WaitForTurn(turn))
    );
    let after = |time| stand.arbiter.until_done(END + time, HANDOVER_LEFT_NS);
    assert_eq!([0, MS, 5 * MS].map(after), [HANDOVER_LEFT_NS, MS, 5 * MS]);
    assert_eq!(after(1000 * MS), MAX_SLEEP_NS);
    assert_eq!(stand.arbiter.until_done(END, 0), MAX_SLEEP_NS);
    // A thread that waits for the next turn looks itself.
    let duty = stand.attend(END + MS, HANDOVER_LEFT_NS, true);
    assert!(matches!(duty, Duty::Look(MS)));
    stand.arbiter.wait_begins();
    assert!(matches!(
        stand.attend(END + MS, HANDOVER_LEFT_NS, true),
        Duty::Rest
    ));
}

#[test]
fn a_turn_is_kept_that_is_used_or_that_no_other_job_wants() {
    let stand = stand();
    let turn = stand.open(1, CONTENDED);
    stand.may(NOW, 0, 0);
    stand.arbiter.give_back(|| None);
    assert_ne!(stand.said().1, turn);
    stand.arbiter.wait_begins();
    stand.arbiter.give_back(|| Some(0));
    assert_ne!(stand.said().1, turn);
    stand.arbiter.wait_ends();
    let turn = stand.open(2, 0);
    stand.may(NOW, 0, 0);
    stand.arbiter.give_back(|| Some(0));
    assert_ne!(stand.said().1, turn);
    assert!(stand.arbiter.goes_on());
}

#[test]
fn who_rests_in_a_turn_wishes_for_nothing_and_who_goes_on_does() {
    let stand = stand();
    stand.open(1, 0);
    stand.may(NOW, 0, 0);
    assert!(matches!(stand.attend(NOW, MS, false), Duty::Look(_)));
    assert_eq!(stand.said().0, 1);
    assert!(matches!(stand.attend(NOW, 0, true), Duty::Rest));
    assert_eq!(stand.said().0, 0);
    assert!(stand.arbiter.goes_on());
    assert!(matches!(stand.attend(NOW, MS, false), Duty::Look(_)));
    assert_eq!(stand.said().0, 1);
}

#[test]
fn a_turn_whose_time_is_over_is_given_back_by_any_thread() {
    let stand = stand();
    let turn = stand.open(1, CONTENDED);
    stand.may(NOW, 0, 0);
    assert!(matches!(stand.attend(END - 1, MS, false), Duty::Look(_)));
    assert!(stand.arbiter.goes_on());
    assert!(matches!(stand.attend(END, MS, false), Duty::Look(_)));
    assert!(!stand.arbiter.goes_on());
    assert!(matches!(stand.attend(END, 0, false), Duty::Rest));
    assert_eq!(stand.said().1, turn);
}

#[test]
fn a_silent_arbiter_is_left_and_another_is_waited_for() {
    let stand = stand();
    for late in (0..10).map(|at| at * 20 * MS) {
        stand.seat.heartbeat().store(NOW + late, Ordering::SeqCst);
        let now = NOW + late + SILENT_AFTER_NS - MS;
        assert_eq!(stand.may(now, 0, 0), Some(Admission::WaitForTurn(0)));
    }
    let now = NOW + 180 * MS + GONE_AFTER_NS;
    assert_eq!(stand.may(now, 0, 0), None);
    assert!(stand.arbiter.goes_on());
    assert!(matches!(stand.attend(now, 0, true), Duty::End));
    // It is asked again, though not at once.
    assert!(stand.arbiter.ask_at.load(Ordering::SeqCst) > now);
}

#[test]
fn an_arbiter_is_not_missed_while_the_process_wants_nothing() {
    let stand = stand();
    stand.open(1, 0);
    stand.may(NOW, 0, 0);
    stand.attend(NOW, 0, true);
    let late = NOW + 3600 * 1000 * MS;
    assert!(matches!(stand.attend(late, MS, false), Duty::Look(_)));
    assert!(matches!(
        stand.attend(late + GONE_AFTER_NS, MS, false),
        Duty::End
    ));
}

/// One thread answers a turn while the next words come, and another hears of them: none is forgotten.
#[test]
fn a_turn_that_ends_while_another_is_answered_is_answered_too() {
    const ROUNDS: u32 = 5_000;
    let stand = stand();
    let round = AtomicU32::new(0);
    let wait_for = |number: u32| {
        while round.load(Ordering::SeqCst) != number {
            std::thread::yield_now();
        }
    };
    let mut forgotten = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=ROUNDS {
                wait_for(2 * number);
                // Its turn is over by the clock.
                let _ = stand.may(END + 1, 0, 0);
                round.store(2 * number + 1, Ordering::SeqCst);
            }
        });
        for number in 1..=ROUNDS {
            let first = stand.open(3 * number, CONTENDED);
            round.store(2 * number, Ordering::SeqCst);
            while stand.seat.done().load(Ordering::SeqCst) != first {
                std::thread::yield_now();
            }
            stand.open(3 * number + 1, CONTENDED);
            let last = stand.close(3 * number + 2);
            let _ = stand.attend(END + 2, 0, true);
            wait_for(2 * number + 1);
            let _ = stand.attend(END + 3, 0, true);
            forgotten.extend((stand.said().1 != last).then_some(number));
        }
    });
    assert_eq!(forgotten, [0; 0]);
}
