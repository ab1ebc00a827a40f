//! The driver's two libraries, and where their functions are.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use softmig_driver_sys::{cuda, nvml};

use crate::glibc;
use crate::os::Errno;
use crate::rows;
use crate::table::Row;

/// One of the driver's libraries.
pub(crate) struct Library {
    soname: &'static CStr,
    rows: &'static [Row],
    /// What a function says where the library cannot be had.
    no_library: u32,
    /// What it says where the library has no such function.
    no_function: u32,
    /// What it says to a process that gets no GPU.
    pub(crate) denied: u32,
    resolved: AtomicBool,
}

/// libcuda.
pub(crate) static CUDA: Library = Library {
    soname: c"libcuda.so.1",
    rows: rows::cuda::ROWS,
    no_library: cuda::CUDA_ERROR_NO_DEVICE,
    no_function: cuda::CUDA_ERROR_NOT_FOUND,
    denied: cuda::CUDA_ERROR_NO_DEVICE,
    resolved: AtomicBool::new(false),
};

/// NVML.
pub(crate) static NVML: Library = Library {
    soname: c"libnvidia-ml.so.1",
    rows: rows::nvml::ROWS,
    no_library: nvml::NVML_ERROR_LIBRARY_NOT_FOUND,
    no_function: nvml::NVML_ERROR_FUNCTION_NOT_FOUND,
    denied: nvml::NVML_ERROR_DRIVER_NOT_LOADED,
    resolved: AtomicBool::new(false),
};

/// Both.
pub(crate) static LIBRARIES: [&Library; 2] = [&CUDA, &NVML];

/// Whether a library may be loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loading {
    /// A program that calls one of its functions has a right to it.
    IfNeeded,
    /// A program that only asks must not notice.
    Never,
}

impl Library {
    /// The row with this name.
    pub(crate) fn row(&self, name: &[u8]) -> Option<&'static Row> {
        self.rows.iter().find(|row| row.name.to_bytes() == name)
    }

    /// Its rows.
    pub(crate) fn rows(&self) -> &'static [Row] {
        self.rows
    }

    /// The handle of the library, which from then on stays loaded: a program may unload it while we hold addresses.
    /// Null where there is none.
    pub(crate) fn handle(&self, loading: Loading) -> *mut c_void {
        let flags = match loading {
            Loading::IfNeeded => 0,
            Loading::Never => libc::RTLD_NOLOAD,
        };
        glibc::dlopen(self.soname, flags)
    }

    /// Finds the driver's functions, all at once; true when the library is there. Threads may do this at the same
    /// time: they find the same.
    pub(crate) fn resolve(&self, loading: Loading) -> bool {
        // Acquire: the slots hold what was stored before.
        if self.resolved.load(Ordering::Acquire) {
            return true;
        }
        let _errno = Errno::save();
        let handle = self.handle(loading);
        if handle.is_null() {
            return false;
        }
        for row in self.rows {
            // SAFETY: an open handle, and a name that ends in a zero byte.
            let address = unsafe { glibc::dlsym(handle, row.name.as_ptr()) };
            row.slot.set(address.cast());
        }
        // Release: see above.
        self.resolved.store(true, Ordering::Release);
        true
    }

    /// What to answer in the place of a function that is not there.
    #[cold]
    pub(crate) fn absence(&self) -> u32 {
        if self.resolved.load(Ordering::Acquire) {
            self.no_function
        } else {
            self.no_library
        }
    }

    /// The row whose function in the driver this is, preferably the one with this name: two names may be one function.
    pub(crate) fn row_at(&self, address: *const (), name: &[u8]) -> Option<&'static Row> {
        let is_at = |row: &&Row| core::ptr::eq(row.slot.known(), address);
        let same_name = self.row(name).filter(is_at);
        same_name.or_else(|| self.rows.iter().find(is_at))
    }

    /// A function that is no row.
    pub(crate) fn function(&self, name: &CStr) -> *mut () {
        let handle = self.handle(Loading::Never);
        if handle.is_null() {
            return core::ptr::null_mut();
        }
        // SAFETY: an open handle, and a name that ends in a zero byte.
        let address = unsafe { glibc::dlsym(handle, name.as_ptr()) };
        address.cast()
    }

    /// Whether an object is another copy of this library, by the name of its file.
    pub(crate) fn is_copy(&self, path: &CStr) -> bool {
        let file = path
            .to_bytes()
            .rsplit(|&byte| byte == b'/')
            .next()
            .unwrap_or_default();
        let without_version = self
            .soname
            .to_bytes()
            .strip_suffix(b".1")
            .unwrap_or_default();
        file.starts_with(without_version)
    }
}
