//! A variable that is in the environment for the time of a call.

#![expect(unsafe_code, reason = "puts another list in the environment's place")]

use core::ffi::c_char;
use core::iter::once;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use super::cells::Mapped;
use super::error::Error;

unsafe extern "C" {
    /// The list in which `getenv` looks, and which a program hands on to the programs that it starts: `environ(7)`, by the name
    /// that glibc uses itself.
    #[link_name = "__environ"]
    safe static ENVIRONMENT: AtomicPtr<*mut c_char>;
}

/// A variable that is in the environment until this is dropped.
///
/// The programs that this one starts later must not have it, and glibc's `setenv` may move the list while other threads
/// read there. So a list of ours comes into its place for a while. What other threads set or take away meanwhile stays so. Our memory
/// is never given back: threads may still read there, and the driver may remember the value.
pub(crate) struct Variable {
    before: *mut *mut c_char,
    /// The list with the variable.
    list: *mut *mut c_char,
    /// The same as it was made.
    as_made: *mut *mut c_char,
    /// The variable.
    text: *mut u8,
}

impl Variable {
    /// Adds one that is not there.
    pub(crate) fn add(name: &[u8], value: &[u8]) -> Result<Self, Error> {
        let bytes = || name.iter().chain(b"=").chain(value);
        // A zero byte ends it.
        let mut text = Mapped::<u8>::new(bytes().count().saturating_add(1))?;
        for (place, byte) in text.iter_mut().zip(bytes()) {
            *place = *byte;
        }
        let text_at = text.as_mut_ptr();
        loop {
            // Acquire: what another thread wrote there before is seen.
            let before = ENVIRONMENT.load(Ordering::Acquire);
            // SAFETY: the environment. A thread that changes it at this moment races with us as with every `getenv`.
            let count = unsafe { entries(before) }.count();
            // With the variable and a null pointer.
            let size = count.saturating_add(2);
            let mut lists = Mapped::<*mut c_char>::new(size.saturating_mul(2))?;
            let halves = lists.split_at_mut_checked(size);
            let (list, as_made) = halves.ok_or(Error(libc::ENOMEM))?;
            // SAFETY: as above.
            let others = unsafe { entries(before) }.take(count);
            for (place, entry) in as_made.iter_mut().zip(others.chain(once(text_at.cast()))) {
                *place = entry;
            }
            for (place, entry) in list.iter_mut().zip(&*as_made) {
                *place = *entry;
            }
            let (list, as_made) = (list.as_mut_ptr(), as_made.as_mut_ptr());
            // If not, another thread has just set a variable.
            if replace(before, list) {
                core::mem::forget((text, lists));
                return Ok(Self {
                    before,
                    list,
                    as_made,
                    text: text_at,
                });
            }
        }
    }
}

impl Drop for Variable {
    fn drop(&mut self) {
        // SAFETY: it was made in `add`, and is never given back.
        let now = unsafe { entries(self.list) };
        // SAFETY: as above.
        let as_made = unsafe { entries(self.as_made) };
        // `setenv` and `unsetenv` change a list in place, or put a copy in its place.
        if now.eq(as_made) {
            replace(self.list, self.before);
        }
        // Both would keep the variable. It has another name in whatever list it is from here on.
        // SAFETY: the first byte of the text, which is never given back.
        let first = unsafe { AtomicU8::from_ptr(self.text) };
        // Relaxed: a byte and nothing else.
        first.store(b'_', Ordering::Relaxed);
    }
}

/// Puts a list in the place of another if that is there.
fn replace(before: *mut *mut c_char, list: *mut *mut c_char) -> bool {
    // Release: a thread that finds the list finds what is in it.
    ENVIRONMENT
        .compare_exchange(before, list, Ordering::Release, Ordering::Relaxed)
        .is_ok()
}

/// The entries of a list, without the null pointer that ends it.
///
/// # Safety
///
/// It is one, or a null pointer. Others may change its entries meanwhile.
unsafe fn entries(list: *mut *mut c_char) -> impl Iterator<Item = *mut c_char> {
    let most = if list.is_null() { 0 } else { usize::MAX };
    let entry = move |at| {
        // SAFETY: none of the entries before this one is the end.
        let place = unsafe { AtomicPtr::from_ptr(list.wrapping_add(at)) };
        // Relaxed: a pointer that is only handed on.
        place.load(Ordering::Relaxed)
    };
    (0..most).map(entry).take_while(|entry| !entry.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::{is_so_in_a_child, variable};
    use std::ffi::CStr;

    const NAME: &CStr = c"SOFTMIG_OF_THIS_TEST";

    fn add() -> Variable {
        Variable::add(NAME.to_bytes(), b"/a folder").unwrap()
    }

    fn all() -> Vec<Vec<u8>> {
        let list = ENVIRONMENT.load(Ordering::Relaxed);
        // SAFETY: the environment.
        let entries = unsafe { entries(list) };
        let bytes = |entry: *mut c_char| {
            // SAFETY: text that a zero byte ends.
            let text = unsafe { CStr::from_ptr(entry) };
            text.to_bytes().to_vec()
        };
        entries.map(bytes).collect()
    }

    fn set(name: &CStr, value: &CStr) {
        // SAFETY: two texts; the child of a fork has no other threads.
        assert_eq!(unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) }, 0);
    }

    #[test]
    fn a_variable_is_there_until_it_is_dropped() {
        assert!(is_so_in_a_child(|| {
            let (place, before) = (ENVIRONMENT.load(Ordering::Relaxed), all());
            let added = add();
            let during = variable(NAME) == Some(b"/a folder") && all().starts_with(&before);
            drop(added);
            let is_back = core::ptr::eq(ENVIRONMENT.load(Ordering::Relaxed), place);
            during && is_back && all() == before
        }));
    }

    #[test]
    fn an_environment_without_a_list_gets_none() {
        assert!(is_so_in_a_child(|| {
            ENVIRONMENT.store(core::ptr::null_mut(), Ordering::Relaxed);
            let added = add();
            let during = variable(NAME) == Some(b"/a folder");
            drop(added);
            during && ENVIRONMENT.load(Ordering::Relaxed).is_null()
        }));
    }

    #[test]
    fn what_others_set_meanwhile_stays_and_the_variable_does_not() {
        const OTHER: &CStr = c"SOFTMIG_OTHER_OF_THIS_TEST";
        // Variables that are new, changed in place, and taken away.
        for (old, new) in [
            (None, Some(c"new")),
            (Some(c"old"), Some(c"new")),
            (Some(c"old"), None),
        ] {
            assert!(is_so_in_a_child(|| {
                // glibc has a list of its own then, which it makes larger.
                set(c"SOFTMIG_THIRD_OF_THIS_TEST", c"3");
                if let Some(value) = old {
                    set(OTHER, value);
                }
                let added = add();
                match new {
                    Some(value) => set(OTHER, value),
                    // SAFETY: as above.
                    None => assert_eq!(unsafe { libc::unsetenv(OTHER.as_ptr()) }, 0),
                }
                let during = variable(NAME).is_some();
                drop(added);
                let is_gone = variable(NAME).is_none();
                let is_set = variable(OTHER) == new.map(CStr::to_bytes);
                // glibc goes on with what it finds.
                set(c"SOFTMIG_FOURTH_OF_THIS_TEST", c"4");
                let others = [
                    c"SOFTMIG_THIRD_OF_THIS_TEST",
                    c"SOFTMIG_FOURTH_OF_THIS_TEST",
                ];
                during && is_gone && is_set && others.map(variable) == [Some(&b"3"[..]), Some(b"4")]
            }));
        }
    }
}
