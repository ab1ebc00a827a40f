//! The driver's libraries, and where their functions are.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use super::table::{Row, Slot};
use crate::os::elf::{Object, Symbols};
use crate::os::{Errno, Lock, glibc};

/// One of the driver's libraries.
pub(crate) struct Library {
    pub(super) soname: &'static CStr,
    pub(crate) rows: &'static [Row],
    /// The answer of a function where the library cannot be had.
    pub(super) no_library: u32,
    /// Its answer where the library has no such function.
    pub(super) no_function: u32,
    /// Its answer to a process that gets no GPU.
    pub(crate) denied: u32,
    pub(super) state: State,
}

/// Which copy of a library the exports lead to. A program may ask one copy for functions, close it, and then use another, as those do
/// that look for a forward compatibility package. So the exports follow the copy that was asked last, until one is initialized.
/// Before the first call none is pinned: a program that only asks must not notice.
pub(super) struct State {
    /// A function of the copy that was asked last; null before.
    asked: AtomicPtr<()>,
    /// Whether a copy is pinned, and the slots hold its functions.
    resolved: AtomicBool,
    /// How many threads initialize it just now, and whether it was initialized.
    initializing: AtomicU32,
    initialized: AtomicBool,
    /// Held while any of these and the slots change.
    changing: Lock,
}

/// How many milliseconds a thread waits for another's change. In the child of a fork that thread may be no more.
const LONGEST_CHANGE: u64 = 100;

impl State {
    pub(super) const fn new() -> Self {
        Self {
            asked: AtomicPtr::new(core::ptr::null_mut()),
            resolved: AtomicBool::new(false),
            initializing: AtomicU32::new(0),
            initialized: AtomicBool::new(false),
            changing: Lock::new(),
        }
    }
}

impl Library {
    /// The address in a slot, looked up at the first use. It is null if the driver lacks the function, or if there is
    /// no driver.
    #[inline]
    pub(crate) fn address(&self, slot: &Slot) -> *mut () {
        let known = slot.known();
        if known.is_null() {
            self.look(slot)
        } else {
            known
        }
    }

    #[cold]
    fn look(&self, slot: &Slot) -> *mut () {
        self.resolve();
        slot.known()
    }

    /// Initializes the library by `call`. If that succeeds, the exports lead to this copy for good. If not, a program may go back to
    /// functions that it got of another one.
    pub(crate) fn initialize<T: PartialEq>(&self, success: T, call: impl FnOnce() -> T) -> T {
        self.resolve();
        let State {
            initializing,
            initialized,
            changing,
            ..
        } = &self.state;
        let changing_now = changing.hold_within(LONGEST_CHANGE);
        initializing.fetch_add(1, Ordering::SeqCst);
        drop(changing_now);
        let result = call();
        let _changing = changing.hold_within(LONGEST_CHANGE);
        let others = initializing.fetch_sub(1, Ordering::SeqCst) > 1;
        if result == success {
            initialized.store(true, Ordering::SeqCst);
        } else if !others && !self.is_initialized() {
            self.lead_to(core::ptr::null_mut());
        }
        result
    }

    /// Whether the exports lead to this copy for good.
    pub(crate) fn is_initialized(&self) -> bool {
        self.state.initialized.load(Ordering::SeqCst)
    }

    fn is_in_use(&self) -> bool {
        self.is_initialized() || self.state.initializing.load(Ordering::SeqCst) > 0
    }

    /// Lets the exports lead to the copy that has this function, or to the program's first. The caller holds `changing`. The copy before
    /// stays pinned if it was: another thread may be in it.
    fn lead_to(&self, function: *mut ()) {
        self.state.asked.store(function, Ordering::SeqCst);
        if self.state.resolved.swap(false, Ordering::SeqCst) {
            let slots = self.rows.iter().map(|row| row.slot);
            slots.for_each(|slot| slot.set(core::ptr::null_mut()));
        }
    }

    /// Whether the program has the library, and the library this row's function.
    pub(crate) fn has(&self, row: &Row) -> bool {
        if self.is_resolved() {
            !row.slot.known().is_null()
        } else {
            self.with_symbols(|symbols| symbols.find(row.name).is_some()) == Some(true)
        }
    }

    /// Whether the program has the library.
    pub(crate) fn is_loaded(&self) -> bool {
        self.is_resolved() || self.with_symbols(|_| ()).is_some()
    }

    fn is_resolved(&self) -> bool {
        // Acquire: the slots hold what was stored before.
        self.state.resolved.load(Ordering::Acquire)
    }

    /// The row with this name.
    pub(crate) fn row(&self, name: &[u8]) -> Option<&'static Row> {
        self.rows.iter().find(|row| row.name.to_bytes() == name)
    }

    /// The program has found `theirs`, which is no function in a slot. True if it is of the copy that the exports lead to. That is
    /// another one from now on if it `may_change`.
    pub(crate) fn follow(&self, theirs: *const (), may_change: impl FnOnce() -> bool) -> bool {
        if self.is_in_use() {
            return false;
        }
        let is_in_it = || self.with_copy(|object, _| object.contains(theirs as usize));
        if is_in_it() == Some(true) {
            return true;
        }
        if !self.is_there(theirs) || !may_change() {
            return false;
        }
        let _changing = self.state.changing.hold_within(LONGEST_CHANGE);
        if self.is_in_use() {
            return false;
        }
        self.lead_to(theirs.cast_mut());
        true
    }

    /// Finds the driver's functions, all at once; true when the library is there. Loads it if need be: a program that calls one of
    /// its functions has a right to it. Pins it: a program may unload it while we hold addresses. Threads may do this at the same
    /// time: they find the same.
    pub(crate) fn resolve(&self) -> bool {
        if self.is_resolved() {
            return true;
        }
        let _errno = Errno::save();
        let State {
            asked,
            resolved,
            changing,
            ..
        } = &self.state;
        loop {
            let copy = asked.load(Ordering::SeqCst);
            // The program may have closed it, and something else may be in its place.
            let is_pinned = self.is_there(copy) && glibc::pin(copy);
            if !is_pinned && glibc::dlopen(self.soname).is_null() {
                return false;
            }
            // Not held while the loader runs code of the program's.
            let _changing = changing.hold_within(LONGEST_CHANGE);
            // Another thread may have asked another copy meanwhile.
            if !core::ptr::eq(copy, asked.load(Ordering::SeqCst)) {
                continue;
            }
            let found = self.with_symbols(|symbols| {
                for row in self.rows {
                    let function = symbols.find(row.name);
                    row.slot.set(function.unwrap_or(core::ptr::null_mut()));
                }
            });
            if found.is_some() {
                resolved.store(true, Ordering::SeqCst);
            }
            return found.is_some();
        }
    }

    /// Whether an address is in a copy.
    fn is_there(&self, address: *const ()) -> bool {
        let mut is_there = false;
        self.each_copy(|object, _| {
            is_there = object.contains(address as usize);
            !is_there
        });
        is_there
    }

    /// Calls `use_them` with the symbols of the copy that the exports lead to.
    fn with_symbols<T>(&self, mut use_them: impl FnMut(&Symbols) -> T) -> Option<T> {
        self.with_copy(|_, symbols| use_them(symbols))
    }

    /// Calls `use_it` with the copy that was asked last, or else with the program's first. The loader unloads nothing meanwhile.
    fn with_copy<T>(&self, mut use_it: impl FnMut(&Object<'_>, &Symbols) -> T) -> Option<T> {
        let asked = self.state.asked.load(Ordering::SeqCst) as usize;
        let mut used = None;
        self.each_copy(|object, symbols| {
            if object.contains(asked) {
                used = Some(use_it(object, &symbols));
            }
            used.is_none()
        });
        if used.is_none() {
            self.each_copy(|object, symbols| {
                used = Some(use_it(object, &symbols));
                false
            });
        }
        used
    }

    /// Visits the copies that the program has loaded in its own namespace of the loader, until `visit` returns false.
    fn each_copy(&self, mut visit: impl FnMut(&Object<'_>, Symbols) -> bool) {
        glibc::each_object(|object| {
            let symbols = object.symbols().filter(|symbols| self.is_named(symbols));
            symbols.is_none_or(|symbols| visit(object, symbols))
        });
    }

    /// Whether an object is this library, or a copy of it, whatever its file is called.
    pub(crate) fn is_named(&self, symbols: &Symbols) -> bool {
        symbols.soname() == Some(self.soname)
    }

    /// The answer in the place of a function that is not there.
    #[cold]
    pub(crate) fn absence(&self) -> u32 {
        if self.is_resolved() {
            self.no_function
        } else {
            self.no_library
        }
    }

    /// A row's place among the rows.
    pub(crate) fn number(&self, row: &Row) -> Option<usize> {
        self.rows.iter().position(|one| core::ptr::eq(one, row))
    }

    /// The row whose function in the driver this is, preferably the one with this name: two names may be one function.
    pub(crate) fn row_at(&self, address: *const (), name: &[u8]) -> Option<&'static Row> {
        let mut rows = self
            .rows
            .iter()
            .filter(|row| core::ptr::eq(row.slot.known(), address));
        let first = rows.next()?;
        let same_name = |row: &&Row| row.name.to_bytes() == name;
        core::iter::once(first)
            .chain(rows)
            .find(same_name)
            .or(Some(first))
    }

    /// A function without a row.
    pub(crate) fn function(&self, name: &CStr) -> *mut () {
        let found = self.with_symbols(|symbols| symbols.find(name)).flatten();
        found.unwrap_or(core::ptr::null_mut())
    }

    /// The row that a name is a later or an earlier form of, such as `cuMemAlloc_v9`; `None` for the name of a row.
    pub(crate) fn row_of_form(&self, name: &[u8]) -> Option<&'static Row> {
        let base = base(name);
        // A name without a form of its own is a row's or unknown.
        if base.len() == name.len() || self.row(name).is_some() {
            return None;
        }
        self.relative(name)
    }

    /// A row with the same base.
    pub(crate) fn relative(&self, name: &[u8]) -> Option<&'static Row> {
        let base_of = base(name);
        self.rows.iter().find(|row| {
            let row = row.name.to_bytes();
            // Programs ask for a great many functions, some before each piece of work: most rows differ here.
            row.starts_with(base_of) && base(row) == base_of
        })
    }
}

/// A function's name without what tells its forms apart: `_v2`, `_ptsz`, `_ptds`.
fn base(name: &[u8]) -> &[u8] {
    let name = name
        .strip_suffix(b"_ptsz")
        .or(name.strip_suffix(b"_ptds"))
        .unwrap_or(name);
    let digits = name
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (before, version) = name
        .split_at_checked(name.len().saturating_sub(digits))
        .unwrap_or((name, b""));
    match before.strip_suffix(b"_v") {
        Some(base) if !version.is_empty() => base,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::cuda::CUDA;

    #[test]
    fn forms_of_a_function_have_one_base() {
        for (name, expected) in [
            ("cuMemAlloc", "cuMemAlloc"),
            ("cuMemAlloc_v2", "cuMemAlloc"),
            ("cuMemAlloc_v12", "cuMemAlloc"),
            ("cuMemAllocAsync_ptsz", "cuMemAllocAsync"),
            ("cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD"),
            ("cuMemsetD8", "cuMemsetD8"),
            ("cuMemsetD8_v2", "cuMemsetD8"),
            ("_v2", ""),
            ("_v", "_v"),
            ("2", "2"),
            ("", ""),
        ] {
            assert_eq!(
                core::str::from_utf8(base(name.as_bytes())).unwrap(),
                expected
            );
        }
    }

    #[test]
    fn only_an_unknown_form_is_one() {
        let form = |name: &str| CUDA.row_of_form(name.as_bytes()).map(|row| row.name);
        assert_eq!(form("cuMemAlloc_v9"), Some(c"cuMemAlloc"));
        assert_eq!(form("cuLaunchKernel_v2_ptsz"), Some(c"cuLaunchKernel"));
        for name in [
            "cuMemAlloc",
            "cuMemAlloc_v2",
            "cuMemAllocHost_v2",
            "cuMemAllocX",
        ] {
            assert_eq!(form(name), None, "{name}");
        }
    }
}
