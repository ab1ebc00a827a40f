//! Jobs on a GPU that is steered.

#[path = "unsteered.rs"]
mod unsteered;

use super::*;
use crate::arbiter::scheduler::Device;
use crate::arbiter::session::Channels;
use crate::arbiter::settings::Proved;
use crate::arbiter::{Client, GatedJob, GpuId, NotSteered, Sharing};
use crate::schedule::Nanos;
use rustix::io::Errno;
use softmig_region::seat::{MOST_CHANNELS, Pacing};
use softmig_rm::{Channel, Ended, Reading, Switch, Untaken};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;

/// The driver has no time.
const BUSY_RETRY: u32 = 0x03;

/// A GPU whose channels do what they are told, and whose log says what the test says.
#[derive(Clone, Default)]
pub(super) struct Steered {
    pub(super) log: Arc<Mutex<Vec<Switch>>>,
    waiting: Arc<Mutex<BTreeSet<Channel>>>,
    /// The number of calls that let channels run which get an error that passes.
    busy: Arc<AtomicU32>,
    /// Where it is to be written down which channels wait, and whether that was there at each call that holds some.
    lists: Option<PathBuf>,
    held: Arc<Mutex<Vec<bool>>>,
    /// Whether its log has no entries by itself.
    is_silent: bool,
    /// How long it takes to read the log after its moment, in milliseconds.
    takes: Arc<AtomicU32>,
    /// The driver's answers to the next calls that read the log.
    errors: Arc<Mutex<Vec<u32>>>,
    /// Held while the driver answers nobody.
    keeps: Arc<Mutex<()>>,
    /// Channels of another GPU, and how often each was to wait here.
    elsewhere: Arc<Mutex<BTreeMap<Channel, u32>>>,
}

impl Device for Steered {
    fn switches(&mut self, to: &mut Vec<Switch>) -> Result<Reading, softmig_rm::Error> {
        drop(self.keeps.lock().unwrap());
        if let Some(status) = self.errors.lock().unwrap().pop() {
            return Err(softmig_rm::Error::Refused { command: 0, status });
        }
        to.append(&mut self.log.lock().unwrap());
        let at = now().unsigned_abs();
        thread::sleep(Duration::from_millis(self.takes.load(SeqCst).into()));
        Ok(Reading {
            at,
            ..Reading::default()
        })
    }

    fn enable(&self, channels: &[Channel], is_on: bool, _: Ended<'_>) -> Untaken {
        let busy = || {
            self.busy
                .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
        };
        if is_on && busy().is_ok() {
            return Untaken {
                rest: channels.to_vec(),
                error: Some(softmig_rm::Error::Refused {
                    command: 0,
                    status: BUSY_RETRY,
                }),
                ..Untaken::default()
            };
        }
        if let Some(lists) = self.lists.as_ref().filter(|_| !is_on) {
            let is_listed = std::fs::read_dir(lists).unwrap().next().is_some();
            self.held.lock().unwrap().push(is_listed);
        }
        let mut waiting = self.waiting.lock().unwrap();
        let mut elsewhere = self.elsewhere.lock().unwrap();
        let mut untaken = Untaken::default();
        for channel in channels {
            if let Some(count) = elsewhere.get_mut(channel) {
                *count += 1;
                untaken.gone.push(*channel);
            } else if is_on {
                waiting.remove(channel);
            } else {
                waiting.insert(*channel);
            }
        }
        // Something comes or leaves then, whoever it is.
        if is_on && !self.is_silent {
            self.switch(Switch::DRIVER, false);
        }
        untaken
    }
}

impl Steered {
    /// This process's group comes to the GPU, or leaves it, now.
    fn switch(&self, process: u32, is_start: bool) {
        let at = now() as u64;
        self.log.lock().unwrap().push(Switch {
            process,
            channel: 6,
            is_start,
            at,
        });
    }

    pub(super) fn waits(&self, channel: Channel) -> bool {
        self.waiting.lock().unwrap().contains(&channel)
    }
}

/// Waits until that is so.
pub(super) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The process of a job's: the log of one that has ended is not believed.
pub(super) fn pid(number: u32) -> u32 {
    match number {
        1 => std::process::id(),
        2 => std::os::unix::process::parent_id(),
        _ => 1,
    }
}

/// A GPU that is steered, and the device.
fn steered_gpu(folder: &Path) -> (Arc<Gpu>, Steered) {
    let device = Steered::default();
    let scheduler = Scheduler::with(device.clone(), folder);
    (Gpu::start(scheduler, &Arc::default()).unwrap(), device)
}

pub(super) fn is_free(sat: &Sat) -> bool {
    sat.seat().pacing() == Pacing::Free
}

pub(super) fn channel(number: u32) -> Channel {
    Channel {
        client: 0xc1d0_0000 + number,
        handle: 0x5c00_0022,
    }
}

/// Channels of a process that are proven.
pub(super) fn set_channels(gpu: &Gpu, id: SeatId, channels: Vec<Channel>) {
    gpu.state()
        .session(id)
        .set_channels(Channels::Known(channels));
}

/// A job with one process whose channels are known.
fn steered_job(gpu: &Arc<Gpu>, number: u32) -> (Sat, SeatId, Channel) {
    let (sat, id) = sit(gpu, number, pid(number), Version::Cap).unwrap();
    set_channels(gpu, id, vec![channel(number)]);
    (sat, id, channel(number))
}

#[test]
fn a_machine_that_is_slow_gives_no_time_away() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, device) = steered_gpu(folder.path());
    let (job, _, _) = steered_job(&gpu, 1);
    job.want();
    wait_until("it launches as it likes", || is_free(&job));
    device.switch(pid(1), true);
    let mut state = gpu.state();
    let mut look = || {
        state.look_now();
        (state.account().book.charged, state.steering().looked())
    };
    // It comes while a log is read that knows nobody yet.
    while look().0 == 0 {}
    let (charged, begun) = look();
    for takes in [3, 0, 7, 1, 0, 20, 2] {
        device.takes.store(takes, SeqCst);
        look();
    }
    let (all, end) = look();
    assert_eq!(all - charged, end - begun);
}

#[test]
fn jobs_that_want_the_gpu_share_it_and_who_is_ahead_waits() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, device) = steered_gpu(folder.path());
    let jobs = [1, 2].map(|number| steered_job(&gpu, number));
    let [
        (first, first_id, first_channel),
        (second, _, second_channel),
    ] = &jobs;
    first.want();
    wait_until("the first launches as it likes", || is_free(first));
    second.want();
    wait_until("both launch as they like", || {
        is_free(first) && is_free(second)
    });
    // The first one has the GPU for itself.
    device.switch(pid(1), true);
    let lists = || std::fs::read_dir(folder.path()).unwrap().count();
    // On a busy machine it may be released again before this looks.
    wait_until("who is ahead waits, and is written down", || {
        device.waits(*first_channel) && lists() == 1
    });
    assert!(!device.waits(*second_channel));
    device.switch(pid(1), false);
    // The driver has no time for a moment.
    device.busy.store(3, SeqCst);
    device.switch(pid(2), true);
    wait_until("it goes on when the other has come up", || {
        !device.waits(*first_channel)
    });
    assert_eq!(device.busy.load(SeqCst), 0);
    device.switch(pid(2), false);
    // A process that goes leaves nothing behind.
    device.switch(pid(1), true);
    wait_until("it is ahead again", || device.waits(*first_channel));
    gpu.remove(*first_id);
    wait_until("the next channel with its number runs", || {
        !device.waits(*first_channel)
    });
    wait_until("no channel is written down", || lists() == 0);
    gpu.end();
}

#[test]
fn channels_of_another_gpu_are_held_there_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, device) = steered_gpu(folder.path());
    let other = channel(77);
    device.elsewhere.lock().unwrap().insert(other, 0);
    let (first, first_id, here) = steered_job(&gpu, 1);
    set_channels(&gpu, first_id, vec![other, here]);
    let (second, _, _) = steered_job(&gpu, 2);
    first.want();
    second.want();
    for _ in 0..3 {
        device.switch(pid(1), true);
        wait_until("who is ahead waits", || device.waits(here));
        device.switch(pid(1), false);
        device.switch(pid(2), true);
        wait_until("it goes on when the other has come up", || {
            !device.waits(here)
        });
        device.switch(pid(2), false);
    }
    assert_eq!(device.elsewhere.lock().unwrap()[&other], 1);
    assert_eq!(gpu.state().session(first_id).known(), [here]);
    gpu.end();
}

#[test]
fn a_group_that_comes_anew_is_written_down_while_it_is_held() {
    let folder = tempfile::tempdir().unwrap();
    let device = Steered {
        lists: Some(folder.path().into()),
        ..Steered::default()
    };
    let scheduler = Scheduler::with(device.clone(), folder.path());
    let gpu = Gpu::start(scheduler, &Arc::default()).unwrap();
    // The log does not know that it is there.
    let (first, _, channel) = steered_job(&gpu, 1);
    first.want();
    wait_until("it came anew", || !device.held.lock().unwrap().is_empty());
    wait_until("it runs", || !device.waits(channel));
    gpu.end();
    let held = device.held.lock().unwrap();
    assert!(held.iter().all(|&is_listed| is_listed), "{held:?}");
}

/// Why the processes of a job are not steered, as is told.
pub(super) fn why_not(gpu: &Gpu, job: u32) -> Vec<Option<NotSteered>> {
    let tenants = gpu.account().tenants.into_iter();
    let members = tenants
        .filter(|it| it.job == Job(job))
        .flat_map(|it| it.members);
    members.map(|it| it.not_steered).collect()
}

fn charged(gpu: &Gpu, job: u32) -> Nanos {
    gpu.account().book.of(Job(job)).charged
}

#[test]
fn a_process_that_cannot_be_steered_leaves_others_steered() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, device) = steered_gpu(folder.path());
    let (first, _, first_channel) = steered_job(&gpu, 1);
    let (second, _, second_channel) = steered_job(&gpu, 2);
    // Another process of the first job, which tells of no channels.
    let (silent, _) = sit(&gpu, 1, pid(3), Version::Cap).unwrap();
    silent.want();
    wait_until("it is told", || {
        matches!(why_not(&gpu, 1)[..], [None, Some(_)])
    });
    let before = charged(&gpu, 1);
    first.want();
    second.want();
    device.switch(pid(3), true);
    wait_until("its job's other process waits", || {
        device.waits(first_channel)
    });
    assert!(is_free(&first) && is_free(&second) && !is_free(&silent));
    assert_eq!(gpu.account().sharing, Sharing::Scheduler);
    wait_until("its job pays", || charged(&gpu, 1) - before > 50_000_000);
    assert!(!device.waits(second_channel) && is_free(&second));
    assert_eq!(charged(&gpu, 2), 0);
    let begun = Instant::now();
    let turn = std::cell::Cell::new(0);
    wait_until("it is found to have too much", || {
        // The other job is there for one of 20 turns.
        turn.set(turn.get() + 1);
        match turn.get() % 20 {
            0 => {
                device.switch(pid(3), false);
                device.switch(pid(2), true);
            }
            1 => {
                device.switch(pid(2), false);
                device.switch(pid(3), true);
            }
            _ => {}
        }
        !gpu.account().excess.is_empty()
    });
    assert!(begun.elapsed() > Duration::from_secs(5));
    let of_first = BTreeMap::from([(Job(1), [pid(3)].into())]);
    assert_eq!(gpu.account().excess, of_first);
    gpu.end();
}

/// Knows that one process is a job's.
#[derive(Debug)]
struct Knows(u32, u32);

impl Authorizer for Knows {
    fn admit(&self, client: Client, _: GpuId) -> Result<Admission, Errno> {
        let is_it = client.pid == self.0;
        is_it
            .then(|| Admission {
                job: Job(self.1),
                uid: 2001,
                share: Share::new(1, 2).unwrap(),
                mode: Mode::HARD,
                pack: None,
            })
            .ok_or(Errno::NOENT)
    }

    fn gated_job(&self, _: Client) -> Option<GatedJob> {
        None
    }

    fn users(&self) -> BTreeSet<u32> {
        BTreeSet::new()
    }
}

#[test]
fn the_log_names_who_lived_between_two_looks() {
    for is_known in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (gpu, device) = steered_gpu(folder.path());
        if is_known {
            gpu.set_authorizer(Arc::new(Knows(pid(3), 1)));
        }
        let (first, _, channel) = steered_job(&gpu, 1);
        let (second, ..) = steered_job(&gpu, 2);
        first.want();
        second.want();
        // No measurement has told of it.
        device.switch(pid(3), true);
        let unclaimed = || gpu.account().book.unclaimed;
        wait_until("it is on the GPU", || {
            charged(&gpu, 1) + unclaimed() > 50_000_000
        });
        // Before it is steered a job pays for what it tells: here for a moment, if this machine is busy.
        const MOMENT: Nanos = 25_000_000;
        assert_eq!(charged(&gpu, 1) > MOMENT, is_known);
        assert_eq!(unclaimed() > MOMENT, !is_known);
        if is_known {
            wait_until("its job's other process waits", || device.waits(channel));
        }
        gpu.end();
    }
}

#[test]
fn a_process_that_runs_although_it_is_held_is_held_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, device) = steered_gpu(folder.path());
    let [(first, _, channel), (second, ..)] = &[1, 2].map(|number| steered_job(&gpu, number));
    for sat in [first, second] {
        sat.want();
    }
    wait_until("both launch as they like", || {
        is_free(first) && is_free(second)
    });
    // It never leaves.
    device.switch(pid(1), true);
    wait_until("it is told", || {
        why_not(&gpu, 1) == [Some(NotSteered::Runs)]
    });
    wait_until("it keeps its cap itself", || !is_free(first));
    assert!(!device.waits(*channel));
    assert!(is_free(second));
    assert_eq!(gpu.account().sharing, Sharing::Scheduler);
    gpu.end();
}

#[test]
fn a_job_with_too_many_channels_in_all_is_not_steered() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, _) = steered_gpu(folder.path());
    let most = u32::try_from(MOST_CHANNELS).unwrap();
    let sit_with = |channels: std::ops::Range<u32>| {
        let (sat, id) = sit(&gpu, 1, pid(1), Version::Cap).unwrap();
        set_channels(&gpu, id, channels.map(channel).collect());
        sat.want();
        (sat, id)
    };
    let (first, _) = sit_with(0..241);
    wait_until("it is steered", || is_free(&first));
    let (second, second_id) = sit_with(241..most + 1);
    wait_until("neither is steered", || {
        why_not(&gpu, 1) == [Some(NotSteered::JobHasTooMany); 2]
    });
    wait_until("both keep their job's cap", || {
        !is_free(&first) && !is_free(&second)
    });
    gpu.remove(second_id);
    wait_until("the first is steered again", || is_free(&first));
    gpu.end();
}

#[test]
fn jobs_that_have_gone_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, _) = steered_gpu(folder.path());
    let (first, ..) = steered_job(&gpu, 1);
    first.want();
    wait_until("it is steered", || {
        gpu.account().sharing == Sharing::Scheduler
    });
    for number in 2..300 {
        let (sat, id, _) = steered_job(&gpu, number);
        sat.want();
        wait_until("it is steered, too", || sat.seat().pacing() == Pacing::Free);
        gpu.remove(id);
    }
    wait_until("one is there", || {
        thread::sleep(Duration::from_millis(20));
        gpu.account();
        let state = gpu.state();
        (2..300).all(|job| state.steering().credit(Job(job)).is_none())
    });
    gpu.end();
}
