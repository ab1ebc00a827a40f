//! Seats that wake the arbiter without pause, as a hostile job's could, and others beside them.

#[path = "gpu_tests/packed.rs"]
mod packed;
#[path = "gpu_tests/steered.rs"]
mod steered;
#[path = "gpu_tests/worked.rs"]
mod worked;

use super::*;
use crate::packs::{PackId, PackMember, Packs};
use crate::schedule::Job;
use memmap2::MmapRaw;
use rustix::thread::futex;
use softmig_node::node::Node;
use softmig_policy::node::limits::{Mode, Share};
use softmig_region::seat::{Seat, Version};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

/// The scheduler of a GPU that does not exist.
fn nowhere() -> Scheduler {
    Scheduler::new([0; 16], std::path::Path::new("/nonexistent"))
}

/// A seat as its process has it.
struct Sat(MmapRaw);

/// A process of this job comes.
fn sit(gpu: &Arc<Gpu>, job: u32, pid: u32, version: Version) -> io::Result<(Sat, SeatId)> {
    let admission = Admission {
        job: Job(job),
        uid: 2001,
        share: Share::new(1, 2).unwrap(),
        mode: Mode::SOFT,
        pack: None,
    };
    sit_as(gpu, admission, pid, version)
}

/// The same, with what its job has.
fn sit_as(
    gpu: &Arc<Gpu>,
    admission: Admission,
    pid: u32,
    version: Version,
) -> io::Result<(Sat, SeatId)> {
    // Its supervisor is not there.
    let member = |pack: PackId| {
        let packs = Packs::new(&Node::in_folder("/nonexistent".as_ref(), 0), "");
        PackMember::new(Arc::new(packs), (String::new(), pack.to_string()), pid)
    };
    let newcomer = Newcomer {
        pid,
        process: None,
        version,
        user: Arc::default(),
        pack: admission.pack.map(member),
    };
    let (id, file) = gpu.sit(admission, newcomer)?;
    Ok((Sat(MmapRaw::map_raw(&file)?), id))
}

impl Sat {
    fn down(gpu: &Arc<Gpu>, job: u32) -> Self {
        sit(gpu, job, 1, Version::Cap).unwrap().0
    }

    /// Wants the GPU, and says that it has work from now on.
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

    /// Wakes the arbiter; tells how long it takes until it is polled.
    fn be_polled(&self) -> Duration {
        let (seat, asked) = (self.seat(), Instant::now());
        let before = seat.heartbeat().load(SeqCst);
        self.wake();
        while seat.heartbeat().load(SeqCst) == before {
            assert!(asked.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_micros(20));
        }
        asked.elapsed()
    }
}

/// A crowd that wakes the arbiter without pause, on a thread of its own.
fn beside<T>(crowd: &[Sat], meanwhile: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                crowd.iter().for_each(Sat::wake);
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
        let gpu = Gpu::start(nowhere(), &Arc::default()).unwrap();
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
fn a_process_beside_a_crowd_that_wakes_is_polled() {
    let gpu = Gpu::start(nowhere(), &Arc::default()).unwrap();
    let crowd = Sat::crowd(&gpu, 1, 100);
    let other = Sat::down(&gpu, 2);
    beside(&crowd, || {
        for _ in 0..20 {
            assert!(other.be_polled() < Duration::from_secs(20));
        }
    });
    gpu.end();
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
    for seats in [0, 1, 500] {
        let gpu = Gpu::start(nowhere(), &Arc::default()).unwrap();
        let crowd = Sat::crowd(&gpu, 1, seats);
        let other = Sat::down(&gpu, 2);
        thread::sleep(Duration::from_millis(500));
        let (start, before) = (Instant::now(), cpu_time());
        let mut waits = beside(&crowd, || {
            let pause = || thread::sleep(Duration::from_millis(3));
            let waits = std::iter::repeat_with(|| (pause(), other.be_polled()).1);
            waits.take(800).collect::<Vec<_>>()
        });
        let part = cpu_time().saturating_sub(before).as_secs_f64() / start.elapsed().as_secs_f64();
        waits.sort_unstable();
        let [half, most, longest] = [400, 792, 799].map(|at| waits[at].as_micros());
        let cpu = 100.0 * part;
        println!("{seats}: {cpu:.1} % of a core; another waits {half}, {most}, {longest} us");
        gpu.end();
        thread::sleep(Duration::from_millis(500));
    }
}
