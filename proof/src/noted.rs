//! The channels of this process, as the driver makes them.
//!
//! libcuda asks the kernel driver by `ioctl`. This executable has a function of that name, which the dynamic linker finds
//! before glibc's. The call goes to the kernel as it is, and what it made is noted.

use core::ffi::{c_int, c_ulong, c_void};
use softmig_region::calls::{self, Done};
use softmig_rm::{Channel, Group};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Notes begin with [`start`]: everywhere else in this program calls pass by a comparison.
static IS_ON: AtomicBool = AtomicBool::new(false);
static NOTES: Mutex<Vec<(c_int, Done)>> = Mutex::new(Vec::new());

/// Every call of `ioctl(2)` in this program.
///
/// # Safety
///
/// As for glibc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(file: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's own call.
    let result = unsafe { libc::syscall(libc::SYS_ioctl, file, request, argument) } as c_int;
    if result == 0 && IS_ON.load(Ordering::Relaxed) && calls::is_known(request) {
        // SAFETY: by the kernel's convention of requests, the driver that answered has read and written as many bytes there as
        // this request says, and `note` reads no more.
        unsafe { note(file, request, argument.cast()) };
    }
    result
}

/// Notes what the driver has done.
///
/// # Safety
///
/// A call of this request was made with this argument.
unsafe fn note(file: c_int, request: c_ulong, argument: *const u32) {
    let word = |at: usize| {
        // SAFETY: the request says how many words there are, and no more are asked for.
        (!argument.is_null()).then(|| unsafe { argument.wrapping_add(at).read_unaligned() })
    };
    if let Some(done) = calls::done(request, word) {
        let notes = NOTES.lock();
        notes
            .unwrap_or_else(PoisonError::into_inner)
            .push((file, done));
    }
}

/// Begins to note.
pub(crate) fn start() {
    IS_ON.store(true, Ordering::Relaxed);
}

/// The channels that there are now in groups of CUDA contexts.
pub(crate) fn channels() -> Vec<(Group, Channel)> {
    let notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
    channels_of(&notes)
}

fn channels_of(notes: &[(c_int, Done)]) -> Vec<(Group, Channel)> {
    let mut found: Vec<(Group, Channel)> = Vec::new();
    for &(file, done) in notes {
        match done {
            Done::Made {
                client,
                group,
                handle,
            } => found.push((
                Group {
                    file,
                    client,
                    handle: group,
                },
                Channel { client, handle },
            )),
            Done::Freed { client, object } => found.retain(|(group, channel)| {
                let is_it = [client, group.handle, channel.handle].contains(&object);
                group.client != client || !is_it
            }),
            Done::Sliced { .. } | Done::Computes { .. } => {}
        }
    }
    let is_context = |its: &Group| {
        let own = |client: u32, group: u32| (client, group) == (its.client, its.handle);
        notes.iter().any(|&(_, done)| match done {
            Done::Sliced { client, group } => own(client, group),
            Done::Computes { client, channel } => (found.iter()).any(|(group, it)| {
                *it == Channel {
                    client,
                    handle: channel,
                } && own(client, group.handle)
            }),
            _ => false,
        })
    };
    let of_contexts = found.iter().filter(|(group, _)| is_context(group));
    of_contexts.copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_of_groups_with_a_time_slice_are_known_until_they_are_no_more() {
        let made = |group, handle| {
            let done = Done::Made {
                client: 0xc1,
                group,
                handle,
            };
            (7, done)
        };
        let freed = |client, object| (7, Done::Freed { client, object });
        let sliced = Done::Sliced {
            client: 0xc1,
            group: 5,
        };
        let mut notes = vec![
            made(5, 10),
            made(5, 11),
            // A copy engine's.
            made(6, 12),
            made(8, 13),
            (7, sliced),
            freed(0xc1, 11),
            // Another client's object of the same number.
            freed(0xc2, 10),
        ];
        let group = Group {
            file: 7,
            client: 0xc1,
            handle: 5,
        };
        let channel = Channel {
            client: 0xc1,
            handle: 10,
        };
        assert_eq!(channels_of(&notes), [(group, channel)]);
        let computes = Done::Computes {
            client: 0xc1,
            channel: 13,
        };
        notes.push((7, computes));
        assert_eq!(channels_of(&notes).len(), 2);
        notes.push(freed(0xc1, 0xc1));
        assert_eq!(channels_of(&notes), []);
    }
}
