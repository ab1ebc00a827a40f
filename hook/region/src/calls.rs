//! The channels of libcuda, read from its calls of `ioctl` to the kernel driver.
//!
//! The numbers and structures are the driver's own, named in NVIDIA's open kernel modules (MIT licence).

use core::ffi::c_ulong;

/// Calls of the driver's: `NV_ESC_RM_FREE`, `_CONTROL` and `_ALLOC`, without their size.
const FREE: c_ulong = 0x4629;
const CONTROL: c_ulong = 0x462a;
const ALLOCATE: c_ulong = 0x462b;
const CALL: c_ulong = 0xffff;
/// The two highest bits of a request whose driver reads its argument's bytes and writes them.
const READ_AND_WRITTEN: u32 = 3;

/// `NVA06C_CTRL_CMD_SET_TIMESLICE`.
const SET_TIME_SLICE: u32 = 0xa06c_0103;

/// The effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// An object is no more, with all that was below it.
    Freed {
        /// The client.
        client: u32,
        /// The object; the client itself where all of it is no more.
        object: u32,
    },
    /// A channel group got a time slice, which says that it is one of a CUDA context's.
    Sliced {
        /// The client.
        client: u32,
        /// The group.
        group: u32,
    },
    /// A channel got a compute engine, which says the same of its group.
    Computes {
        /// The client.
        client: u32,
        /// The channel.
        channel: u32,
    },
    /// A channel was made.
    Made {
        /// The client.
        client: u32,
        /// The group that it is in.
        group: u32,
        /// The channel.
        handle: u32,
    },
}

/// Whether a request can be one that [`done`] knows. By the kernel's convention of requests, the argument of such a request is
/// an address, and the driver that answered without an error has read and written as many bytes there as the request says.
pub fn is_known(request: c_ulong) -> bool {
    // The kernel takes 32 bits of it.
    (request as u32) >> 30 == READ_AND_WRITTEN && (FREE..=ALLOCATE).contains(&(request & CALL))
}

/// The effect of a call that succeeded, by the words of its argument; `None` for calls that are not about channels.
///
/// `word` is asked for no more words than the request says there are.
pub fn done(request: c_ulong, word: impl Fn(usize) -> Option<u32>) -> Option<Done> {
    let size = ((request >> 16 & 0x3fff) >> 2) as usize;
    let word = |at: usize| if at < size { word(at) } else { None };
    let status = |at: usize| word(at) == Some(0);
    match (request & CALL, size) {
        // Client, parent, object, status.
        (FREE, 4) if status(3) => Some(Done::Freed {
            client: word(0)?,
            object: word(2)?,
        }),
        // Client, object, command, flags, parameters, size, status.
        (CONTROL, 8) if word(2) == Some(SET_TIME_SLICE) && status(7) => Some(Done::Sliced {
            client: word(0)?,
            group: word(1)?,
        }),
        // Client, parent, object, class, parameters; then size and status, or rights, size, flags and status.
        (ALLOCATE, 8 | 12) if status(if size == 8 { 7 } else { 10 }) => {
            let (client, parent, handle) = (word(0)?, word(1)?, word(2)?);
            match word(3)? {
                class if is_of(class, CHANNEL) => Some(Done::Made {
                    client,
                    group: parent,
                    handle,
                }),
                class if is_of(class, COMPUTE) => Some(Done::Computes {
                    client,
                    channel: parent,
                }),
                _ => None,
            }
        }
        _ => None,
    }
}

/// `KEPLER_CHANNEL_GPFIFO_A` and `KEPLER_COMPUTE_A`.
const CHANNEL: u32 = 0xa06f;
const COMPUTE: u32 = 0xa0c0;

/// Whether a class is this one, or what came after it.
fn is_of(class: u32, first: u32) -> bool {
    (first..=0xffff).contains(&class) && class & 0xff == first & 0xff
}

#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]
mod tests {
    use super::*;

    fn allocated(words: &[u32]) -> Option<Done> {
        let request = 0xc000_0000 | (words.len() as c_ulong * 4) << 16 | ALLOCATE;
        done(request, |at| Some(words[at]))
    }

    #[test]
    fn only_requests_whose_argument_is_read_and_written_are_known() {
        let request = 16 << 16 | FREE;
        // As glibc's callers may have it: the highest bit again in the upper half.
        for known in [0xc000_0000 | request, !0 << 30 | request] {
            assert!(is_known(known), "{known:#x}");
        }
        for other in [0, 0x4000_0000, 0x8000_0000, 0xc000_0004] {
            assert!(!is_known(other | request), "{other:#x}");
        }
    }

    #[test]
    fn a_channel_with_a_compute_engine_is_known_by_it() {
        let made = |class| allocated(&[1, 5, 7, class, 0, 0, 0, 0]);
        let (client, channel) = (1, 5);
        for class in [0xa0c0, 0xc3c0, 0xc6c0, 0xcbc0, 0xcec0] {
            assert_eq!(made(class), Some(Done::Computes { client, channel }));
        }
        // A copy engine, a client, memory.
        for class in [0xc8b5, 0x41, 0x40c0] {
            assert_eq!(made(class), None);
        }
        let long = allocated(&[1, 5, 7, 0xc86f, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(matches!(long, Some(Done::Made { .. })));
    }

    #[test]
    fn of_drivers_before_535_no_more_is_believed_than_their_answers_say() {
        const REFUSED: u32 = 0x1f;
        // NVOS64 had 40 bytes: until 520 the status and padding behind eight words, then flags and the status.
        for last in [[0, 0], [REFUSED, 0], [0, REFUSED]] {
            let [eighth, ninth] = last;
            assert_eq!(
                allocated(&[1, 5, 7, 0xc86f, 0, 0, 0, 0, eighth, ninth]),
                None
            );
        }
        // NVOS21 had the status where the size is now. No GPU is steered there, whoever tells of such channels.
        let old = allocated(&[1, 5, 7, 0xc86f, 0, 0, REFUSED, 0]);
        assert!(matches!(old, Some(Done::Made { .. })));
    }
}
