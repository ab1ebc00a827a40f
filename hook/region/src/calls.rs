//! The channels of libcuda, read from its calls of `ioctl` to the kernel driver.
//!
//! The numbers and structures are the driver's own, named in NVIDIA's open kernel modules (MIT licence).

use core::ffi::c_ulong;

/// Calls of the driver's: `NV_ESC_RM_FREE`, `_CONTROL` and `_ALLOC`, without their size.
const FREE: c_ulong = 0x4629;
const CONTROL: c_ulong = 0x462a;
const ALLOCATE: c_ulong = 0x462b;
const CALL: c_ulong = 0xffff;

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

/// Whether a request can be one that [`done`] knows.
pub fn is_known(request: c_ulong) -> bool {
    (FREE..=ALLOCATE).contains(&(request & CALL))
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
            let made = Done::Made {
                client: word(0)?,
                group: word(1)?,
                handle: word(2)?,
            };
            is_channel(word(3)?).then_some(made)
        }
        _ => None,
    }
}

/// Whether objects of a class are channels: `KEPLER_CHANNEL_GPFIFO_A` and all that came after.
fn is_channel(class: u32) -> bool {
    const KEPLER: u32 = 0xa06f;
    (KEPLER..=0xffff).contains(&class) && class & 0xff == KEPLER & 0xff
}
