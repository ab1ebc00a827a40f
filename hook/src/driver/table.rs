//! The functions of the driver: what a row is, and the macros that make them from lists.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// What a function is for, which says what to do with a form of it that nobody knows yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Finds other functions. A process without a GPU may still look for them, so the gate lets it through.
    Lookup,
    /// Where a program begins.
    Entry,
    /// Contexts: they take memory.
    Context,
    /// Takes or gives back device memory.
    Memory,
    /// Gives work to the GPU.
    Launch,
    /// Copies and fills, which take its time.
    Copy,
    /// Keeps a stream waiting.
    Pause,
    /// Begins or ends the capture of a stream.
    Capture,
    /// Waits for the GPU's work, or ends a stream of it.
    Wait,
    /// Shows figures.
    View,
}

impl Family {
    /// Whether a form that the hook does not know is refused where limits hold: it would take what nobody counts.
    pub(crate) const fn is_limited(self) -> bool {
        matches!(self, Self::Memory | Self::Launch)
    }

    /// Whether a process that gets no GPU is refused.
    pub(crate) const fn is_gated(self) -> bool {
        !matches!(self, Self::Lookup)
    }
}

/// Where the driver's own function is, once known.
pub(crate) struct Slot(AtomicPtr<()>);

impl Slot {
    /// Not known yet.
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// What is known; null for nothing.
    pub(crate) fn known(&self) -> *mut () {
        // Acquire: whoever finds the address also finds the library as the thread that loaded it left it.
        self.0.load(Ordering::Acquire)
    }

    /// Remembers the address.
    pub(crate) fn set(&self, address: *mut ()) {
        // Release: see above.
        self.0.store(address, Ordering::Release);
    }
}

/// One function that the hook exports in the driver's place.
pub(crate) struct Row {
    /// Its name.
    pub(crate) name: &'static CStr,
    /// What it is for.
    pub(crate) family: Family,
    /// The driver's own.
    pub(crate) slot: &'static Slot,
}

/// Makes the driver's own functions and the rows of one library. The list
///
/// ```text
/// CUDA, cuda;
///     Memory {
///         fn cuMemFree_v2(dptr: CUdeviceptr) -> CUresult;
///     }
/// ```
///
/// becomes a check against the header's declaration, and
///
/// ```text
/// pub(crate) mod real {
///     /// The driver's own function.
///     pub(crate) unsafe fn cuMemFree_v2(dptr: CUdeviceptr) -> CUresult { /* through its slot */ }
/// }
/// pub(crate) static ROWS: &[Row] = &[.., Row { name: c"cuMemFree_v2", .. }];
/// ```
macro_rules! declare {
    ($library:ident, $sys:ident; $( $family:ident { $(
        fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty $(as $item:expr)?;
    )* } )*) => {
        use softmig_driver_sys::$sys::*;

        use $crate::driver::table::{Family, Row};

        /// Where the driver's functions are.
        #[allow(non_upper_case_globals, reason = "the driver's names")]
        mod slot {
            use $crate::driver::table::Slot;
            $($( pub(super) static $name: Slot = Slot::new(); )*)*
        }

        /// The driver's own functions.
        #[allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments, reason = "the driver's names and contracts")]
        pub(crate) mod real {
            use super::*;
            $($(
                #[inline]
                pub(crate) unsafe fn $name($($argument: $kind),*) -> $result {
                    let address = $library.address(&slot::$name);
                    if address.is_null() {
                        return $library.absence();
                    }
                    // SAFETY: the driver's function of this name: the check below compares the header's signature.
                    let function = unsafe {
                        core::mem::transmute::<*mut (), unsafe extern "C" fn($($kind),*) -> $result>(address)
                    };
                    // SAFETY: the program's arguments, for which it keeps the driver's contract.
                    unsafe { function($($argument),*) }
                }
            )*)*
        }

        // The header's declarations: one that differs from its row does not compile.
        $($( const _: unsafe extern "C" fn($($kind),*) -> $result = softmig_driver_sys::$sys::$name; )*)*

        /// Every function that is exported in this library's place.
        pub(crate) static ROWS: &[Row] = &[
            $($( Row {
                name: c_name!($name),
                family: Family::$family,
                slot: &slot::$name,
            }, )*)*
        ];
    };
}

/// Makes functions that the hook calls and does not export: each line becomes a function that calls the driver's own.
macro_rules! ask {
    ($library:ident, $sys:ident; $(
        fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty;
    )*) => {
        use softmig_driver_sys::$sys::*;
        use $crate::driver::table::c_name;

        $(
            /// The driver's.
            #[allow(non_snake_case, clippy::missing_safety_doc, reason = "the driver's names and contracts")]
            #[inline(never)]
            pub(crate) unsafe fn $name($($argument: $kind),*) -> $result {
                static SLOT: $crate::driver::table::Slot = $crate::driver::table::Slot::new();
                let library = &$library;
                let mut address = SLOT.known();
                if address.is_null() {
                    address = library.function(c_name!($name));
                    SLOT.set(address);
                }
                if address.is_null() {
                    return library.absence();
                }
                // SAFETY: the driver's function of this name: the check below compares the header's signature.
                let function = unsafe {
                    core::mem::transmute::<*mut (), unsafe extern "C" fn($($kind),*) -> $result>(address)
                };
                // SAFETY: the caller keeps the driver's contract.
                unsafe { function($($argument),*) }
            }
            const _: unsafe extern "C" fn($($kind),*) -> $result = softmig_driver_sys::$sys::$name;
        )*
    };
}

/// An identifier as text for C.
macro_rules! c_name {
    ($name:ident) => {
        const {
            match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes())
            {
                Ok(name) => name,
                Err(_) => c"",
            }
        }
    };
}

pub(crate) use {ask, c_name, declare};
