//! What programs call in the driver's place, made of the list of its functions.

use super::{cuda, nvml};
use crate::driver::library::Library;
use crate::driver::nvml::NVML;
use crate::driver::table::Row;

/// The address of an export.
pub(super) struct Export(pub(super) *const ());

// SAFETY: the address of code.
unsafe impl Sync for Export {}

/// The export in the place of a row's function.
pub(super) fn ours(library: &Library, row: &Row) -> *const () {
    let exports = if core::ptr::eq(library, &NVML) {
        nvml::EXPORTS
    } else {
        cuda::EXPORTS
    };
    let export = library.number(row).and_then(|number| exports.get(number));
    export.map_or(core::ptr::null(), |export| export.0)
}

/// Makes the exports of one library, in the order of its rows. The line
///
/// ```text
/// fn cuMemFree_v2(dptr: CUdeviceptr) -> CUresult;
/// ```
///
/// of the list becomes
///
/// ```text
/// #[no_mangle]
/// pub unsafe extern "C" fn cuMemFree_v2(dptr: CUdeviceptr) -> CUresult {
///     if gate::refuses(c"cuMemFree_v2") {
///         return CUDA.denied;
///     }
///     handlers::cuMemFree_v2(dptr)
/// }
/// ```
///
/// With `as item` after the result, the call gives a stream that [item](crate::launch::copies::Item).
macro_rules! export {
    ($library:ident, $sys:ident; $( $family:ident { $(
        fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty $(as $item:expr)?;
    )* } )*) => {
        use softmig_driver_sys::$sys::*;

        /// What programs call.
        #[allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments, reason = "the driver's names and contracts")]
        mod export {
            use super::*;
            $($(
                #[cfg_attr(panic = "abort", unsafe(no_mangle))]
                pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
                    if Family::$family.is_gated() && $crate::identity::gate::refuses(c_name!($name)) {
                        return $library.denied;
                    }
                    // SAFETY: the program's arguments, for which it keeps the driver's contract.
                    let answer = || unsafe { handlers::$name($($argument),*) };
                    export!(@given answer $($item)?)
                }
            )*)*
        }

        /// Each of them, in the order of the rows.
        pub(super) static EXPORTS: &[$crate::exports::table::Export] = &[
            $($( $crate::exports::table::Export(export::$name as *const ()), )*)*
        ];
    };
    (@given $answer:ident) => { $answer() };
    (@given $answer:ident $item:expr) => { $crate::launch::copies::give(|| $item, $answer) };
}

pub(super) use export;
