//! A list of the driver's in which each entry names a process, and what a program is told of it.

use core::ffi::c_uint;
use core::marker::PhantomData;
use core::mem::size_of;
use core::ptr::NonNull;

use softmig_driver_sys::nvml::{
    NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_MEMORY, NVML_SUCCESS,
    nvmlProcessDetail_v1_t, nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t,
    nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t, nvmlReturn_t,
};

use super::own_processes::Own;
use crate::os;

/// What names a process.
///
/// # Safety
///
/// Only for types of which any bits are a value.
pub(super) unsafe trait Entry: Copy {
    /// The process.
    fn pid(&self) -> u32;
}

macro_rules! entries {
    ($($kind:ty),* $(,)?) => { $(
        // SAFETY: a struct of NVML's, of plain numbers.
        unsafe impl Entry for $kind {
            fn pid(&self) -> u32 {
                self.pid
            }
        }
    )* };
}

entries! {
    nvmlProcessInfo_v1_t,
    // The third version's too.
    nvmlProcessInfo_v2_t,
    nvmlProcessDetail_v1_t,
    nvmlProcessUtilizationSample_t,
    nvmlProcessUtilizationInfo_v1_t,
}

// SAFETY: a number.
unsafe impl Entry for u32 {
    fn pid(&self) -> u32 {
        *self
    }
}

/// Entries in memory of our own, which ends with the list.
pub(super) struct List<T> {
    start: NonNull<u8>,
    size: usize,
    count: usize,
    of: PhantomData<T>,
}

/// How large a list is at first: more processes than any GPU has.
const FIRST: usize = 16 << 10;
/// How often a larger one is tried.
const TRIES: u32 = 8;

impl<T: Entry> List<T> {
    /// The driver's whole list. `ask` calls it with the number of entries that there is room for, and with the room.
    pub(super) fn ask(
        ask: impl Fn(*mut c_uint, *mut T) -> nvmlReturn_t,
    ) -> Result<Self, nvmlReturn_t> {
        let mut size = FIRST;
        for _ in 0..TRIES {
            let mut list = Self::with_room(size)?;
            let room = size.checked_div(size_of::<T>()).unwrap_or(0);
            let mut count = c_uint::try_from(room).unwrap_or(c_uint::MAX);
            let result = ask(&raw mut count, list.start.as_ptr().cast());
            let count = count as usize;
            match result {
                NVML_SUCCESS => {
                    list.count = count.min(room);
                    return Ok(list);
                }
                // Until the next call there may be more.
                NVML_ERROR_INSUFFICIENT_SIZE => {
                    let wanted = count.saturating_mul(size_of::<T>()).max(size);
                    size = wanted.saturating_mul(2);
                }
                other => return Err(other),
            }
        }
        Err(NVML_ERROR_MEMORY)
    }

    fn with_room(size: usize) -> Result<Self, nvmlReturn_t> {
        let start = os::map(size).map_err(|_| NVML_ERROR_MEMORY)?;
        Ok(Self {
            start,
            size,
            count: 0,
            of: PhantomData,
        })
    }

    /// What is in it.
    pub(super) fn entries(&self) -> &[T] {
        // SAFETY: mapped, aligned to a page and large enough for so many; any bits are an entry.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr().cast::<T>(), self.count) }
    }

    fn entries_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and nobody else's.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr().cast::<T>(), self.count) }
    }

    /// Leaves out all strangers.
    pub(super) fn own(mut self, own: &Own) -> Self {
        self.keep(|pid| own.has(pid));
        self
    }

    fn keep(&mut self, is_kept: impl Fn(u32) -> bool) {
        let mut kept = 0_usize;
        let entries = self.entries_mut();
        for at in 0..entries.len() {
            let entry = entries.get(at).copied();
            if let Some(entry) = entry.filter(|entry| is_kept(entry.pid()))
                && let Some(place) = entries.get_mut(kept)
            {
                *place = entry;
                kept = kept.saturating_add(1);
            }
        }
        self.count = kept;
    }

    /// Gives a program the list as the driver gives its own: the number always, the entries if there is room for all.
    ///
    /// # Safety
    ///
    /// At `out` there is room for `count` entries, or it is null.
    pub(super) unsafe fn give(&self, count: &mut c_uint, out: *mut T) -> nvmlReturn_t {
        let room = *count as usize;
        *count = c_uint::try_from(self.count).unwrap_or(c_uint::MAX);
        if room < self.count {
            return NVML_ERROR_INSUFFICIENT_SIZE;
        }
        if self.count > 0 && out.is_null() {
            return NVML_ERROR_INVALID_ARGUMENT;
        }
        if self.count > 0 {
            // SAFETY: the caller's promise; our own memory is nobody else's.
            unsafe { out.copy_from_nonoverlapping(self.entries().as_ptr(), self.count) };
        }
        NVML_SUCCESS
    }
}

impl<T> Drop for List<T> {
    fn drop(&mut self) {
        os::unmap(self.start, self.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn info(pid: u32) -> nvmlProcessInfo_v1_t {
        nvmlProcessInfo_v1_t {
            pid,
            usedGpuMemory: u64::from(pid).wrapping_mul(10),
        }
    }

    /// A driver that knows these processes.
    fn driver(pids: &[u32]) -> impl Fn(*mut c_uint, *mut nvmlProcessInfo_v1_t) -> nvmlReturn_t {
        |count, out| {
            // SAFETY: `List::ask` hands over both.
            let count = unsafe { &mut *count };
            let room = std::mem::replace(count, pids.len() as u32) as usize;
            if room < pids.len() {
                return NVML_ERROR_INSUFFICIENT_SIZE;
            }
            for (at, pid) in pids.iter().enumerate() {
                // SAFETY: as above.
                unsafe { out.wrapping_add(at).write(info(*pid)) };
            }
            NVML_SUCCESS
        }
    }

    fn list(pids: &[u32], kept: impl Fn(u32) -> bool) -> List<nvmlProcessInfo_v1_t> {
        let mut list = List::ask(driver(pids)).unwrap();
        list.keep(kept);
        list
    }

    fn pids(list: &[nvmlProcessInfo_v1_t]) -> Vec<u32> {
        let whole = list
            .iter()
            .filter(|entry| entry.usedGpuMemory == u64::from(entry.pid) * 10);
        whole.map(|entry| entry.pid).collect()
    }

    #[test]
    fn strangers_are_left_out() {
        let kept = |pids_: &[u32], kept: fn(u32) -> bool| pids(list(pids_, kept).entries());
        assert_eq!(kept(&[1, 2, 3, 4, 5], |pid| pid % 2 == 1), [1, 3, 5]);
        assert_eq!(kept(&[1, 2, 3, 4, 5], |pid| pid > 3), [4, 5]);
        assert_eq!(kept(&[1, 2], |_| true), [1, 2]);
        assert_eq!(kept(&[1, 2], |_| false), []);
        assert_eq!(kept(&[], |_| true), []);
    }

    #[test]
    fn a_list_of_any_length_is_read_whole() {
        let many: Vec<u32> = (1..=10_000).collect();
        assert_eq!(pids(list(&many, |_| true).entries()), many);
    }

    #[test]
    fn a_list_that_keeps_growing_is_given_up() {
        let calls = Cell::new(0);
        let result = List::<u32>::ask(|count, _| {
            calls.set(calls.get() + 1);
            // SAFETY: `List::ask` hands it over.
            unsafe { *count += 1 };
            NVML_ERROR_INSUFFICIENT_SIZE
        });
        assert!(matches!(result, Err(NVML_ERROR_MEMORY)));
        assert_eq!(calls.get(), TRIES);
        // Nor does a number that cannot be true harm.
        let result = List::<u32>::ask(|count, _| {
            // SAFETY: as above.
            unsafe { *count = u32::MAX };
            NVML_ERROR_INSUFFICIENT_SIZE
        });
        assert!(matches!(result, Err(NVML_ERROR_MEMORY)));
        assert!(matches!(List::<u32>::ask(|_, _| 15), Err(15)));
    }

    #[test]
    fn a_program_is_told_the_number_and_given_all_or_nothing() {
        let three = list(&[1, 2, 3, 4], |pid| pid != 2);
        assert_eq!(pids(three.entries()), [1, 3, 4]);
        for (room, result) in [
            (0, NVML_ERROR_INSUFFICIENT_SIZE),
            (2, NVML_ERROR_INSUFFICIENT_SIZE),
            (3, NVML_SUCCESS),
            (9, NVML_SUCCESS),
        ] {
            let (mut count, mut out) = (room, [info(77); 9]);
            // SAFETY: there is as much room as is said.
            let given = unsafe { three.give(&mut count, out.as_mut_ptr()) };
            assert_eq!((given, count), (result, 3));
            let written = if result == NVML_SUCCESS { 3 } else { 0 };
            let (given, left) = out.split_at(written);
            assert_eq!(pids(given), pids(three.entries().get(..written).unwrap()));
            assert!(left.iter().all(|entry| entry.pid == 77));
        }
        let give = |list: &List<_>, mut count| {
            // SAFETY: null.
            let given = unsafe { list.give(&mut count, std::ptr::null_mut()) };
            (given, count)
        };
        assert_eq!(give(&three, 0), (NVML_ERROR_INSUFFICIENT_SIZE, 3));
        assert_eq!(give(&three, 3), (NVML_ERROR_INVALID_ARGUMENT, 3));
        let none = list(&[5], |_| false);
        assert_eq!(give(&none, 0), (NVML_SUCCESS, 0));
        assert_eq!(give(&none, 4), (NVML_SUCCESS, 0));
    }
}
