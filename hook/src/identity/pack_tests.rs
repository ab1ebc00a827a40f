//! Tests of [`super`], with neither a driver nor a monitor.

use super::*;
use crate::os::cells::Fresh;
use crate::os::is_so_in_a_child;
use std::cell::Cell;

const FOLDER: &[u8] = b"/var/run/softmig/packs/1001";

fn entry() -> &'static Entry {
    Fresh::<Entry>::zeroed().unwrap().0.leaked()
}

/// A thread that was told of a folder.
fn told(entry: &'static Entry) -> Pack {
    assert!(entry.take());
    Pack {
        entry: Some(entry),
        folder: entry.ask(|| Ok(text(&[FOLDER]))),
    }
}

/// Calls a driver that gives these answers, one after the other. Returns the last one, and what the variable was in each call.
fn initialize(pack: &Pack, answers: &[CUresult]) -> (CUresult, Vec<Option<&'static [u8]>>) {
    let seen = Cell::new(Vec::new());
    let result = pack.initialize(|| {
        let mut all = seen.take();
        let answer = answers[all.len()];
        all.push(os::variable(VARIABLE));
        seen.set(all);
        answer
    });
    (result, seen.take())
}

#[test]
fn cuda_is_initialized_with_the_variable_and_all_else_runs_without() {
    assert!(is_so_in_a_child(|| {
        let before: Vec<_> = std::env::vars_os().collect();
        let entry = entry();
        let pack = told(entry);
        let (result, seen) = initialize(&pack, &[CUDA_SUCCESS]);
        let is_in = entry.is_at(UNKEPT) && pack.keep_by(result, || Ok(())) == CUDA_SUCCESS;
        let is_as_before = std::env::vars_os().collect::<Vec<_>>() == before;
        is_in && seen == [Some(FOLDER)] && is_as_before && entry.is_at(KEPT)
    }));
}

#[test]
fn a_process_that_the_server_does_not_take_goes_on_outside() {
    for error in 805..=810 {
        assert!(is_so_in_a_child(|| {
            let entry = entry();
            let pack = told(entry);
            let (result, seen) = initialize(&pack, &[error, CUDA_SUCCESS]);
            let is_out = seen == [Some(FOLDER), None] && entry.is_at(OUT);
            let kept = pack.keep_by(result, || unreachable!());
            drop(pack);
            is_out && kept == CUDA_SUCCESS && told(entry).folder.is_none()
        }));
    }
}

#[test]
fn after_another_error_of_cudas_it_asks_again() {
    assert!(is_so_in_a_child(|| {
        let entry = entry();
        let pack = told(entry);
        let (result, seen) = initialize(&pack, &[100]);
        drop(pack);
        result == 100 && seen == [Some(FOLDER)] && told(entry).folder.is_some()
    }));
}

#[test]
fn a_user_who_sets_the_variable_stays_out() {
    for value in [&b"/tmp/own"[..], b""] {
        assert!(is_so_in_a_child(|| {
            let _theirs = Variable::add(VARIABLE.to_bytes(), value).unwrap();
            let entry = entry();
            let pack = told(entry);
            let (_, seen) = initialize(&pack, &[CUDA_SUCCESS]);
            pack.folder.is_none() && seen == [Some(value)] && entry.is_at(UNKNOWN)
        }));
    }
}

#[test]
fn a_process_that_was_refused_asks_once() {
    let entry = entry();
    assert!(entry.take());
    assert!(entry.ask(|| Err(Error(libc::EUSERS))).is_none());
    assert!(entry.is_at(OUT));
    assert!(entry.ask(|| unreachable!()).is_none());
}

#[test]
fn a_process_whose_end_would_end_others_gets_no_gpu() {
    let entry = entry();
    entry.come_to(UNKEPT);
    let keep = |answer| {
        assert!(entry.take());
        let pack = Pack {
            entry: Some(entry),
            folder: None,
        };
        pack.keep_by(CUDA_SUCCESS, || answer)
    };
    // Whenever it tries.
    for _ in 0..2 {
        assert_eq!(keep(Err(Error(libc::ECONNREFUSED))), 805);
    }
    assert_eq!(keep(Ok(())), CUDA_SUCCESS);
    assert!(entry.is_at(KEPT));
}

#[test]
fn a_fault_is_told_once_and_to_who_was_in_the_pack() {
    let entry = entry();
    for (place, is_told) in [
        (OUT, false),
        (UNKEPT, false),
        (KEPT, true),
        (FAULTED, false),
    ] {
        entry.come_to(place);
        assert_eq!(entry.is_first_fault(), is_told);
    }
}

#[test]
fn threads_wait_for_the_one_that_initializes_cuda() {
    let entry = entry();
    let pack = told(entry);
    // The driver's own call of the driver.
    assert!(!entry.take());
    std::thread::scope(|scope| {
        let second = scope.spawn(|| entry.take() && entry.is_at(KEPT));
        std::thread::sleep(std::time::Duration::from_millis(20));
        entry.come_to(KEPT);
        drop(pack);
        assert!(second.join().unwrap());
    });
}

#[test]
fn an_answer_has_a_folder() {
    let answer = |folder: &[u8]| {
        let mut answer = [0; PACK_ANSWER];
        answer[ANSWER..][..folder.len()].copy_from_slice(folder);
        folder_in(&answer).map(|folder| folder.as_bytes().to_vec())
    };
    assert_eq!(answer(FOLDER).as_deref(), Some(FOLDER));
    let longest = [b'/'; PACK_ANSWER - ANSWER - 1];
    assert_eq!(answer(&longest).as_deref(), Some(&longest[..]));
    assert_eq!(answer(&[b'/'; PACK_ANSWER - ANSWER]), None);
    assert_eq!(answer(b""), None);
    assert_eq!(answer(b"folder"), None);
}

#[test]
fn a_monitor_that_says_no_is_not_asked_again() {
    for error in [
        libc::EACCES,
        libc::EINVAL,
        libc::ENOENT,
        libc::ENOSYS,
        libc::EUSERS,
        libc::EBADMSG,
    ] {
        assert_eq!(patience(Error(error), || true), 0, "{error}");
    }
    for error in [libc::ENOENT, libc::ECONNREFUSED] {
        assert_eq!(patience(Error(error), || false), RESTART_MS, "{error}");
    }
    for error in [libc::EAGAIN, libc::ECONNRESET, libc::EPERM] {
        assert_eq!(patience(Error(error), || true), PATIENCE_MS, "{error}");
    }
    let places_are_free_soon = Error(libc::EBUSY);
    assert_eq!(patience(places_are_free_soon, || true), PLACE_MS);
}
