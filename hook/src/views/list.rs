//! Lists of the driver in which each entry names a process. A program is given the entries of its own job.

use core::ffi::c_uint;

use softmig_driver_sys::nvml::{
    NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_MEMORY, NVML_SUCCESS,
    nvmlProcessDetail_v1_t, nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t,
    nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t, nvmlReturn_t,
};

use super::own_processes::OwnProcesses;
use crate::driver::args::Out;
use crate::os::cells::{Mapped, Zeroed};

/// An entry that names a process.
pub(crate) trait Entry: Zeroed + Copy {
    /// The process.
    fn pid(&self) -> u32;
}

macro_rules! entries {
    ($($kind:ty),* $(,)?) => { $(
        impl Entry for $kind {
            fn pid(&self) -> u32 {
                self.pid
            }
        }
    )* };
}

entries! {
    nvmlProcessInfo_v1_t,
    // Also the third version's entry.
    nvmlProcessInfo_v2_t,
    nvmlProcessDetail_v1_t,
    nvmlProcessUtilizationSample_t,
    nvmlProcessUtilizationInfo_v1_t,
}

impl Entry for u32 {
    fn pid(&self) -> u32 {
        *self
    }
}

/// A function of the driver that fills a list. It takes the number of entries that fit, and the place for them.
pub(super) type Ask<'a, T> = &'a dyn Fn(Out<c_uint>, Out<T>) -> nvmlReturn_t;

/// Entries in memory that is freed with the list.
pub(super) struct List<T> {
    room: Mapped<T>,
    count: usize,
}

/// How large a list is at first: more processes than any GPU has.
const FIRST: usize = 16 << 10;
/// How often a larger one is tried.
const TRIES: u32 = 8;

impl<T: Entry> List<T> {
    /// The driver's whole list.
    pub(super) fn ask(ask: Ask<T>) -> Result<Self, nvmlReturn_t> {
        let mut size = FIRST;
        for _ in 0..TRIES {
            let most = size.checked_div(size_of::<T>()).unwrap_or(0);
            let mut room = Mapped::new(most).map_err(|_| NVML_ERROR_MEMORY)?;
            let mut count = c_uint::try_from(most).unwrap_or(c_uint::MAX);
            let result = ask(Out::to(&mut count), Out::list(&mut room));
            let count = count as usize;
            match result {
                NVML_SUCCESS => {
                    let count = count.min(most);
                    return Ok(Self { room, count });
                }
                // There may be more entries by the next call.
                NVML_ERROR_INSUFFICIENT_SIZE => {
                    let wanted = count.saturating_mul(size_of::<T>()).max(size);
                    size = wanted.saturating_mul(2);
                }
                other => return Err(other),
            }
        }
        Err(NVML_ERROR_MEMORY)
    }

    /// Its entries.
    pub(super) fn entries(&self) -> &[T] {
        self.room.get(..self.count).unwrap_or(&[])
    }

    /// Leaves out the processes of other jobs.
    pub(super) fn own(mut self, own: &OwnProcesses) -> Self {
        self.keep(|pid| own.has(pid));
        self
    }

    fn keep(&mut self, is_kept: impl Fn(u32) -> bool) {
        let mut kept = 0_usize;
        let entries = &mut *self.room;
        for at in 0..self.count {
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

    /// Gives a program the list as the driver would: the number always, and the entries if all of them fit.
    pub(super) fn give(&self, count: Out<c_uint>, out: Out<T>) -> nvmlReturn_t {
        let room = count.get().unwrap_or(0) as usize;
        count.set(c_uint::try_from(self.count).unwrap_or(c_uint::MAX));
        if room < self.count {
            return NVML_ERROR_INSUFFICIENT_SIZE;
        }
        if self.count > 0 && out.is_null() {
            return NVML_ERROR_INVALID_ARGUMENT;
        }
        out.set_all(self.entries());
        NVML_SUCCESS
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

    /// A driver that lists these processes.
    fn driver(pids: &[u32]) -> impl Fn(Out<c_uint>, Out<nvmlProcessInfo_v1_t>) -> nvmlReturn_t {
        |count, out| {
            let room = count.get().unwrap() as usize;
            count.set(pids.len() as u32);
            if room < pids.len() {
                return NVML_ERROR_INSUFFICIENT_SIZE;
            }
            let infos: Vec<_> = pids.iter().map(|pid| info(*pid)).collect();
            out.set_all(&infos);
            NVML_SUCCESS
        }
    }

    fn list(pids: &[u32], kept: impl Fn(u32) -> bool) -> List<nvmlProcessInfo_v1_t> {
        let mut list = List::ask(&driver(pids)).unwrap();
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
    fn processes_of_other_jobs_are_left_out() {
        let kept = |pids_: &[u32], kept: fn(u32) -> bool| pids(list(pids_, kept).entries());
        assert_eq!(kept(&[1, 2, 3, 4, 5], |pid| pid % 2 == 1), [1, 3, 5]);
        assert_eq!(kept(&[1, 2, 3, 4, 5], |pid| pid > 3), [4, 5]);
        assert_eq!(kept(&[1, 2], |_| true), [1, 2]);
        assert_eq!(kept(&[1, 2], |_| false), []);
        assert_eq!(kept(&[], |_| true), []);
    }

    #[test]
    fn all_of_a_list_is_read_however_long_it_is() {
        let many: Vec<u32> = (1..=10_000).collect();
        assert_eq!(pids(list(&many, |_| true).entries()), many);
    }

    #[test]
    fn a_list_that_keeps_growing_is_given_up() {
        let calls = Cell::new(0);
        let result = List::<u32>::ask(&|count, _| {
            calls.set(calls.get() + 1);
            count.set(count.get().unwrap() + 1);
            NVML_ERROR_INSUFFICIENT_SIZE
        });
        assert!(matches!(result, Err(NVML_ERROR_MEMORY)));
        assert_eq!(calls.get(), TRIES);
        // A number that cannot be true does no harm either.
        let result = List::<u32>::ask(&|count, _| {
            count.set(u32::MAX);
            NVML_ERROR_INSUFFICIENT_SIZE
        });
        assert!(matches!(result, Err(NVML_ERROR_MEMORY)));
        assert!(matches!(List::<u32>::ask(&|_, _| 15), Err(15)));
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
            let given = three.give(Out::to(&mut count), Out::list(&mut out));
            assert_eq!((given, count), (result, 3));
            let written = if result == NVML_SUCCESS { 3 } else { 0 };
            let (given, left) = out.split_at(written);
            assert_eq!(pids(given), pids(three.entries().get(..written).unwrap()));
            assert!(left.iter().all(|entry| entry.pid == 77));
        }
        let give = |list: &List<_>, mut count| {
            let given = list.give(Out::to(&mut count), Out::null());
            (given, count)
        };
        assert_eq!(give(&three, 0), (NVML_ERROR_INSUFFICIENT_SIZE, 3));
        assert_eq!(give(&three, 3), (NVML_ERROR_INVALID_ARGUMENT, 3));
        let none = list(&[5], |_| false);
        assert_eq!(give(&none, 0), (NVML_SUCCESS, 0));
        assert_eq!(give(&none, 4), (NVML_SUCCESS, 0));
    }
}
