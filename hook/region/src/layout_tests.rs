//! Tests of [`super`], in the test's own memory.

use super::*;
use crate::tests::steps::watched;
use proptest::prelude::*;

/// A file's worth of zeros.
struct Bytes(Vec<Aligned>);

#[repr(C, align(64))]
struct Aligned([AtomicU64; 8]);

impl Bytes {
    fn new(length: usize) -> Self {
        let line = || Aligned(std::array::from_fn(|_| AtomicU64::new(0)));
        Self((0..length.div_ceil(64)).map(|_| line()).collect())
    }

    fn for_gpus(gpus: usize) -> Self {
        Self::new(size(gpus))
    }

    fn length(&self) -> usize {
        self.0.len() * 64
    }

    fn ledger(&self) -> Option<Ledger<'_>> {
        // SAFETY: atomics of this length, aligned as a ledger has to be.
        unsafe { Ledger::at(self.0.as_ptr().cast(), self.length()) }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        &self.0[offset / 64].0[offset % 64 / 8]
    }
}

fn key(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

/// Other programs, and other versions of this one, know the file by these.
#[test]
fn the_file_is_laid_out_as_documented() {
    assert_eq!((size(1), size(2), size(32)), (69_632, 135_168, 2_101_248));
    assert_eq!((size(33), size(usize::MAX)), (size(32), size(32)));
    assert_eq!(lock_offset(0), 1 << 40);
    assert_eq!(lock_offset(SLOTS - 1), (1 << 40) + 1023);
    assert_eq!(kept_offset(0), 1 << 41);
    assert_eq!(kept_offset(u32::MAX) + 1, KEPT.end);

    let file = Bytes::for_gpus(2);
    let ledger = file.ledger().unwrap();
    let at = |offset| file.word(offset).load(Ordering::SeqCst);
    assert_eq!(at(0), 1);
    assert!(ledger.is_first_refusal() && !ledger.is_first_refusal());
    assert_eq!(at(8), 1);
    ledger.use_slot(6);
    ledger.use_slot(3);
    assert_eq!(at(16), 7);
    ledger.gpu(key(55)).unwrap();
    let gpu = ledger.gpu(key(66)).unwrap();
    assert_eq!((at(24), at(32), at(40)), (55, 66, 0));
    gpu.reserve(6, 5, 10).unwrap();
    assert_eq!(at(4096 + 65536 + 6 * 64), 1 << 48 | 5 << 24 | 5);
    assert_eq!(at(320 + 64), 1 << 50 | 6 << 24 | 5);
    assert_eq!((gpu.held(), gpu.held_by(6)), (5, 5));
    gpu.note_refusal(9);
    gpu.note_refusal(4);
    assert_eq!((at(3200), at(3208)), (0, 5));
    assert_eq!((at(3456), at(3464)), (0, 2 << 32 | 9));
    gpu.note_recovery(2);
    assert_eq!(at(320 + 64 + 8), 2);
    ledger.set_process(6, 77);
    assert_eq!((at(4096 + 6 * 64 + 8), ledger.process(6)), (77, 77));
}

/// The parts that are read from outside, without mapping the file.
#[test]
fn the_most_that_was_held_and_what_was_refused_are_on_record() {
    let file = Bytes::for_gpus(2);
    let ledger = file.ledger().unwrap();
    let gpu = ledger.gpu(key(55)).unwrap();
    ledger.use_slot(1);
    gpu.reserve(0, 5, 10).unwrap();
    gpu.reserve(1, 4, 10).unwrap();
    gpu.refund(0, 5);
    // This needs no grant.
    gpu.reserve(0, 2, 10).unwrap();
    gpu.reserve(0, 20, 10).unwrap_err();
    gpu.note_refusal(20);
    gpu.note_refusal(3);
    gpu.note_recovery(1);
    gpu.export(0, 2);
    gpu.orphan(0, 2);
    let words = (0..4096)
        .step_by(8)
        .map(|at| file.word(at).load(Ordering::SeqCst));
    let head: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
    let record = crate::Record {
        key: key(55),
        peak: 9,
        orphans: 2,
        refused: 2,
        recovered: 1,
        refused_largest: 20,
    };
    assert_eq!(crate::records(&head).collect::<Vec<_>>(), [record]);
}

#[test]
fn a_file_that_is_too_short_is_no_ledger() {
    for length in [0, 64, 4096, size(1) - 64] {
        assert!(Bytes::new(length).ledger().is_none(), "{length}");
    }
}

#[test]
fn a_place_that_is_not_aligned_is_no_ledger() {
    let file = Bytes::for_gpus(2);
    for offset in [1, 8, 32, 63] {
        let start = file.0.as_ptr().cast::<u8>().wrapping_add(offset);
        // SAFETY: within the file, and refused before anything is read.
        assert!(unsafe { Ledger::at(start, size(1)) }.is_none(), "{offset}");
    }
}

#[test]
fn another_version_is_left_alone() {
    let file = Bytes::for_gpus(1);
    file.word(0).store(VERSION + 1, Ordering::SeqCst);
    assert!(file.ledger().is_none());
    assert_eq!(file.word(0).load(Ordering::SeqCst), VERSION + 1);
}

#[test]
fn each_gpu_has_a_part_as_long_as_there_are_any() {
    // A part that is not whole does not count.
    let file = Bytes::new(size(3) - 64);
    let ledger = file.ledger().unwrap();
    ledger.use_slot(0);
    assert_eq!(ledger.gpus().count(), 0);
    assert!(ledger.known(key(1)).is_none());
    ledger.gpu(key(1)).unwrap().charge(0, 1);
    ledger.gpu(key(2)).unwrap().charge(0, 2);
    assert!(ledger.gpu(key(3)).is_none() && ledger.known(key(3)).is_none());
    let held = |gpu: Option<GpuLedger>| gpu.unwrap().held();
    assert_eq!(held(ledger.gpu(key(2))), 2);
    assert_eq!(held(ledger.known(key(1))), 1);
    let all: Vec<u64> = ledger.gpus().map(|gpu| gpu.held()).collect();
    assert_eq!(all, [1, 2]);
}

#[test]
fn two_who_ask_at_once_for_one_gpu_get_one_part() {
    for step in 0..3 {
        let file: &'static Bytes = Box::leak(Box::new(Bytes::for_gpus(2)));
        let ledger = file.ledger().unwrap();
        ledger.use_slot(0);
        let mut left: usize = step;
        let other = move || {
            if left == 0 {
                file.ledger().unwrap().gpu(key(9)).unwrap().charge(0, 4);
            }
            left = left.wrapping_sub(1);
        };
        let gpu = watched(other, || ledger.gpu(key(9)).unwrap());
        assert_eq!(ledger.gpus().count(), 1);
        assert_eq!(gpu.held(), if step < 2 { 4 } else { 0 });
    }
}

#[test]
fn a_slot_is_counted_wherever_the_top_is_said_to_be() {
    let file = Bytes::for_gpus(1);
    let ledger = file.ledger().unwrap();
    ledger.use_slot(usize::MAX);
    ledger.set_process(usize::MAX, 1);
    ledger.use_slot(3);
    let gpu = ledger.gpu(key(1)).unwrap();
    gpu.reserve(SLOTS - 1, 10, 10).unwrap();
    assert!(gpu.reserve(3, 1, 10).is_err());
    assert!(gpu.reserve(SLOTS, 1, 10).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn a_file_of_garbage_is_none_or_does(
        head in proptest::collection::vec(any::<u64>(), 512),
        (words, places) in (any::<u64>(), any::<u64>()),
        number in 1..u64::MAX,
        units: u32,
    ) {
        let file = Bytes::for_gpus(1);
        for (at, bits) in head.iter().enumerate() {
            file.word(at * 8).store(*bits, Ordering::SeqCst);
        }
        for at in (HEAD..file.length()).step_by(64) {
            let bits = words.wrapping_mul(at as u64 ^ places);
            file.word(at).store(bits, Ordering::SeqCst);
        }
        prop_assert!(file.ledger().is_none() == (head[0] > 1));
        file.word(0).store(VERSION, Ordering::SeqCst);
        // Another's, all, or free.
        for owner in [number.wrapping_add(1), number, 0] {
            file.word(24).store(owner, Ordering::SeqCst);
            let ledger = file.ledger().unwrap();
            let gpus = ledger.gpu(key(number)).into_iter();
            for gpu in gpus.chain(ledger.known(key(number))).chain(ledger.gpus()) {
                let _ = gpu.reserve(5, units, u32::MAX);
                gpu.charge(1023, units);
                gpu.refund(1023, units);
                gpu.clear(5);
                prop_assert!(gpu.held() <= 1024 * u64::from(crate::word::MOST));
            }
        }
    }
}
