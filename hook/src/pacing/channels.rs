//! The channels of this process on the GPU's own scheduler, as the driver makes them: the arbiter steers by them.
//!
//! libcuda asks the kernel driver by `ioctl`, which this library exports ([`crate::exports`]). The call goes to the
//! kernel as it is. These results are noted: a channel was made, a channel group got a time slice, or one of its channels a
//! compute engine (so it belongs to a CUDA context), or an object was destroyed. Any other call costs a comparison.

use core::ffi::{c_int, c_ulong};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32};

use softmig_region::calls::{self, Done};
use softmig_region::seat::{Channel, Seat};

use crate::driver::args::In;
use crate::os::Lock;
use crate::os::cells::{Fresh, Kept, zeroed};

/// How many groups and channels are known: those of far more contexts than there is memory for on a GPU. A seat has less room.
const MOST_GROUPS: usize = 256;
const MOST: usize = 2048;

/// The channels that are known; none while all is zero.
struct Table {
    lock: Lock,
    /// Client and handle.
    groups: [[AtomicU32; 2]; MOST_GROUPS],
    /// Descriptor, client, group and handle.
    channels: [[AtomicU32; 4]; MOST],
}

zeroed! { Table { lock, groups, channels } }

static TABLE: Kept<Table> = Kept::new();

/// Whether a context may exist that [`super::seat_contexts`] did not see: the driver has made channels, as for each context.
pub(super) static HAS_NEW_CONTEXT: AtomicBool = AtomicBool::new(false);

/// A context was made, perhaps while another thread looked.
pub(crate) fn expect_context() {
    HAS_NEW_CONTEXT.store(true, Relaxed);
}

/// Notes the driver's result. True if the arbiter is to know: see [`super::channels_changed`].
/// The request says how many words there are, and no more are asked for.
#[cold]
pub(crate) fn note(file: c_int, request: c_ulong, argument: In<u32>) -> bool {
    match calls::done(request, |at| argument.at(at)) {
        Some(Done::Freed { client, object }) => forget(client, object),
        Some(Done::Sliced { client, group }) => add(|table| &table.groups, [client, group]),
        Some(Done::Computes { client, channel }) => match group_of(client, channel) {
            Some(group) => add(|table| &table.groups, [client, group]),
            None => false,
        },
        Some(Done::Made {
            client,
            group,
            handle,
        }) => {
            expect_context();
            let parts = [file.cast_unsigned(), client, group, handle];
            add(|table| &table.channels, parts)
        }
        None => false,
    }
}

impl Table {
    /// The process's table. It is made at the first call, and the child of a fork has an empty one.
    fn get() -> Option<&'static Self> {
        TABLE.get().or_else(|| {
            let (new, _) = Fresh::zeroed().ok()?;
            TABLE.exchange(None, new)
        })
    }

    fn is_group(&self, client: u32, group: u32) -> bool {
        let mut all = self.groups.iter();
        all.any(|[its, handle]| its.load(Relaxed) == client && handle.load(Relaxed) == group)
    }
}

/// The group of a channel that is known.
fn group_of(client: u32, channel: u32) -> Option<u32> {
    let table = TABLE.get()?;
    let _held = table.lock.hold();
    let mut all = table.channels.iter();
    let is_it = |[_, its, _, handle]: &&[AtomicU32; 4]| {
        its.load(Relaxed) == client && handle.load(Relaxed) == channel
    };
    all.find(is_it).map(|[_, _, group, _]| group.load(Relaxed))
}

/// Adds an entry at the first free place; false if it is known already.
fn add<const WORDS: usize, const COUNT: usize>(
    all: impl Fn(&Table) -> &[[AtomicU32; WORDS]; COUNT],
    parts: [u32; WORDS],
) -> bool {
    let Some(table) = Table::get() else {
        return false;
    };
    let _held = table.lock.hold();
    // The same group gets another time slice.
    let is = |entry: &&[AtomicU32; WORDS]| {
        entry
            .iter()
            .zip(parts)
            .all(|(word, part)| word.load(Relaxed) == part)
    };
    if all(table).iter().any(|entry| is(&entry)) {
        return false;
    }
    // No client has the handle 0.
    let is_free = |entry: &&[AtomicU32; WORDS]| entry.iter().all(|word| word.load(Relaxed) == 0);
    if let Some(entry) = all(table).iter().find(is_free) {
        for (word, part) in entry.iter().zip(parts) {
            word.store(part, Relaxed);
        }
    }
    true
}

/// An object was destroyed, with all that was below it; false if nothing of it was known.
fn forget(client: u32, object: u32) -> bool {
    let Some(table) = TABLE.get() else {
        return false;
    };
    let mut is_any = false;
    let _held = table.lock.hold();
    for [its, group] in &table.groups {
        let is_it = object == client || group.load(Relaxed) == object;
        if its.load(Relaxed) == client && is_it {
            its.store(0, Relaxed);
            group.store(0, Relaxed);
            is_any = true;
        }
    }
    for entry @ [_, its, group, handle] in &table.channels {
        let is_it =
            object == client || group.load(Relaxed) == object || handle.load(Relaxed) == object;
        if its.load(Relaxed) == client && is_it {
            entry.iter().for_each(|word| word.store(0, Relaxed));
            is_any = true;
        }
    }
    is_any
}

/// Tells the arbiter of all that are in a CUDA context's group.
pub(crate) fn tell(seat: &Seat) {
    let Some(table) = Table::get() else { return };
    let _held = table.lock.hold();
    let known = table
        .channels
        .iter()
        .map(|[file, client, group, handle]| Channel {
            file: file.load(Relaxed).cast_signed(),
            client: client.load(Relaxed),
            group: group.load(Relaxed),
            handle: handle.load(Relaxed),
        });
    seat.tell_channels(known.filter(|it| it.client != 0 && table.is_group(it.client, it.group)));
}

#[cfg(test)]
mod tests {
    use super::super::arbiter_client::seat_of_test;
    use super::*;
    use crate::driver::args::Out;
    use softmig_region::seat::{MOST_CHANNELS, TOO_MANY};

    const FREE: c_ulong = 0x4629;
    const CONTROL: c_ulong = 0x462a;
    const ALLOCATE: c_ulong = 0x462b;
    const SET_TIME_SLICE: u32 = 0xa06c_0103;

    /// Held by the test that uses the process's table.
    static TESTED: Lock = Lock::new();

    fn told() -> (u32, Vec<Channel>) {
        let seat = seat_of_test();
        tell(seat);
        let (count, all) = seat.channels();
        (count, all.collect())
    }

    fn request(call: c_ulong, bytes: c_ulong) -> c_ulong {
        0xc000_0000 | bytes << 16 | call
    }

    fn note_words(call: c_ulong, words: &[u32]) {
        let bytes = size_of_val(words) as c_ulong;
        let mut words = words.to_vec();
        note(7, request(call, bytes), Out::list(&mut words).input());
    }

    #[test]
    fn channels_of_groups_with_a_time_slice_are_told_while_there() {
        let _held = TESTED.hold();
        const CLIENT: u32 = 0xc1d0_001a;
        let allocate = |parent: u32, handle: u32, class: u32, status: u32| {
            note_words(ALLOCATE, &[CLIENT, parent, handle, class, 0, 0, 0, status]);
            // The longer form has the status elsewhere.
            let long = [
                CLIENT,
                parent,
                handle + 100,
                class,
                0,
                0,
                0,
                0,
                0,
                0,
                status,
                0,
            ];
            note_words(ALLOCATE, &long);
        };
        allocate(5, 10, 0xc86f, 0);
        // Refused, another class, a copy engine's group.
        allocate(5, 11, 0xc86f, 0x1a);
        allocate(5, 12, 0xa06c, 0);
        allocate(6, 13, 0xc86f, 0);
        assert_eq!(told().0, 0);
        let slice = |group| note_words(CONTROL, &[CLIENT, group, SET_TIME_SLICE, 0, 0, 0, 8, 0]);
        slice(5);
        slice(5);
        // A compute engine of a channel says the same of group 6; of a channel that is not known it says nothing.
        note_words(ALLOCATE, &[CLIENT, 13, 20, 0xcbc0, 0, 0, 0, 0]);
        note_words(ALLOCATE, &[CLIENT, 14, 21, 0xcbc0, 0, 0, 0, 0]);
        assert!(told().1.iter().any(|it| (it.group, it.handle) == (6, 13)));
        note_words(FREE, &[CLIENT, CLIENT, 6, 0]);
        let handles = || told().1.iter().map(|it| it.handle).collect::<Vec<_>>();
        assert_eq!(handles(), [10, 110]);
        assert_eq!((told().1[0].file, told().1[0].group), (7, 5));
        note_words(FREE, &[CLIENT, 5, 10, 0]);
        assert_eq!(handles(), [110]);
        // An argument of another size is another driver's.
        note_words(FREE, &[CLIENT, 5, 110, 0, 0]);
        assert_eq!(handles(), [110]);
        note_words(FREE, &[CLIENT, 0, CLIENT, 0]);
        assert_eq!(told().0, 0);
        slice(9);
        for handle in 1..=MOST_CHANNELS as u32 {
            allocate(9, handle, 0xc96f, 0);
        }
        note_words(FREE, &[CLIENT, 9, 1, 0]);
        allocate(9, 1, 0xc96f, 0);
        assert_eq!(told().0, TOO_MANY);
        note_words(FREE, &[CLIENT, 0, CLIENT, 0]);
        assert_eq!(told().0, 0);
    }

    #[test]
    fn who_had_too_many_channels_can_be_steered_again() {
        let _held = TESTED.hold();
        const EACH: u32 = 10;
        let make = |client: u32, group: u32| {
            for handle in 0..EACH {
                let handle = group * EACH + handle;
                note_words(ALLOCATE, &[client, group, handle, 0xc96f, 0, 0, 0, 0]);
            }
            note_words(CONTROL, &[client, group, SET_TIME_SLICE, 0, 0, 0, 8, 0]);
        };
        // Two clients with 55 contexts each.
        let clients = [0xc1d0_001a, 0xc1d0_001b];
        let all = || (1000..1055).flat_map(|group| clients.map(|client| (client, group)));
        all().for_each(|(client, group)| make(client, group));
        assert_eq!(told().0, TOO_MANY);
        // All contexts but one end.
        for (client, group) in all().skip(1) {
            note_words(FREE, &[client, client, group, 0]);
        }
        assert_eq!(told().0, EACH);
    }
}
