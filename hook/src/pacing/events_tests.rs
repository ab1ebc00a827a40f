//! Tests of [`super`], as far as they need no driver.

use super::*;

const LEAD: u64 = 3_000;

/// A launch of what should take 8 us, measured by itself on an idle stream. `behind` is the time from it to the event's record.
fn alone(behind: u64, took: u64) -> Reached {
    let handed_over = 5_000_000;
    let mut mark = StreamEvent {
        alone: Some(Alone {
            lead: Some(LEAD),
            handed_over,
            has_rested: false,
            was_over: false,
        }),
        recorded: handed_over + behind,
        ..StreamEvent::default()
    };
    mark.work.cost = 8_000;
    Reached {
        mark,
        start: 1_000_000,
        is_start_early: false,
        end: 1_000_000 + LEAD + EMPTY_INTERVAL_NS + took,
    }
}

fn with(mut reached: Reached, change: impl FnOnce(&mut Alone)) -> Reached {
    reached.mark.alone.as_mut().map(change).unwrap();
    reached
}

fn took(reached: &Reached) -> u64 {
    reached.end - reached.began()
}

#[test]
fn time_that_the_gpu_waited_for_a_launch_is_not_charged() {
    assert_eq!(took(&alone(1_500, 23_000)), 23_000);
    let behind_others = with(alone(1_500, 23_000), |alone| alone.lead = None);
    assert_eq!(
        took(&behind_others),
        LEAD + EMPTY_INTERVAL_NS + 23_000 - EVENT_COST_NS
    );
    let mut of_several = alone(1_500, 23_000);
    of_several.mark.alone = None;
    assert_eq!(took(&of_several), LEAD + EMPTY_INTERVAL_NS + 23_000);
    // An interrupt between the two clocks.
    let mut interrupted = alone(1_500, 23_000);
    interrupted.end = interrupted.start + 1_000;
    assert_eq!(took(&interrupted), 0);
}

#[test]
fn a_late_event_tells_only_that_the_work_was_over() {
    assert!(!alone(1_500, 8_000).is_bound());
    assert!(alone(9_000, 10_000).is_bound());
    // It still waited for the work.
    assert!(!alone(9_000, 12_000).is_bound());
    // It came late because the program delayed it.
    assert!(!alone(900_000, 900_000).is_bound());
}

#[test]
fn after_a_rest_work_takes_a_little_longer() {
    let rested = |took| with(alone(1_500, took), |alone| alone.has_rested = true);
    assert!(rested(14_000).is_bound());
    assert!(!rested(14_001).is_bound());
}

#[test]
fn work_that_is_over_when_the_launch_returns_has_no_exact_time() {
    let over = |took| {
        with(alone(1_500, took), |alone| {
            alone.was_over = true;
            alone.lead = Some(0);
        })
    };
    assert!(over(20_000).is_bound());
    assert!(!over(60_000).is_bound());
}
