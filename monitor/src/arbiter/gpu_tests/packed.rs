//! Jobs of a pack: clients of one MPS server, which are on the GPU at the same time and which the GPU's log has under one process.

use super::steered::{channel, is_free, pid, set_channels, wait_until, why_not};
use super::worked::Worked;
use super::*;
use crate::arbiter::NotSteered;
use crate::packs::PackId;
use softmig_region::seat::Pacing;
use softmig_rm::Channel;
use std::path::Path;

const PACK: PackId = PackId::User(2001);

/// A GPU with the groups of these channels, by the processes that the log names.
fn gpu<const N: usize>(folder: &Path, groups: [(u32, &[u32]); N]) -> (Arc<Gpu>, Worked) {
    let device = Worked::with(&groups);
    let scheduler = Scheduler::with(device.clone(), folder);
    (Gpu::start(scheduler, &Arc::default()).unwrap(), device)
}

/// A process of a job that always has work, with the channel of its number. The log names the processes 1 and 2 alone.
struct Client {
    sat: Arc<Sat>,
    id: SeatId,
    channel: Channel,
}

impl Client {
    fn start(gpu: &Arc<Gpu>, number: u32, admission: Admission) -> Self {
        const UNNAMED: u32 = 0x7fff_0000;
        let process = match number {
            1 | 2 => pid(number),
            _ => UNNAMED + number,
        };
        let (sat, id) = sit_as(gpu, admission, process, Version::Cap).unwrap();
        let sat = Arc::new(sat);
        set_channels(gpu, id, vec![channel(number)]);
        sat.want();
        let teller = Arc::downgrade(&sat);
        thread::spawn(move || {
            let mut told = now().unsigned_abs();
            while let Some(sat) = teller.upgrade() {
                if sat.seat().wants_gpu().load(SeqCst) == 1 {
                    let now = now().unsigned_abs();
                    sat.seat().tell_work(now, true, now - told);
                    told = now;
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        Self {
            sat,
            id,
            channel: channel(number),
        }
    }

    /// Its process is stopped: it tells no more that it has work.
    fn stop(&self) {
        self.sat.seat().wants_gpu().store(2, SeqCst);
    }

    /// Its process ends, while it is held or not, and the pack's supervisor takes its work off the GPU.
    fn end(&self, gpu: &Gpu, device: &Worked, is_held: bool) {
        self.once(gpu, device, is_held, |state| {
            for group in &mut device.groups.lock().unwrap().all {
                group.channels.retain(|it| *it != self.channel);
            }
            state.note_end(self.id);
        });
    }

    /// Does this while it is held or not.
    fn once(&self, gpu: &Gpu, device: &Worked, is_held: bool, then: impl Fn(&mut GpuState)) {
        wait_until("it is held or runs", || {
            let mut state = gpu.state();
            let is_time = device.waits(self.channel) == is_held;
            if is_time {
                then(&mut state);
            }
            is_time
        });
    }
}

/// What a job of so many quarters has.
fn quarters(job: u32, count: u32, mode: Mode, pack: Option<PackId>) -> Admission {
    Admission {
        job: Job(job),
        uid: 2001,
        share: Share::new(count, 4).unwrap(),
        mode,
        pack,
    }
}

/// What parts of the time jobs were charged in the seconds to come, in percent.
fn parts<const N: usize>(gpu: &Gpu, jobs: [u32; N]) -> [f64; N] {
    let charged = || {
        let mut book = gpu.account().book;
        jobs.map(|job| book.of(Job(job)).charged)
    };
    let (begun, before) = (now(), charged());
    thread::sleep(Duration::from_secs(3));
    let (after, time) = (charged(), now() - begun);
    std::array::from_fn(|it| 100.0 * (after[it] - before[it]) as f64 / time as f64)
}

fn is_near(parts: &[f64], expected: &[f64]) -> bool {
    parts
        .iter()
        .zip(expected)
        .all(|(it, expected)| (it - expected).abs() < 4.0)
}

/// Two quarters of one user's, of which the log names the first alone, and another's half. The parts of the time that the book says,
/// and whether the two were held and let run together.
fn two_quarters_and_a_half(pack: Option<PackId>) -> ([f64; 3], bool) {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, device) = gpu(folder.path(), [(pid(1), &[1, 3]), (pid(2), &[2])]);
    let start = |number, count, pack| {
        Client::start(&gpu, number, quarters(number, count, Mode::SOFT, pack))
    };
    // The scheduler knows the pack by the job that came first.
    let all = [start(3, 1, pack), start(1, 1, pack), start(2, 2, None)];
    wait_until("they are steered", || all.iter().all(|it| is_free(&it.sat)));
    let from = device.count_told();
    let parts = parts(&gpu, [1, 3, 2]);
    gpu.end();
    let told = device.told_since(from);
    let of = |client: &Client| -> Vec<bool> {
        let own = told.iter().filter(|it| it.channel == client.channel);
        own.map(|it| it.is_on).collect()
    };
    let (first, second) = (of(&all[0]), of(&all[1]));
    (parts, first.len() > 10 && first == second)
}

#[test]
fn a_pack_is_one_job_with_the_shares_of_all_and_its_time_is_theirs_by_their_work() {
    let (parts, are_together) = two_quarters_and_a_half(Some(PACK));
    assert!(is_near(&parts, &[25.0, 25.0, 50.0]), "{parts:?}");
    assert!(are_together);
    // Without it whom the log names pays for both, and cannot be held.
    let (parts, are_together) = two_quarters_and_a_half(None);
    assert!(
        parts[1] < 1.0 && !is_near(&parts, &[25.0, 25.0, 50.0]),
        "{parts:?}"
    );
    assert!(!are_together);
}

#[test]
fn clients_that_were_there_before_the_log_come_anew_together() {
    for (jobs, pack) in [([1, 3], Some(PACK)), ([1, 1], None)] {
        let folder = tempfile::tempdir().unwrap();
        let (gpu, device) = gpu(folder.path(), [(pid(1), &[1, 3])]);
        device.groups.lock().unwrap().there = Some((0, 0));
        let start = |number, job| Client::start(&gpu, number, quarters(job, 1, Mode::SOFT, pack));
        let _all = [start(1, jobs[0]), start(3, jobs[1])];
        wait_until("the log has an entry", || {
            let entries = &device.groups.lock().unwrap().entries;
            *entries > 0
        });
        gpu.end();
    }
}

#[test]
fn jobs_of_several_users_are_told_of_turns_and_none_is_held_for_them() {
    for (pack, is_shared) in [(PackId::Account(7), true), (PACK, false)] {
        let folder = tempfile::tempdir().unwrap();
        let (gpu, device) = gpu(folder.path(), [(pid(1), &[1, 2])]);
        let all = [1, 2]
            .map(|number| Client::start(&gpu, number, quarters(number, 2, Mode::SOFT, Some(pack))));
        let pacings = || all.each_ref().map(|it| it.sat.seat().pacing());
        wait_until("they are steered", || !pacings().contains(&Pacing::OwnCap));
        let mut waited = [0, 0];
        for _ in 0..1000 {
            let seen = pacings();
            // One after the other is told of a change.
            assert!(seen != [Pacing::Waits; 2] || pacings() != seen);
            waited = [0, 1].map(|at| waited[at] + u32::from(seen[at] == Pacing::Waits));
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(waited.map(|times| times > 50), [is_shared; 2], "{waited:?}");
        // Who is stopped keeps nobody waiting.
        all[0].stop();
        wait_until("the other goes on", || {
            (0..300).all(|_| {
                thread::sleep(Duration::from_millis(1));
                pacings()[1] != Pacing::Waits
            })
        });
        gpu.end();
        assert!(device.told_since(0).iter().all(|it| it.is_on));
    }
}

#[test]
fn the_channels_of_a_client_that_has_ended_are_told_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, device) = gpu(folder.path(), [(pid(1), &[1, 3, 4, 5]), (pid(2), &[2])]);
    let packed = |number| {
        // Two of them are of one job.
        let job = if number == 5 { 4 } else { number };
        Client::start(&gpu, number, quarters(job, 1, Mode::SOFT, Some(PACK)))
    };
    let all = [1, 3, 4, 5].map(packed);
    let other = Client::start(&gpu, 2, quarters(2, 1, Mode::SOFT, None));
    let [first, second, running, held] = &all;
    wait_until("they are steered", || all.iter().all(|it| is_free(&it.sat)));
    let mut gone = Vec::new();
    for (client, is_held) in [(running, false), (held, true)] {
        client.end(&gpu, &device, is_held);
        gone.push((client.channel, device.count_told()));
        // The supervisor has disabled the channels of one that ran.
        assert_eq!(device.waits(client.channel), is_held);
        let next = Scheduler::with(device.clone(), folder.path());
        assert!(
            !next.waiting.contains(&client.channel),
            "the next arbiter would let it run"
        );
        // The others go on.
        let from = device.count_told();
        wait_until("the others are held and let run", || {
            let told = device.told_since(from);
            [first, second].iter().all(|it| {
                let on = told
                    .iter()
                    .filter(|one| one.channel == it.channel && one.is_on);
                on.count() > 3
            })
        });
    }
    gpu.end();
    for (channel, from) in gone {
        let told = device.told_since(from);
        assert!(
            !told.iter().any(|it| it.channel == channel),
            "it was told something again"
        );
    }
    assert!(
        ![first, second, &other]
            .iter()
            .any(|it| device.waits(it.channel))
    );
}

/// The log names one client for all, also while another one's channels are not known yet.
#[test]
fn who_joins_while_its_pack_is_held_is_no_fault_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, device) = gpu(folder.path(), [(pid(1), &[1]), (pid(2), &[2])]);
    let first = Client::start(&gpu, 1, quarters(1, 1, Mode::SOFT, Some(PACK)));
    let other = Client::start(&gpu, 2, quarters(2, 1, Mode::SOFT, None));
    wait_until("they are steered", || {
        is_free(&first.sat) && is_free(&other.sat)
    });
    let mut sats = Vec::new();
    for number in 10..13 {
        wait_until("the pack is held", || device.waits(first.channel));
        let admission = quarters(number, 1, Mode::SOFT, Some(PACK));
        let (sat, id) = sit_as(&gpu, admission, pid(number), Version::Cap).unwrap();
        let its = channel(number);
        device.groups.lock().unwrap().all[0].channels.push(its);
        sat.want();
        thread::sleep(Duration::from_millis(100));
        set_channels(&gpu, id, vec![its]);
        thread::sleep(Duration::from_millis(300));
        assert_eq!(why_not(&gpu, 1), [None], "{number}");
        sats.push(sat);
    }
    gpu.end();
}

#[test]
fn a_client_that_gives_its_seat_up_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, device) = gpu(folder.path(), [(pid(1), &[1, 3]), (pid(2), &[2])]);
    let start = |number, pack| Client::start(&gpu, number, quarters(number, 1, Mode::SOFT, pack));
    let [first, second] = [1, 3].map(|number| start(number, Some(PACK)));
    let _other = start(2, None);
    for (client, is_held) in [(second, false), (first, true)] {
        client.once(&gpu, &device, is_held, |state| {
            state.remove(client.id);
            assert!(!device.waits(client.channel));
        });
    }
    gpu.end();
}

#[test]
fn a_pack_loses_the_share_of_a_job_whose_last_process_goes() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, device) = gpu(folder.path(), [(pid(1), &[1, 3, 4]), (pid(2), &[2])]);
    let packed =
        |number, job| Client::start(&gpu, number, quarters(job, 1, Mode::HARD, Some(PACK)));
    // The last two are of one job.
    let [first, second, third] = [(1, 1), (3, 3), (4, 3)].map(|(number, job)| packed(number, job));
    let other = Client::start(&gpu, 2, quarters(2, 2, Mode::HARD, None));
    let all = [&first, &second, &third, &other];
    wait_until("they are steered", || all.iter().all(|it| is_free(&it.sat)));
    let share = || {
        let parts = parts(&gpu, [1, 3, 2]);
        [parts[0] + parts[1], parts[2]]
    };
    third.end(&gpu, &device, true);
    let both = share();
    assert!(is_near(&both, &[50.0, 50.0]), "{both:?}");
    second.end(&gpu, &device, false);
    let one = share();
    assert!(is_near(&one, &[25.0, 50.0]), "{one:?}");
    gpu.end();
}

#[test]
fn processes_of_packs_are_not_released() {
    let folder = tempfile::tempdir().unwrap();
    // The other two have work, and are not there.
    let (gpu, device) = gpu(folder.path(), [(pid(2), &[2])]);
    let start = |number, pack| Client::start(&gpu, number, quarters(number, 1, Mode::SOFT, pack));
    let [packed, unnamed] = [1, 3].map(|number| start(number, Some(PACK)));
    let [alone, _other] = [4, 2].map(|number| start(number, None));
    let released = |client: &Client| {
        let told = device.told_since(0);
        let own = told.iter().filter(|it| it.channel == client.channel);
        own.filter(|it| it.is_on && it.ran).count()
    };
    wait_until("who is in none is released", || released(&alone) >= 3);
    assert_eq!([&packed, &unnamed].map(released), [0, 0]);
    gpu.end();
}

/// How long what a client leaves at its end counts, beside another client of its pack.
fn leftover_for(mode: Mode) -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, device) = gpu(folder.path(), [(pid(1), &[1, 3]), (pid(2), &[2])]);
    let start = |number, pack| Client::start(&gpu, number, quarters(number, 1, mode, pack));
    let [first, third] = [1, 3].map(|number| start(number, Some(PACK)));
    let second = start(2, None);
    let all = [&first, &second, &third];
    wait_until("they are steered", || all.iter().all(|it| is_free(&it.sat)));
    let begun = Instant::now();
    third.end(&gpu, &device, false);
    assert!(gpu.state().has_leftovers());
    wait_until("its kernels have had their time", || {
        !gpu.state().has_leftovers()
    });
    gpu.end();
    begun.elapsed()
}

#[test]
fn what_a_client_leaves_on_the_gpu_has_its_packs_time_to_end() {
    // A quarter of the time: the pack has only one job left.
    let took = leftover_for(Mode::HARD);
    assert!(took > Duration::from_millis(2500), "{took:?}");
    // Half of the time.
    let took = leftover_for(Mode::SOFT);
    assert!(took > Duration::from_millis(1500), "{took:?}");
}

#[test]
fn what_is_left_of_a_pack_is_not_counted_by_the_next_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, device) = gpu(folder.path(), [(pid(1), &[1, 3])]);
    let start = |number| Client::start(&gpu, number, quarters(number, 1, Mode::SOFT, Some(PACK)));
    let all = [1, 3].map(start);
    wait_until("they are steered", || all.iter().all(|it| is_free(&it.sat)));
    all[1].end(&gpu, &device, false);
    // The other gives up its seat, as a process that asks anew does.
    let mut state = gpu.state();
    assert!(state.has_leftovers());
    state.remove(all[0].id);
    assert!(!state.has_leftovers());
    drop(state);
    gpu.end();
}

#[test]
fn nobody_of_a_pack_is_blamed_for_a_client_without_a_seat() {
    // Outside packs the log names each by itself.
    for pack in [None, Some(PACK)] {
        let folder = tempfile::tempdir().unwrap();
        // Channel 9 has no seat.
        let (gpu, _device) = gpu(folder.path(), [(pid(1), &[1, 9]), (pid(2), &[2])]);
        let all = [(1, 1, Mode::HARD, pack), (2, 2, Mode::SOFT, None)];
        let all = all.map(|(number, count, mode, pack)| {
            Client::start(&gpu, number, quarters(number, count, mode, pack))
        });
        wait_until("they are steered", || all.iter().all(|it| is_free(&it.sat)));
        let is_blamed = || why_not(&gpu, 1) == [Some(NotSteered::Runs)];
        if pack.is_none() {
            wait_until("it is blamed", is_blamed);
        } else {
            thread::sleep(Duration::from_secs(3));
            assert!(!is_blamed());
        }
        gpu.end();
    }
}

#[test]
fn nobody_of_several_users_is_told_to_have_too_much() {
    // The client that the log names is held, and another one's channel runs on.
    let excess_in = |pack: PackId, lasts: &dyn Fn(&Gpu) -> bool| {
        let folder = tempfile::tempdir().unwrap();
        let (gpu, _device) = gpu(folder.path(), [(pid(1), &[1, 9]), (pid(2), &[2])]);
        let all = [(1, 1, Some(pack)), (2, 3, None)];
        let all = all.map(|(number, count, pack)| {
            Client::start(&gpu, number, quarters(number, count, Mode::HARD, pack))
        });
        wait_until("they are steered", || all.iter().all(|it| is_free(&it.sat)));
        while lasts(&gpu) {
            thread::sleep(Duration::from_millis(100));
        }
        let excess = gpu.account().excess;
        gpu.end();
        excess
    };
    thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let of_one = scope.spawn(move || {
            let excess = excess_in(PACK, &|gpu| gpu.account().excess.is_empty());
            tell.send(()).unwrap();
            excess
        });
        let of_several = excess_in(PackId::Account(7), &|_| told.try_recv().is_err());
        assert!(of_several.is_empty(), "{of_several:?}");
        let of_one = of_one.join().unwrap();
        assert_eq!(of_one, [(Job(1), [pid(1)].into())].into());
    });
}
