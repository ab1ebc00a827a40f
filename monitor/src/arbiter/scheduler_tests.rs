//! The log that is read, and the channels that wait.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const MS: Nanos = 1_000_000;

/// A device that lets all channels run.
#[derive(Clone, Default)]
struct Free(Arc<std::sync::Mutex<Vec<Channel>>>);

impl Device for Free {
    fn switches(&mut self, _: &mut Vec<Switch>) -> Result<Reading, softmig_rm::Error> {
        panic!("it has no log")
    }

    fn enable(&self, channels: &[Channel], is_on: bool, _: Ended<'_>) -> Untaken {
        assert!(is_on);
        self.0.lock().unwrap().extend(channels);
        Untaken::default()
    }
}

#[test]
fn channels_that_an_arbiter_left_waiting_run_as_soon_as_the_gpu_can_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let id = GpuId::default();
    let channel = |handle| Channel {
        client: 0xc1d0_001a,
        handle,
    };
    let channels: BTreeSet<Channel> = [channel(1), channel(0x5c00_0022)].into();
    Scheduler::new(id, folder.path()).note(&channels);
    assert_eq!(left_waiting(folder.path()), [id]);
    let list = folder.path().join(list_name(id));
    // Without the GPU nothing can be done for them, and they are not forgotten.
    let mut none = Scheduler::new(id, folder.path());
    none.end();
    assert!(list.exists());
    // Also where the GPU is not to be steered, or has no log.
    let free = Free::default();
    let mut scheduler = Scheduler::with(free.clone(), folder.path());
    scheduler.set_standing(&Err("not measured yet".into()));
    assert_eq!(scheduler.stays(), None);
    scheduler.let_run();
    assert_eq!(*free.0.lock().unwrap(), Vec::from_iter(channels));
    assert!(!list.exists());
    assert!(scheduler.let_go());
}

fn read() -> Reading {
    Reading {
        at: now().unsigned_abs(),
        ..Reading::default()
    }
}

/// A device whose log can be read only after it was opened for the second time.
#[derive(Default)]
struct Once(Arc<AtomicU32>, u32);

impl Clone for Once {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0), self.0.fetch_add(1, Relaxed))
    }
}

impl Device for Once {
    fn switches(&mut self, _: &mut Vec<Switch>) -> Result<Reading, softmig_rm::Error> {
        const INVALID_STATE: u32 = 0x40;
        if self.1 > 0 {
            return Ok(read());
        }
        Err(softmig_rm::Error::Refused {
            command: 0,
            status: INVALID_STATE,
        })
    }

    fn enable(&self, _: &[Channel], _: bool, _: Ended<'_>) -> Untaken {
        Untaken::default()
    }
}

#[test]
fn a_gpu_is_opened_anew_a_minute_after_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let once = Once::default();
    let opened = Arc::clone(&once.0);
    let mut scheduler = Scheduler::with(once, folder.path());
    for _ in 0..3 {
        assert_eq!(scheduler.stays(), None);
        assert!(scheduler.why_not().unwrap().contains("status 0x40"));
        assert!(scheduler.device().is_some(), "to let channels run");
    }
    assert_eq!(opened.load(Relaxed), 1);
    let at = scheduler.open_at.unwrap();
    assert!((at - now() - OPEN_AGAIN).abs() < OPEN_AGAIN / 2);
    scheduler.open_at = Some(now());
    assert!(scheduler.stays().unwrap().1.is_empty());
    assert_eq!((scheduler.why_not(), opened.load(Relaxed)), (None, 2));
}

/// A device whose log has one process that came, and never left.
#[derive(Clone)]
struct Came(Vec<Switch>);

impl Device for Came {
    fn switches(&mut self, to: &mut Vec<Switch>) -> Result<Reading, softmig_rm::Error> {
        to.append(&mut self.0);
        Ok(read())
    }

    fn enable(&self, _: &[Channel], _: bool, _: Ended<'_>) -> Untaken {
        Untaken::default()
    }
}

#[test]
fn a_process_that_has_ended_is_not_on_the_gpu() {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (process, is_there) in [(std::process::id(), true), (child.id(), false)] {
        let came = Came(vec![Switch {
            process,
            channel: 6,
            is_start: true,
            at: (now() - MS).unsigned_abs(),
        }]);
        let mut scheduler = Scheduler::with(came, folder.path());
        let mut was_there = || scheduler.stays().unwrap().1.contains_key(&process);
        assert!(was_there(), "until it is seen to have ended");
        thread::sleep(Duration::from_millis(1));
        assert_eq!(was_there(), is_there);
    }
}

/// A device that refuses to hold channels, by this status.
#[derive(Clone)]
struct Refuses(u32, Arc<AtomicU32>);

impl Device for Refuses {
    fn switches(&mut self, _: &mut Vec<Switch>) -> Result<Reading, softmig_rm::Error> {
        Ok(read())
    }

    fn enable(&self, channels: &[Channel], _: bool, _: Ended<'_>) -> Untaken {
        self.1.fetch_add(1, Relaxed);
        let (command, status) = (0x2080_110b, self.0);
        Untaken {
            rest: channels.to_vec(),
            error: Some(Error::Refused { command, status }),
            ..Untaken::default()
        }
    }
}

#[test]
fn a_driver_that_does_not_hold_channels_is_a_fault_and_no_channel_is_taken_for_gone() {
    const NOT_SUPPORTED: u32 = 0x56;
    let folder = tempfile::tempdir().unwrap();
    let calls = Arc::default();
    let mut scheduler = Scheduler::with(Refuses(NOT_SUPPORTED, calls), folder.path());
    assert!(scheduler.stays().is_some());
    let channels = BTreeSet::from([Channel {
        client: 1,
        handle: 2,
    }]);
    let held = scheduler.hold(&channels, &BTreeSet::new);
    assert!(held.gone.is_empty() && scheduler.waiting.is_empty());
    assert_eq!(scheduler.stays(), None);
    assert!(scheduler.why_not().unwrap().ends_with("status 0x56"));
}

#[test]
fn a_gpu_that_gives_no_answer_three_times_is_asked_no_more() {
    const TIMEOUT: u32 = 0x65;
    let folder = tempfile::tempdir().unwrap();
    let calls = Arc::default();
    let mut scheduler = Scheduler::with(Refuses(TIMEOUT, Arc::clone(&calls)), folder.path());
    assert!(scheduler.stays().is_some());
    scheduler.waiting = BTreeSet::from([Channel {
        client: 1,
        handle: 2,
    }]);
    scheduler.end();
    assert_eq!(calls.load(Relaxed), MOST_TIMEOUTS);
    assert_eq!(scheduler.stays(), None);
    scheduler.let_run();
    assert_eq!(calls.load(Relaxed), MOST_TIMEOUTS);
    assert_eq!(
        scheduler.waiting.len(),
        1,
        "it is tried again with the next device"
    );
}

/// A device whose readings are these.
#[derive(Clone)]
struct Readings(Vec<(Vec<Switch>, Reading)>);

impl Device for Readings {
    fn switches(&mut self, to: &mut Vec<Switch>) -> Result<Reading, softmig_rm::Error> {
        let (switches, reading) = self.0.remove(0);
        to.extend(switches);
        Ok(Reading {
            at: now().unsigned_abs(),
            ..reading
        })
    }

    fn enable(&self, _: &[Channel], _: bool, _: Ended<'_>) -> Untaken {
        Untaken::default()
    }
}

#[test]
fn where_the_log_lacks_something_nobody_is_taken_to_be_there_still() {
    let process = std::process::id();
    let came = || {
        vec![Switch {
            process,
            channel: 6,
            is_start: true,
            at: (now() - MS).unsigned_abs(),
        }]
    };
    let lost = Reading {
        has_lost: true,
        ..Reading::default()
    };
    let lacks_last = Reading {
        lacks_last: true,
        ..Reading::default()
    };
    let all = Reading::default();
    let folder = tempfile::tempdir().unwrap();
    let is_there = |readings: Vec<(Vec<Switch>, Reading)>| {
        let count = readings.len();
        let mut scheduler = Scheduler::with(Readings(readings), folder.path());
        (1..count).for_each(|_| drop(scheduler.stays()));
        thread::sleep(Duration::from_millis(1));
        scheduler.stays().unwrap().1.contains_key(&process)
    };
    assert!(is_there(vec![(came(), all), (vec![], all)]));
    assert!(
        !is_there(vec![(came(), all), (vec![], lost)]),
        "it may have left"
    );
    assert!(
        is_there(vec![(came(), lost), (vec![], all)]),
        "it came after that"
    );
    assert!(!is_there(vec![(came(), lacks_last), (vec![], all)]));
}
