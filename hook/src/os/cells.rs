//! Values that threads share: [`Once`] is found out once, [`Locked`] is one thread's at a time, and [`Kept`] is in memory of
//! its own that is never given back.

#![expect(
    unsafe_code,
    reason = "values that threads share, in memory of their own"
)]

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::clock::{milliseconds, nap};
use super::error::{Errno, Error};
use super::futex::{Held, Lock};
use super::mapping::{is_wiped_in_children, map};
use super::process::process_id;
use super::sys::unmap;

/// Types of which all zero bits are a value. Structs are by [`zeroed!`].
///
/// # Safety
///
/// That holds.
pub(crate) unsafe trait Zeroed {}

/// Says that a struct is [`Zeroed`]: it compiles if all its fields are, and none is left out.
macro_rules! zeroed {
    ($name:ident { $($field:tt),* $(,)? }) => {
        // SAFETY: so are all fields: see below.
        #[allow(unsafe_code, reason = "checked")]
        unsafe impl $crate::os::cells::Zeroed for $name {}
        const _: fn(&$name) = |value| {
            fn is_zeroed<T: $crate::os::cells::Zeroed>(_: &T) {}
            let $name { $($field: _),* } = value;
            $( is_zeroed(&value.$field); )*
        };
    };
}

pub(crate) use zeroed;

macro_rules! plain {
    ($($kind:ty),*) => { $(
        // SAFETY: a number.
        unsafe impl Zeroed for $kind {}
    )* };
}

plain!(
    u8,
    u16,
    u32,
    u64,
    usize,
    bool,
    AtomicBool,
    AtomicU32,
    AtomicU64,
    AtomicUsize
);

// SAFETY: null.
unsafe impl<T> Zeroed for *mut T {}
// SAFETY: null.
unsafe impl<T> Zeroed for AtomicPtr<T> {}
// SAFETY: so are all entries.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}
// SAFETY: if the type has a tag, zero is one of its two values. Otherwise zero is `None` or a value of `T`.
unsafe impl<T: Zeroed> Zeroed for Option<T> {}

// SAFETY: it is free then.
unsafe impl Zeroed for Lock {}

/// A value that one thread at a time has.
pub(crate) struct Locked<T> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used by the thread alone that holds the lock, and by others later.
unsafe impl<T: Send> Sync for Locked<T> {}
// SAFETY: a lock is free when it is all zero.
unsafe impl<T: Zeroed> Zeroed for Locked<T> {}

impl<T> Locked<T> {
    /// A value that no thread has.
    pub(crate) const fn new(value: T) -> Self {
        Self {
            lock: Lock::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// The value, until what is returned is dropped.
    #[inline]
    pub(crate) fn hold(&self) -> Guard<'_, T> {
        Guard {
            _held: self.lock.hold(),
            value: &self.value,
        }
    }

    /// The same if no other thread has it.
    #[inline]
    pub(crate) fn try_hold(&self) -> Option<Guard<'_, T>> {
        Some(Guard {
            _held: self.lock.try_hold()?,
            value: &self.value,
        })
    }
}

/// This thread has a value.
pub(crate) struct Guard<'a, T> {
    _held: Held<'a>,
    value: &'a UnsafeCell<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and this is the only guard.
        unsafe { &mut *self.value.get() }
    }
}

/// A list in memory of its own, all zero at first; empty when it is all zero itself. Given back when dropped.
pub(crate) struct Mapped<T> {
    start: *mut T,
    count: usize,
}

// SAFETY: as a box of entries.
unsafe impl<T: Send> Send for Mapped<T> {}
// SAFETY: null, and then the list is empty.
unsafe impl<T> Zeroed for Mapped<T> {}

impl<T: Zeroed + Copy> Mapped<T> {
    /// Room for `count` entries.
    pub(crate) fn new(count: usize) -> Result<Self, Error> {
        let size = count.checked_mul(size_of::<T>());
        let start = map(size.ok_or(Error(libc::ENOMEM))?)?.cast().as_ptr();
        Ok(Self { start, count })
    }
}

impl<T> Mapped<T> {
    /// No entries.
    pub(crate) const fn empty() -> Self {
        Self {
            start: core::ptr::null_mut(),
            count: 0,
        }
    }
}

impl<T> Deref for Mapped<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        if self.start.is_null() {
            return &[];
        }
        // SAFETY: it is mapped, aligned to a page and large enough for `count` values, which may be all zero.
        unsafe { core::slice::from_raw_parts(self.start, self.count) }
    }
}

impl<T> DerefMut for Mapped<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        if self.start.is_null() {
            return &mut [];
        }
        // SAFETY: as above, and this list is the only owner.
        unsafe { core::slice::from_raw_parts_mut(self.start, self.count) }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        if let Some(start) = NonNull::new(self.start) {
            let size = self.count.saturating_mul(size_of::<T>());
            // SAFETY: mapped by this list, which ends.
            unsafe { unmap(start.cast(), size) };
        }
    }
}

/// A value in memory of its own, which has no other owner yet.
pub(crate) struct Fresh<T>(NonNull<T>);

impl<T: Zeroed> Fresh<T> {
    /// All zero, and so again in the children of a fork; false where the kernel cannot do that.
    pub(crate) fn zeroed() -> Result<(Self, bool), Error> {
        let start = map(size_of::<T>())?;
        let is_wiped = is_wiped_in_children(start, size_of::<T>());
        Ok((Self(start.cast()), is_wiped))
    }
}

impl<T> Fresh<T> {
    /// A copy of a value.
    pub(crate) fn new(value: T) -> Result<Self, Error> {
        let place = map(size_of::<T>())?.cast();
        // SAFETY: mapped, with no other owner yet.
        unsafe { place.write(value) };
        Ok(Self(place))
    }

    /// The value, which is never given back.
    pub(crate) fn leaked(self) -> &'static T {
        let place = self.0;
        core::mem::forget(self);
        // SAFETY: mapped for good; a value is there since this was made.
        unsafe { place.as_ref() }
    }
}

impl<T> Deref for Fresh<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: see above.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Fresh<T> {
    fn drop(&mut self) {
        // SAFETY: mapped for this value, which had no other owner.
        unsafe { unmap(self.0.cast(), size_of::<T>()) };
    }
}

/// A value that is never given back, once there is one: none when all zero.
pub(crate) struct Kept<T: 'static>(AtomicPtr<T>);

// SAFETY: null.
unsafe impl<T> Zeroed for Kept<T> {}

impl<T: Sync> Kept<T> {
    /// The mark of a cell that never gets a value.
    const NEVER: *mut T = core::ptr::without_provenance_mut(1);

    /// A cell without a value.
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// The value.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // Acquire: what was written there before is seen.
        Self::value(self.0.load(Ordering::Acquire))
    }

    #[inline]
    fn value(place: *mut T) -> Option<&'static T> {
        // SAFETY: only addresses of values are kept that are never given back.
        (place.addr() > Self::NEVER.addr()).then(|| unsafe { &*place })
    }

    /// Keeps a value in the place of what is there.
    pub(crate) fn keep(&self, value: &'static T) {
        let place = core::ptr::from_ref(value).cast_mut();
        // Release: see `get`.
        self.0.store(place, Ordering::Release);
    }

    /// Keeps a value in the place of `before`, and returns the value that is then kept. If another thread was faster,
    /// that is its value, and `new` is dropped.
    pub(crate) fn exchange(&self, before: Option<&'static T>, new: Fresh<T>) -> Option<&'static T> {
        let place = new.0.as_ptr();
        match self.compare_exchange(before, place) {
            Ok(()) => Some(new.leaked()),
            Err(other) => Self::value(other),
        }
    }

    /// Notes that the cell never gets a value, if it still has `before`.
    pub(crate) fn give_up(&self, before: Option<&'static T>) {
        let _ = self.compare_exchange(before, Self::NEVER);
    }

    fn compare_exchange(&self, before: Option<&'static T>, new: *mut T) -> Result<(), *mut T> {
        let before = before
            .map_or(core::ptr::null(), core::ptr::from_ref)
            .cast_mut();
        // Release: see `get`.
        let done = self
            .0
            .compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire);
        done.map(drop)
    }

    /// Whether the cell never gets a value.
    pub(crate) fn is_given_up(&self) -> bool {
        core::ptr::eq(self.0.load(Ordering::Acquire), Self::NEVER)
    }

    /// Forgets the value, which stays where it is.
    pub(crate) fn forget(&self) {
        self.0.store(core::ptr::null_mut(), Ordering::SeqCst);
    }
}

/// A value that is found out once: empty when all zero.
pub(crate) struct Once<T> {
    /// [`EMPTY`], [`READY`], or the process that is writing.
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

const EMPTY: u32 = 0;
/// No process has this number.
const READY: u32 = u32::MAX;

/// How long a value that is being kept is waited for, in milliseconds: longer than any thread that can run is kept from it. A
/// signal handler that came in the middle would wait for itself.
const PATIENCE: u64 = 10_000;
/// How often it is looked for meanwhile, in nanoseconds.
const LOOK_AGAIN: u64 = 20_000;

// SAFETY: `value` is written by the thread that put its process's number into `state`, and read only when `state` is
// READY, which is the last.
unsafe impl<T: Send + Sync> Sync for Once<T> {}
// SAFETY: empty when all zero, and then the value is not read.
unsafe impl<T> Zeroed for Once<T> {}

impl<T: Copy> Once<T> {
    /// A cell without a value yet.
    pub(crate) const fn new() -> Self {
        Self {
            state: AtomicU32::new(EMPTY),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// The value, once there is one.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        // Acquire: what was written before READY is seen.
        if self.state.load(Ordering::Acquire) != READY {
            return None;
        }
        // SAFETY: READY is the last state, so no thread writes any more.
        let value = unsafe { &*self.value.get() };
        // SAFETY: it was written before READY.
        Some(unsafe { value.assume_init_ref() })
    }

    /// The value that this thread or another has just kept. The keeper may have been interrupted in the middle, so this waits
    /// for some instructions of another thread's, and for ever only if they are never run: `None` after [`PATIENCE`].
    pub(crate) fn wait(&self) -> Option<&T> {
        wait_until_ready(&self.state, PATIENCE);
        self.get()
    }

    /// Keeps a value; true for the one that was first. No thread waits here.
    pub(crate) fn keep(&self, value: T) -> bool {
        let us = process_id();
        // Relaxed: only the number counts here.
        let before = self.state.load(Ordering::Relaxed);
        // The child of a process that forked in the middle of it takes it over: the thread that wrote is not in it. A child with
        // the same number, in a PID namespace of its own, does not: it finds the value out again each time.
        if before == us || before == READY {
            return false;
        }
        let taken = self
            .state
            .compare_exchange(before, us, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_err() {
            return false;
        }
        // SAFETY: this thread alone put the number there, and no thread reads before READY.
        unsafe { self.value.get().write(MaybeUninit::new(value)) };
        // Release: see `get`.
        self.state.store(READY, Ordering::Release);
        true
    }
}

fn wait_until_ready(state: &AtomicU32, patience: u64) {
    let _errno = Errno::save();
    let start = milliseconds();
    // Acquire: see `get`.
    while state.load(Ordering::Acquire) != READY && milliseconds().saturating_sub(start) < patience
    {
        nap(LOOK_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn all_who_come_at_once_have_the_same_value() {
        const THREADS: usize = 8;
        for _ in 0..100 {
            let (once, start) = (Once::<[usize; 64]>::new(), Barrier::new(THREADS));
            let (once, start) = (&once, &start);
            let kept: Vec<usize> = std::thread::scope(|scope| {
                let come = |number| {
                    scope.spawn(move || {
                        start.wait();
                        once.keep([number; 64]);
                        once.wait().unwrap()[63]
                    })
                };
                let threads: Vec<_> = (0..THREADS).map(come).collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .collect()
            });
            assert!(kept.iter().all(|number| *number == kept[0]), "{kept:?}");
        }
    }

    #[test]
    fn a_value_being_written_is_waited_for_but_not_for_ever() {
        let once = Once::<u32>::new();
        // A thread that is interrupted before it writes leaves this state.
        once.state.store(process_id(), Ordering::Relaxed);
        assert!(!once.keep(1));
        wait_until_ready(&once.state, 5);
        assert_eq!(once.get(), None);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| once.wait().copied());
            std::thread::sleep(std::time::Duration::from_millis(20));
            // It goes on.
            once.state.store(EMPTY, Ordering::Relaxed);
            assert!(once.keep(2));
            assert_eq!(waiting.join().unwrap(), Some(2));
        });
    }
}
