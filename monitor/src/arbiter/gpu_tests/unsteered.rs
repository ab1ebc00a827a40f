//! GPUs that are not steered, or not any more, and whose drivers have no time.

use super::*;

/// A word of the page, as an old library reads it: the turn is at 0, and its end at 32.
fn word(sat: &Sat, at: usize) -> u32 {
    let place = sat.0.as_ptr().wrapping_add(at).cast::<u32>();
    // SAFETY: within the page, and aligned.
    unsafe { place.read_volatile() }
}

#[test]
fn an_old_library_launches_as_it_likes_where_it_is_steered() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, device) = steered_gpu(folder.path());
    let (old, id) = sit(&gpu, 1, pid(1), Version::Turns).unwrap();
    assert!(is_free(&old));
    assert_eq!(word(&old, 0) & 1, 1, "it has the turn");
    assert_eq!([32, 36].map(|at| word(&old, at)), [u32::MAX; 2]);
    set_channels(&gpu, id, vec![channel(1)]);
    let (other, ..) = steered_job(&gpu, 2);
    for sat in [&old, &other] {
        sat.want();
    }
    device.switch(pid(1), true);
    wait_until("it is held", || device.waits(channel(1)));
    assert!(is_free(&old));
    // The log cannot be read any more: without its seat it keeps its own cap.
    const INVALID_STATE: u32 = 0x40;
    device.errors.lock().unwrap().push(INVALID_STATE);
    wait_until("its seat is taken from it", || word(&old, 0) == 0);
    assert!(!device.waits(channel(1)));
    gpu.end();
}

fn gpu_that_is_not_steered() -> Arc<Gpu> {
    let gpu = Gpu::start(nowhere(), &Arc::default()).unwrap();
    gpu.set_standing(&Err("it ran on".into()));
    gpu
}

#[test]
fn an_old_library_gets_no_seat_where_it_is_not_steered() {
    let gpu = gpu_that_is_not_steered();
    assert!(!gpu.is_steered());
    // Steering has ended since that was asked.
    let (old, _) = sit(&gpu, 1, pid(1), Version::Turns).unwrap();
    assert_eq!(gpu.account().tenants, []);
    wait_until("its seat is taken from it", || word(&old, 0) == 0);
    gpu.end();
}

#[test]
fn on_a_gpu_that_cannot_be_steered_jobs_pay_what_they_tell() {
    let gpu = gpu_that_is_not_steered();
    let begun = now();
    let both = [(); 2].map(|()| sit(&gpu, 1, pid(1), Version::Cap).unwrap().0);
    both.iter().for_each(Sat::want);
    wait_until("it pays", || charged(&gpu, 1) > 50_000_000);
    let charged = charged(&gpu, 1);
    assert!(charged <= now() - begun, "{charged}");
    assert!(!both.iter().any(is_free));
    assert_eq!(why_not(&gpu, 1), [None, None]);
    assert_eq!(
        gpu.account().sharing,
        Sharing::Caps(Some("it ran on".into()))
    );
    gpu.end();
}

#[test]
fn while_the_driver_keeps_the_arbiter_processes_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, device) = steered_gpu(folder.path());
    let (first, id, _) = steered_job(&gpu, 1);
    first.want();
    wait_until("it is steered", || is_free(&first));
    assert!(gpu.is_steered());
    let keeps = device.keeps.lock().unwrap();
    wait_until("it has the arbiter", || {
        first.wake();
        gpu.free_state().is_none()
    });
    let (second, second_id) = sit(&gpu, 2, pid(2), Version::Cap).unwrap();
    second.want();
    gpu.note_end(id);
    assert!(gpu.is_steered());
    assert!(gpu.free_state().is_none(), "none of them waited");
    drop(keeps);
    wait_until("one is there, and the other has gone", || {
        let jobs = gpu.account().tenants.into_iter().map(|it| it.job);
        jobs.eq([Job(2)])
    });
    gpu.state().session(second_id).page.heartbeat(0);
    second.wake();
    wait_until("it is polled", || {
        second.seat().heartbeat().load(SeqCst) > 0
    });
    gpu.end();
}

#[test]
fn how_jobs_share_the_gpu_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, _) = steered_gpu(folder.path());
    assert_eq!(gpu.account().sharing, Sharing::Caps(None));
    let (sat, ..) = steered_job(&gpu, 1);
    sat.want();
    wait_until("it is steered", || {
        gpu.account().sharing == Sharing::Scheduler
    });
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
    wait_until("it keeps its own cap", || {
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
    device.errors.lock().unwrap().push(BUSY_RETRY);
    wait_until("they keep their own caps", || {
        gpu.account().sharing != Sharing::Scheduler
    });
    wait_until("it runs", || !device.waits(*channel));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    gpu.end();
}

#[test]
fn a_gpu_is_steered_once_that_is_proved_and_no_more_once_it_is_disproved() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, _) = steered_gpu(folder.path());
    gpu.set_standing(&Err("not measured yet".into()));
    let (first, ..) = steered_job(&gpu, 1);
    first.want();
    let caps = |why: &str| Sharing::Caps(Some(why.into()));
    assert_eq!(gpu.account().sharing, caps("not measured yet"));
    assert!(!is_free(&first));
    gpu.set_standing(&Ok(Proved {
        slice_us: 1024,
        may_release: true,
    }));
    wait_until("it is steered", || {
        gpu.account().sharing == Sharing::Scheduler && is_free(&first)
    });
    gpu.set_standing(&Err("it ran on".into()));
    wait_until("it keeps its own cap", || {
        gpu.account().sharing == caps("it ran on") && !is_free(&first)
    });
    gpu.end();
}

#[test]
fn a_gpu_whose_log_is_silent_is_opened_anew_and_then_not_steered() {
    let folder = tempfile::tempdir().unwrap();
    let device = Steered {
        is_silent: true,
        ..Steered::default()
    };
    let gpu = Gpu::start(
        Scheduler::with(device.clone(), folder.path()),
        &Arc::default(),
    )
    .unwrap();
    let (first, _, channel) = steered_job(&gpu, 1);
    first.want();
    wait_until("it is told", || match gpu.account().sharing {
        Sharing::Caps(Some(why)) => why.contains("has no entry of it"),
        _ => false,
    });
    wait_until("it keeps its own cap", || !is_free(&first));
    assert!(!device.waits(channel));
    gpu.end();
}

#[test]
fn a_gpu_that_no_process_uses_is_let_go_and_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, device) = steered_gpu(folder.path());
    let (first, id, _) = steered_job(&gpu, 1);
    first.want();
    let is_steered = || gpu.account().sharing == Sharing::Scheduler;
    wait_until("it is steered", is_steered);
    // One of the test's own, and the GPU's.
    let open = Arc::strong_count(&device.log);
    let later = |minutes: Nanos| gpu.state().let_go(now() + minutes * 60_000_000_000);
    later(6);
    assert_eq!(Arc::strong_count(&device.log), open, "a process is there");
    gpu.remove(id);
    later(12);
    assert_eq!(Arc::strong_count(&device.log), open - 1);
    assert!(!is_steered());
    let (second, ..) = steered_job(&gpu, 2);
    second.want();
    wait_until("it is steered again", is_steered);
    assert_eq!(Arc::strong_count(&device.log), open);
    gpu.end();
}

#[test]
fn a_job_that_copies_is_no_sign_of_a_silent_log() {
    let folder = tempfile::tempdir().unwrap();
    let device = Steered {
        is_silent: true,
        ..Steered::default()
    };
    device.switch(Switch::DRIVER, false);
    let gpu = Gpu::start(
        Scheduler::with(device.clone(), folder.path()),
        &Arc::default(),
    )
    .unwrap();
    let (first, ..) = steered_job(&gpu, 1);
    first.want();
    let open = Arc::strong_count(&device.log);
    wait_until("it is steered", || is_free(&first));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1500) {
        assert_eq!(gpu.account().sharing, Sharing::Scheduler);
        thread::sleep(Duration::from_millis(20));
    }
    assert!(Arc::strong_count(&device.log) <= open + 1, "one is open");
    gpu.end();
}
