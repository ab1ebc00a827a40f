//! A ledger, read from outside without mapping it: its user can make it shorter at any time.

use core::num::NonZeroU64;

use crate::layout::MAX_GPUS;
use crate::layout::{ORPHANS, OWNERS, PEAKS, RECOVERED, REFUSALS, VERSION};

/// The bytes at the beginning of the ledger that [`records`] needs.
pub const RECORDS: usize = crate::layout::HEAD;

/// The key of a GPU in the ledger, by the bytes of its UUID.
pub fn key(uuid: [u8; 16]) -> NonZeroU64 {
    let mut number = 0_u64;
    for byte in uuid {
        // Both halves count, each byte at another place.
        number = number.rotate_left(8) ^ u64::from(byte);
    }
    NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN)
}

/// A ledger's figures of a GPU. The job's user can write anything there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The GPU ([`key`]).
    pub key: NonZeroU64,
    /// The most that the job's processes held, in units.
    pub peak: u64,
    /// What others may keep of what the job's processes have given back, in units.
    pub orphans: u64,
    /// How many allocations were refused.
    pub refused: u32,
    /// After how many of them their process was given memory: it did without.
    pub recovered: u32,
    /// The largest of them, in units.
    pub refused_largest: u32,
}

/// The records of the GPUs, by the first bytes of a ledger; none of a ledger that is shorter, or of another version.
pub fn records(head: &[u8]) -> impl Iterator<Item = Record> {
    let word = |(offset, step): (usize, usize), number: usize| {
        let at = offset.saturating_add(number.saturating_mul(step));
        let bytes = head.get(at..at.saturating_add(8))?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    let is_known = head.len() >= RECORDS && word((0, 8), 0) == Some(VERSION);
    let numbers = 0..if is_known { MAX_GPUS } else { 0 };
    numbers.map_while(move |number| {
        let refusals = word((REFUSALS, 8), number)?;
        let refused = (refusals >> 32) as u32;
        let recovered = word(RECOVERED, number)?;
        Some(Record {
            key: NonZeroU64::new(word((OWNERS, 8), number)?)?,
            peak: word((PEAKS, 8), number)?,
            orphans: u64::from(word(ORPHANS, number)? as u32),
            refused,
            recovered: u32::try_from(recovered).map_or(refused, |it| it.min(refused)),
            refused_largest: refusals as u32,
        })
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_both_halves_of_the_uuid_and_is_never_zero() {
        assert_eq!(key([0; 16]).get(), 1);
        let one = |at: usize| key(core::array::from_fn(|byte| u8::from(byte == at)));
        assert_ne!(one(3), one(4));
        assert_eq!(one(7).get(), 1);
        assert_eq!(one(15).get(), 1);
    }

    #[test]
    fn no_bytes_of_any_kind_are_more_than_they_are() {
        assert_eq!(records(&[]).count(), 0);
        assert_eq!(records(&[0; RECORDS]).count(), 0);
        assert_eq!(records(&[255; RECORDS]).count(), 0);
        let mut head = [255; RECORDS];
        head[..8].copy_from_slice(&VERSION.to_ne_bytes());
        let found = records(&head).last().unwrap();
        let counts = (found.refused, found.recovered);
        assert_eq!((found.peak, counts), (u64::MAX, (u32::MAX, u32::MAX)));
        assert_eq!(records(&head).count(), MAX_GPUS);
        assert_eq!(records(&head[..RECORDS - 1]).count(), 0);
    }
}
