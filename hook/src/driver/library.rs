//! The driver's libraries, and where their functions are.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};

use super::table::{Row, Slot};
use crate::os::elf::Symbols;
use crate::os::{Errno, glibc};

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
    pub(super) resolved: AtomicBool,
}

/// Whether a library may be loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loading {
    /// A program that calls one of its functions has a right to it.
    IfNeeded,
    /// A program that only asks must not notice.
    Never,
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
        self.resolve(Loading::IfNeeded);
        slot.known()
    }

    /// The row with this name.
    pub(crate) fn row(&self, name: &[u8]) -> Option<&'static Row> {
        self.rows.iter().find(|row| row.name.to_bytes() == name)
    }

    /// Finds the driver's functions, all at once; true when the library is there. Threads may do this at the same
    /// time: they find the same.
    pub(crate) fn resolve(&self, loading: Loading) -> bool {
        // Acquire: the slots hold what was stored before.
        if self.resolved.load(Ordering::Acquire) {
            return true;
        }
        let _errno = Errno::save();
        if loading == Loading::Never && !self.is_loaded() {
            return false;
        }
        // Pins what is there: a program may unload it while we hold addresses.
        if glibc::dlopen(self.soname).is_null() {
            return false;
        }
        let found = self.with_symbols(|symbols| {
            for row in self.rows {
                row.slot
                    .set(symbols.find(row.name).unwrap_or(core::ptr::null_mut()));
            }
        });
        if found.is_some() {
            // Release: see above.
            self.resolved.store(true, Ordering::Release);
        }
        found.is_some()
    }

    fn is_loaded(&self) -> bool {
        self.with_symbols(|_| ()).is_some()
    }

    /// Calls `use_them` with the library's symbols, if the program has loaded it: in its own namespace of the loader,
    /// the first one of this name.
    fn with_symbols<T>(&self, mut use_them: impl FnMut(&Symbols) -> T) -> Option<T> {
        let mut used = None;
        glibc::each_object(|object| {
            if let Some(symbols) = object.symbols().filter(|symbols| self.is_named(symbols)) {
                used = Some(use_them(&symbols));
            }
            used.is_none()
        });
        used
    }

    /// Whether an object is this library, or a copy of it, whatever its file is called.
    pub(crate) fn is_named(&self, symbols: &Symbols) -> bool {
        symbols.soname() == Some(self.soname)
    }

    /// The answer in the place of a function that is not there.
    #[cold]
    pub(crate) fn absence(&self) -> u32 {
        if self.resolved.load(Ordering::Acquire) {
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
