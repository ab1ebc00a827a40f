//! Values that the child of a fork does not have from its parent.

#![expect(unsafe_code, reason = "a value that is all zero at first")]

use core::sync::atomic::{AtomicU32, Ordering};

use super::cells::{Fresh, Kept, Zeroed};

/// A value of this process, all zero at first. The child of a fork has another. Its number alone does not tell: as first process
/// of a PID namespace a child may have its parent's, and a child that shares its parent's memory has another.
pub(crate) struct OfProcess<T: 'static>(Kept<Owned<T>>);

/// In memory that the kernel wipes in the child of a fork, where it can.
struct Owned<T> {
    /// The process whose value it is.
    by: AtomicU32,
    value: T,
}

// SAFETY: so are both.
unsafe impl<T: Zeroed> Zeroed for Owned<T> {}

impl<T: Zeroed + Sync> OfProcess<T> {
    /// No value yet.
    pub(crate) const fn new() -> Self {
        Self(Kept::new())
    }

    /// The value of this process, which has that number. `None` if there is no memory for one.
    pub(crate) fn of(&self, process: u32) -> Option<&'static T> {
        let before = self.0.get();
        if let Some(owned) = before {
            // Relaxed: the number alone counts here.
            let by = owned
                .by
                .compare_exchange(0, process, Ordering::Relaxed, Ordering::Relaxed);
            if by.is_ok() || by == Err(process) {
                return Some(&owned.value);
            }
        }
        let (new, _) = Fresh::<Owned<T>>::zeroed().ok()?;
        new.by.store(process, Ordering::Relaxed);
        Some(&self.0.exchange(before, new)?.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::sys::is_so_in_a_child;

    #[test]
    fn the_child_of_a_fork_has_another_value_whatever_its_number() {
        const NUMBER: u32 = 1;
        static VALUE: OfProcess<AtomicU32> = OfProcess::new();
        let value = |process| VALUE.of(process).unwrap().load(Ordering::Relaxed);
        VALUE.of(NUMBER).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(value(NUMBER), 7);
        assert!(is_so_in_a_child(|| value(NUMBER) == 0));
        assert_eq!(value(NUMBER), 7);
        assert_eq!(value(NUMBER + 1), 0);
    }
}
