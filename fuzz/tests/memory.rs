//! Messages and shared memory of processes that may write anything.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use softmig_fuzz::bytes;
use softmig_region::seat::{MOST_CHANNELS, Request, Seat};
use softmig_region::{Ledger, calls, size};
use softmig_usage::Node;

/// Memory as pages are: aligned, and shared.
#[repr(C, align(4096))]
struct Page([AtomicU64; 512]);

/// Pages with these bytes again and again.
fn pages(count: usize, bytes: &[u8]) -> Vec<Page> {
    let mut words = bytes.iter().copied().cycle();
    let mut word = || u64::from_le_bytes(std::array::from_fn(|_| words.next().unwrap_or(0)));
    (0..count)
        .map(|_| Page(std::array::from_fn(|_| AtomicU64::new(word()))))
        .collect()
}

#[test]
fn requests_to_the_arbiter() {
    bytes(
        3000,
        &["softmig1GPUGPUGPUGPUGPU1", "softmig2GPUGPUGPUGPUGPU1"],
        |bytes| {
            if let Some(request) = Request::from_bytes(bytes) {
                assert_eq!(request.to_bytes(), bytes);
            }
        },
    );
}

#[test]
fn answers_of_the_monitor() {
    let valid = [
        r#"{"schema_version":1,"gpus":[{"index":0,"uuid":"GPU-1","shared_by":"caps","why":null}]}"#,
        r#"{"schema_version":1,"jobs":[{"job":7,"gpus":[{"seats":[{"pid":1}]}]}]}"#,
    ];
    bytes(2000, &valid, |bytes| {
        if let Ok(node) = Node::read(bytes) {
            let printed = serde_json::to_vec(&node).unwrap();
            assert_eq!(Node::read(&printed).unwrap(), node);
        }
    });
}

#[test]
fn calls_of_the_driver() {
    bytes(
        3000,
        &["\u{1}\0\0\0\u{2}\0\0\0\u{3}\0\0\0\0\0\0\0"],
        |bytes| {
            let (words, _) = bytes.as_chunks::<4>();
            let word = |at: usize| words.get(at).map(|word| u32::from_le_bytes(*word));
            for kind in [0x4629, 0x462a, 0x462b] {
                for size in [16, 32, 48, word(0).unwrap_or(0) & 0x3fff] {
                    let request = u64::from(0xc000_0000 | size << 16 | kind);
                    assert!(calls::is_known(request));
                    calls::done(request, |at| {
                        assert!(at < size as usize / 4, "more words than there are");
                        word(at)
                    });
                }
            }
        },
    );
}

#[test]
fn seats() {
    bytes(500, &["\u{1}\0\0\0\0\0\0\0"], |bytes| {
        let pages = pages(Seat::SIZE / 4096, bytes);
        // SAFETY: pages of atomics, which live as long as the seat.
        let seat = unsafe { Seat::at(pages.as_ptr().cast()) }.unwrap();
        let (count, channels) = seat.channels();
        let told = channels.count();
        assert!(told <= MOST_CHANNELS && told <= count as usize);
        seat.pending(u64::MAX);
        seat.tell_work(1, true, 0);
        seat.tell_channels(std::iter::empty());
        assert_eq!(seat.channels().1.count(), 0);
    });
}

#[test]
fn ledgers() {
    let length = size(1);
    bytes(300, &["\u{1}\0\0\0\0\0\0\0", "\0"], |bytes| {
        let pages = pages(length.div_ceil(4096), bytes);
        let key = NonZeroU64::new(7).unwrap();
        // SAFETY: `length` bytes of atomics, which live as long as the ledger.
        let Some(ledger) = (unsafe { Ledger::at(pages.as_ptr().cast(), length) }) else {
            return;
        };
        ledger.gpus().count();
        let Some(gpu) = ledger.gpu(key) else { return };
        assert!(ledger.known(key).is_some());
        gpu.held();
        if gpu.reserve(3, 5, u32::MAX).is_ok() {
            gpu.refund(3, 5);
        }
        gpu.clear(3);
        assert_eq!(gpu.held_by(3), 0);
        // The version is as it was, so that others read the ledger too.
        assert_eq!(pages[0].0[0].load(Ordering::SeqCst), 1);
    });
}
