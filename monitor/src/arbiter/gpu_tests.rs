//! Seats that wake the arbiter without pause, as a hostile job's could, and others beside them.

use super::super::steering::Refused;
use super::*;
use crate::arbiter::Sharing;
use crate::schedule::turns::Job;
use memmap2::MmapRaw;
use rustix::thread::futex;
use rustix::time::Timespec;
use softmig_policy::node::limits::{Mode, Share};
use softmig_region::seat::{OPEN, Seat};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

/// The scheduler of a GPU that does not exist.
fn nowhere() -> Scheduler {
    Scheduler::new([0; 16], std::path::Path::new("/nonexistent"))
}

/// A seat as its process has it.
struct Sat(MmapRaw);

impl Sat {
    fn down(gpu: &Arc<Gpu>, job: u32) -> Self {
        let admission = Admission {
            job: Job(job),
            share: Share::new(1, 2).unwrap(),
            mode: Mode::Hard,
            is_several: false,
        };
        let (_, file) = gpu.sit(admission, 1, None, &Arc::default()).unwrap();
        Self(MmapRaw::map_raw(&file).unwrap())
    }

    /// Wishes, and says that it has work from now on.
    fn want(&self) {
        self.seat().wants_gpu().store(1, SeqCst);
        self.seat().tell_work(now().unsigned_abs(), true, 0);
        self.wake();
    }

    fn crowd(gpu: &Arc<Gpu>, job: u32, seats: usize) -> Vec<Self> {
        (0..seats).map(|_| Self::down(gpu, job)).collect()
    }

    fn seat(&self) -> &Seat {
        // SAFETY: mapped as long as `self` lives, and sealed.
        unsafe { Seat::at(self.0.as_ptr()) }.unwrap()
    }

    fn wake(&self) {
        self.seat().wakes().fetch_add(1, SeqCst);
        futex::wake(self.seat().wakes(), futex::Flags::empty(), 1).unwrap();
    }

    /// Wishes and has a turn, which it gives back; tells how long it waited.
    fn take_turn(&self) -> Duration {
        let (seat, asked) = (self.seat(), Instant::now());
        seat.wants_gpu().store(1, SeqCst);
        self.wake();
        let turn = loop {
            let turn = seat.turn().load(SeqCst);
            if turn & OPEN != 0 && turn != seat.done().load(SeqCst) {
                break turn;
            }
            if turn & OPEN == 0 {
                seat.done().store(turn, SeqCst);
            }
            let most = Some(&Timespec {
                tv_sec: 60,
                tv_nsec: 0,
            });
            let waited = futex::wait(seat.turn(), futex::Flags::empty(), turn, most);
            assert_ne!(waited, Err(rustix::io::Errno::TIMEDOUT));
        };
        let waited = asked.elapsed();
        thread::sleep(Duration::from_micros(200));
        seat.wants_gpu().store(0, SeqCst);
        seat.done().store(turn, SeqCst);
        self.wake();
        waited
    }
}

/// The doings of a crowd.
#[derive(Clone, Copy, Debug)]
enum Does {
    Nothing,
    /// Rings, and wants nothing.
    Rings,
    /// Wants turns, and gives each back as soon as it is told of it.
    GivesBack,
}

/// A crowd at work on a thread of its own.
fn at_work<T>(does: Does, crowd: &[Sat], meanwhile: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(matches!(does, Does::Nothing));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                for sat in crowd {
                    if matches!(does, Does::GivesBack) {
                        sat.seat().wants_gpu().store(1, SeqCst);
                        let turn = sat.seat().turn().load(SeqCst);
                        sat.seat().done().store(turn, SeqCst);
                    }
                    sat.wake();
                }
            }
        });
        let done = meanwhile();
        is_over.store(true, SeqCst);
        done
    })
}

#[test]
fn a_process_that_wakes_without_pause_is_polled_now_and_then() {
    for seats in [1, 100] {
        let gpu = Gpu::start(Rules::default(), OtherGpus::default(), nowhere()).unwrap();
        let start = Instant::now();
        let crowd = Sat::crowd(&gpu, 1, seats);
        let mut last = vec![0; seats];
        let mut heard = 0;
        while start.elapsed() < Duration::from_millis(500) {
            for (sat, last) in crowd.iter().zip(&mut last) {
                sat.wake();
                let beat = sat.seat().heartbeat().load(SeqCst);
                heard += usize::from(std::mem::replace(last, beat) != beat);
            }
        }
        let time = usize::try_from(start.elapsed().as_millis()).unwrap() + 1;
        // One by one, with what was saved up; and all together.
        let alone = (time + 10) * 1000 / (100 + seats);
        let together = time * 50 / (50 + seats) * seats;
        let most = 2 * seats + alone + together;
        assert!(heard <= most, "{seats}: {heard} of {most}");
        gpu.end();
    }
}

#[test]
fn a_process_beside_a_crowd_that_wakes_has_turns() {
    for does in [Does::Rings, Does::GivesBack] {
        let gpu = Gpu::start(Rules::default(), OtherGpus::default(), nowhere()).unwrap();
        let crowd = Sat::crowd(&gpu, 1, 100);
        let other = Sat::down(&gpu, 2);
        at_work(does, &crowd, || {
            for _ in 0..20 {
                other.take_turn();
            }
        });
        gpu.end();
    }
}

/// The CPU time of the arbiter's threads.
fn cpu_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let time = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let time = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        let time = time.split(' ').next()?.parse::<u64>().ok()?;
        matches!(name.trim(), "seat" | "clock").then_some(time)
    };
    Duration::from_nanos(tasks.filter_map(|task| time(task.ok()?)).sum())
}

/// `cargo test --release -p softmig-monitor --lib -- --ignored --nocapture crowd_costs`
#[test]
#[ignore = "a measurement"]
fn what_a_crowd_costs() {
    use Does::{GivesBack, Nothing, Rings};
    for (seats, does) in [
        (1, Nothing),
        (1, Rings),
        (500, Nothing),
        (500, Rings),
        (500, GivesBack),
    ] {
        let gpu = Gpu::start(Rules::default(), OtherGpus::default(), nowhere()).unwrap();
        let crowd = Sat::crowd(&gpu, 1, seats);
        let other = Sat::down(&gpu, 2);
        thread::sleep(Duration::from_millis(500));
        let (start, before) = (Instant::now(), cpu_time());
        let mut waits = at_work(does, &crowd, || {
            let pause = || thread::sleep(Duration::from_millis(3));
            let turns = std::iter::repeat_with(|| (pause(), other.take_turn()).1);
            turns.take(800).collect::<Vec<_>>()
        });
        let part = cpu_time().saturating_sub(before).as_secs_f64() / start.elapsed().as_secs_f64();
        waits.sort_unstable();
        let [half, most, longest] = [400, 792, 799].map(|at| waits[at].as_micros());
        let cpu = 100.0 * part;
        println!(
            "{seats} {does:?}: {cpu:.1} % of a core; another waits {half}, {most}, {longest} us"
        );
        gpu.end();
        thread::sleep(Duration::from_millis(500));
    }
}

/// A GPU whose channels do what they are told, and whose log says what the test says.
#[derive(Clone, Default)]
struct Steered {
    log: Arc<Mutex<Vec<softmig_rm::Switch>>>,
    waiting: Arc<Mutex<std::collections::BTreeSet<softmig_rm::Channel>>>,
    /// The number of calls that let channels run which get an error that passes.
    busy: Arc<std::sync::atomic::AtomicU32>,
    /// Where it is to be written down which channels wait, and whether that was there at each call that holds some.
    lists: Option<std::path::PathBuf>,
    held: Arc<Mutex<Vec<bool>>>,
    /// The driver's answers to the next calls that read the log.
    errors: Arc<Mutex<Vec<u32>>>,
}

impl super::super::steering::Device for Steered {
    fn switches(&mut self, to: &mut Vec<softmig_rm::Switch>) -> Result<bool, softmig_rm::Error> {
        if let Some(status) = self.errors.lock().unwrap().pop() {
            return Err(softmig_rm::Error::Refused { command: 0, status });
        }
        to.append(&mut self.log.lock().unwrap());
        Ok(false)
    }

    fn enable(&self, channels: &[softmig_rm::Channel], is_on: bool) -> Refused {
        let busy = || {
            self.busy
                .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
        };
        if is_on && busy().is_ok() {
            return Refused {
                later: channels.to_vec(),
                ..Refused::default()
            };
        }
        if let Some(lists) = self.lists.as_ref().filter(|_| !is_on) {
            let is_listed = std::fs::read_dir(lists).unwrap().next().is_some();
            self.held.lock().unwrap().push(is_listed);
        }
        let mut waiting = self.waiting.lock().unwrap();
        for channel in channels {
            if is_on {
                waiting.remove(channel);
            } else {
                waiting.insert(*channel);
            }
        }
        Refused::default()
    }
}

impl Steered {
    /// This process's group comes to the GPU, or leaves it, now.
    fn switch(&self, process: u32, is_start: bool) {
        let at = now() as u64;
        self.log.lock().unwrap().push(softmig_rm::Switch {
            process,
            channel: 6,
            is_start,
            at,
        });
    }

    fn waits(&self, channel: softmig_rm::Channel) -> bool {
        self.waiting.lock().unwrap().contains(&channel)
    }
}

/// Waits until that is so.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The process of a job's: the log of one that has ended is not believed.
fn pid(number: u32) -> u32 {
    match number {
        1 => std::process::id(),
        _ => 1,
    }
}

/// A job with one process that wants the GPU.
fn steered_job(gpu: &Arc<Gpu>, number: u32) -> (Sat, SeatId, softmig_rm::Channel) {
    use super::super::session::Channels;
    let admission = Admission {
        job: Job(number),
        share: Share::new(1, 2).unwrap(),
        mode: Mode::Soft,
        is_several: false,
    };
    let (id, file) = gpu
        .sit(admission, pid(number), None, &Arc::default())
        .unwrap();
    let channel = softmig_rm::Channel {
        client: 0xc1d0_0000 + number,
        handle: 0x5c00_0022,
    };
    gpu.state()
        .session(id)
        .set_channels(Channels::Known(vec![channel]));
    (Sat(MmapRaw::map_raw(&file).unwrap()), id, channel)
}

#[test]
fn jobs_that_want_the_gpu_share_it_and_who_is_ahead_waits() {
    let folder = tempfile::tempdir().unwrap();
    let device = Steered::default();
    let scheduler = Scheduler::with(device.clone(), folder.path());
    let gpu = Gpu::start(Rules::default(), OtherGpus::default(), scheduler).unwrap();
    let jobs = [1, 2].map(|number| steered_job(&gpu, number));
    let [
        (first, first_id, first_channel),
        (second, _, second_channel),
    ] = &jobs;
    let is_free = |sat: &Sat| {
        let seat = sat.seat();
        seat.free().load(SeqCst) == 1 && seat.turn().load(SeqCst) & OPEN != 0
    };
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
    assert!(
        !device.waits(*first_channel),
        "the next channel with its number runs"
    );
    wait_until("no channel is written down", || lists() == 0);
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
    let gpu = Gpu::start(Rules::default(), OtherGpus::default(), scheduler).unwrap();
    // The log does not know that it is there.
    let (first, _, channel) = steered_job(&gpu, 1);
    first.want();
    wait_until("it came anew", || !device.held.lock().unwrap().is_empty());
    wait_until("it runs", || !device.waits(channel));
    gpu.end();
    let held = device.held.lock().unwrap();
    assert!(held.iter().all(|&is_listed| is_listed), "{held:?}");
}

#[test]
fn a_job_that_cannot_be_steered_keeps_all_to_turns() {
    let folder = tempfile::tempdir().unwrap();
    let scheduler = Scheduler::with(Steered::default(), folder.path());
    let gpu = Gpu::start(Rules::default(), OtherGpus::default(), scheduler).unwrap();
    let (first, ..) = steered_job(&gpu, 1);
    // Of an older library: it tells of no channels.
    let second = Sat::down(&gpu, 2);
    first.want();
    wait_until("the first launches as it likes", || {
        first.seat().free().load(SeqCst) == 1
    });
    assert!(second.take_turn() < Duration::from_secs(20));
    assert_eq!(first.seat().free().load(SeqCst), 0);
    gpu.end();
}

#[test]
fn a_job_that_runs_although_it_is_held_takes_turns() {
    let folder = tempfile::tempdir().unwrap();
    let device = Steered::default();
    let scheduler = Scheduler::with(device.clone(), folder.path());
    let gpu = Gpu::start(Rules::default(), OtherGpus::default(), scheduler).unwrap();
    let [(first, ..), (second, ..)] = &[1, 2].map(|number| steered_job(&gpu, number));
    for sat in [first, second] {
        sat.want();
    }
    let are_free = |is_free: u32| {
        let mut seats = [first, second].into_iter();
        seats.all(|sat| sat.seat().free().load(SeqCst) == is_free)
    };
    wait_until("both launch as they like", || are_free(1));
    // It never leaves.
    device.switch(pid(1), true);
    wait_until("they take turns", || are_free(0));
    assert!(device.waiting.lock().unwrap().is_empty());
    thread::sleep(Duration::from_millis(50));
    assert!(are_free(0), "and go on with that");
    gpu.end();
}

#[test]
fn how_jobs_share_the_gpu_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let want_gpu = |sat: &Sat| {
        sat.seat().wants_gpu().store(1, SeqCst);
        sat.wake();
    };
    let scheduler = Scheduler::with(Steered::default(), folder.path());
    let gpu = Gpu::start(Rules::default(), OtherGpus::default(), scheduler).unwrap();
    assert_eq!(gpu.account().sharing, Sharing::Turns(None));
    let jobs = [1, 2].map(|number| steered_job(&gpu, number));
    jobs.iter().for_each(|(sat, ..)| want_gpu(sat));
    wait_until("they are steered", || {
        gpu.account().sharing == Sharing::Scheduler
    });
    // Of an older library: it tells of no channels.
    let third = Sat::down(&gpu, 3);
    let why = Sharing::Turns(Some("process 1 of job 3 cannot be steered".into()));
    want_gpu(&third);
    wait_until("they take turns again", || gpu.account().sharing == why);
    gpu.end();
    let off = Scheduler::off([0; 16], "it ran on".into());
    let gpu = Gpu::start(Rules::default(), OtherGpus::default(), off).unwrap();
    let why = Sharing::Turns(Some("it ran on".into()));
    assert_eq!(gpu.account().sharing, why);
    let jobs = [1, 2].map(|number| steered_job(&gpu, number));
    jobs.iter().for_each(|(sat, ..)| want_gpu(sat));
    wait_until("one of them has a turn", || {
        let mut seats = jobs.iter().map(|(sat, ..)| sat.seat());
        seats.any(|seat| seat.turn().load(SeqCst) & OPEN != 0)
    });
    assert_eq!(gpu.account().sharing, why);
    let mut seats = jobs.iter().map(|(sat, ..)| sat.seat());
    assert!(seats.all(|seat| seat.free().load(SeqCst) == 0));
    gpu.end();
}

/// A GPU that is steered, and the device.
fn steered_gpu(folder: &std::path::Path) -> (Arc<Gpu>, Steered) {
    let device = Steered::default();
    let scheduler = Scheduler::with(device.clone(), folder);
    let gpu = Gpu::start(Rules::default(), OtherGpus::default(), scheduler).unwrap();
    (gpu, device)
}

#[test]
fn a_debt_of_turns_is_paid_once() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, _) = steered_gpu(folder.path());
    let owed = || gpu.account().tenants[0].standing.credit;
    let first = Sat::down(&gpu, 1);
    first.want();
    wait_until("it has a turn", || {
        first.seat().turn().load(SeqCst) & OPEN != 0
    });
    // It has the GPU for far longer than its share of an epoch.
    thread::sleep(Duration::from_secs(1));
    first.seat().used().store(1_000_000_000, SeqCst);
    first.wake();
    wait_until("it owes", || owed() < -250_000_000);
    let seats: Vec<SeatId> = gpu.state().seats().collect();
    let channel = softmig_rm::Channel {
        client: 0xc1d0_0001,
        handle: 0x5c00_0022,
    };
    use super::super::session::Channels;
    (gpu.state().session(seats[0])).set_channels(Channels::Known(vec![channel]));
    first.want();
    wait_until("it is steered", || {
        gpu.account().sharing == Sharing::Scheduler
    });
    assert!(owed() < 0, "{}", owed());
    first.seat().wants_gpu().store(0, SeqCst);
    first.seat().tell_work(now().unsigned_abs(), false, 0);
    first.wake();
    wait_until("it has paid", || {
        gpu.account();
        owed() > 0
    });
    gpu.remove(seats[0]);
    // Its credit fills up, and it is forgotten.
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(20));
        gpu.account();
    }
    let (again, ..) = steered_job(&gpu, 1);
    again.want();
    wait_until("it is steered again", || {
        again.seat().free().load(SeqCst) == 1
    });
    assert!(owed() > 0, "{}", owed());
    gpu.end();
}

#[test]
fn an_error_that_passes_ends_steering_for_a_moment() {
    const TIMEOUT: u32 = 0x65;
    let folder = tempfile::tempdir().unwrap();
    let (gpu, device) = steered_gpu(folder.path());
    let (first, ..) = steered_job(&gpu, 1);
    first.want();
    let is_steered = || gpu.account().sharing == Sharing::Scheduler;
    wait_until("it is steered", is_steered);
    device.errors.lock().unwrap().push(TIMEOUT);
    wait_until("it takes turns", || {
        gpu.account();
        !is_steered()
    });
    wait_until("it is steered again", || {
        gpu.account();
        is_steered()
    });
    gpu.end();
}

#[test]
fn a_driver_that_is_busy_is_asked_seldom() {
    const BUSY_RETRY: u32 = 0x03;
    let folder = tempfile::tempdir().unwrap();
    let (gpu, device) = steered_gpu(folder.path());
    device.errors.lock().unwrap().resize(1000, BUSY_RETRY);
    let (first, ..) = steered_job(&gpu, 1);
    for _ in 0..100 {
        first.want();
        gpu.account();
    }
    assert!(device.errors.lock().unwrap().len() > 990);
    gpu.end();
}

#[test]
fn channels_that_the_driver_kept_waiting_run_later() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, device) = steered_gpu(folder.path());
    let [(first, _, channel), (second, ..)] = &[1, 2].map(|number| steered_job(&gpu, number));
    for sat in [first, second] {
        sat.want();
    }
    device.switch(pid(1), true);
    wait_until("it is held", || device.waits(*channel));
    // The driver has no time for longer than it is asked when steering ends.
    device.busy.store(110, SeqCst);
    // Of an older library: it tells of no channels.
    let third = Sat::down(&gpu, 3);
    third.want();
    wait_until("they take turns", || {
        gpu.account().sharing != Sharing::Scheduler
    });
    wait_until("it runs", || !device.waits(*channel));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
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
        wait_until("it is steered, too", || sat.seat().free().load(SeqCst) == 1);
        gpu.remove(id);
    }
    wait_until("one is there", || {
        thread::sleep(Duration::from_millis(20));
        gpu.account();
        gpu.state().turns().known().count() == 1
    });
    gpu.end();
}
