//! The functions of the driver: what a row is, and the macros that make them from lists.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The purpose of a function, which decides what happens to an unknown form of it.
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
    /// Begins or ends the capture of a stream, or lets one join.
    Capture,
    /// Ends a stream.
    Wait,
    /// Shows figures.
    View,
}

impl Family {
    /// Whether a form that the hook does not know is refused where limits hold: what it takes would not be counted.
    pub(crate) const fn is_limited(self) -> bool {
        matches!(self, Self::Memory | Self::Launch)
    }

    /// Whether a call may be the first that is seen with a new context.
    pub(crate) const fn follows_context(self) -> bool {
        matches!(self, Self::Context | Self::Memory)
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

    /// The address, if it is known; else null.
    pub(crate) fn known(&self) -> *mut () {
        // Acquire: a thread that finds the address also finds the library as the thread that loaded it left it.
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
    /// Its family.
    pub(crate) family: Family,
    /// The driver's own.
    pub(crate) slot: &'static Slot,
}

/// Makes the driver's own functions and the rows of one library. The list
///
/// ```text
/// CUDA, cuda;
///     Memory {
///         fn cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream) and cuMemFreeAsync_ptsz -> CUresult
///             { alloc::free_later(pointer) }
///     }
/// ```
///
/// becomes, for each of the names, a check against the header's declaration, and
///
/// ```text
/// pub(crate) mod real {
///     /// The driver's own function.
///     pub(crate) unsafe fn cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream) -> CUresult { /* through its slot */ }
/// }
/// pub(crate) static ROWS: &[Row] = &[.., Row { name: c"cuMemFreeAsync", .. }];
/// ```
///
/// A second name is the function's form for the default stream of each thread. The handler is for the exports.
macro_rules! declare {
    ($library:ident, $sys:ident; $( $family:ident { $(
        fn $name:ident $arguments:tt $(and $second:ident)? -> $result:ident $handler:tt
    )* } )*) => {
        use softmig_driver_sys::$sys::*;

        use $crate::driver::table::{Family, Row};

        /// Where the driver's functions are.
        #[allow(non_upper_case_globals, reason = "the driver's names")]
        mod slot {
            use $crate::driver::table::Slot;
            $($(
                pub(super) static $name: Slot = Slot::new();
                $( pub(super) static $second: Slot = Slot::new(); )?
            )*)*
        }

        /// The driver's own functions.
        #[allow(non_snake_case, unsafe_code, clippy::missing_safety_doc, clippy::too_many_arguments, reason = "the driver's names and contracts")]
        pub(crate) mod real {
            use super::*;
            $($(
                declare!(@real $library $name $arguments $result);
                $( declare!(@real $library $second $arguments $result); )?
            )*)*
        }

        // The header's declarations: one that differs from its row does not compile.
        $($(
            declare!(@check $sys $name $arguments $result);
            $( declare!(@check $sys $second $arguments $result); )?
        )*)*

        /// Every function that is exported in this library's place.
        pub(crate) static ROWS: &[Row] = &[
            $($(
                Row { name: c_name!($name), family: Family::$family, slot: &slot::$name },
                $( Row { name: c_name!($second), family: Family::$family, slot: &slot::$second }, )?
            )*)*
        ];
    };
    (@real $library:ident $name:ident ($($argument:ident: $kind:ty),*) $result:ident) => {
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
    };
    (@check $sys:ident $name:ident ($($argument:ident: $kind:ty),*) $result:ident) => {
        const _: unsafe extern "C" fn($($kind),*) -> $result = softmig_driver_sys::$sys::$name;
    };
}

/// Makes functions that the hook calls and does not export: each line becomes a function that calls the driver's own. Its
/// arguments are values, handles of the driver's and references, so the call is safe.
macro_rules! ask {
    ($library:ident, $sys:ident; $(
        fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty;
    )*) => {
        use softmig_driver_sys::$sys::*;
        use $crate::driver::table::c_name;

        $(
            /// Calls the driver's own function.
            #[allow(non_snake_case, unsafe_code, reason = "the driver's names")]
            #[inline(never)]
            pub(crate) fn $name($($argument: $kind),*) -> $result {
                static SLOT: $crate::driver::table::Slot = $crate::driver::table::Slot::new();
                let library = &$library;
                let mut address = SLOT.known();
                if address.is_null() {
                    // Before, another copy may come to be used.
                    let is_final = library.is_initialized();
                    address = library.function(c_name!($name));
                    if is_final {
                        SLOT.set(address);
                    }
                }
                if address.is_null() {
                    return library.absence();
                }
                // SAFETY: the driver's function of this name: the check below compares the header's signature.
                let function = unsafe {
                    core::mem::transmute::<*mut (), unsafe extern "C" fn($(<$kind as Argument>::Raw),*) -> $result>(address)
                };
                // SAFETY: references are valid, and handles are the driver's or the program's, which the driver checks.
                unsafe { function($($argument.raw()),*) }
            }
            const _: unsafe extern "C" fn($(<$kind as Argument>::Raw),*) -> $result = softmig_driver_sys::$sys::$name;
        )*
    };
}

/// Makes safe functions, as [`ask`] does, of those that the hook calls and exports as well.
macro_rules! ask_exported {
    ($real:path; $(
        fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty;
    )*) => {
        $(
            /// Asks the exported function of the driver.
            #[allow(non_snake_case, unsafe_code, reason = "the driver's names")]
            #[inline]
            pub(crate) fn $name($($argument: $kind),*) -> $result {
                use $real as real;
                // SAFETY: references are valid, and handles are the driver's or the program's, which the driver checks.
                unsafe { real::$name($($argument.raw()),*) }
            }
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

pub(crate) use {ask, ask_exported, c_name, declare};
