//! The functions that programs call in the driver's place, made from the list of the driver's functions.

#![expect(unsafe_code, reason = "called by C")]

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
/// fn cuMemFree_v2(pointer: CUdeviceptr) -> CUresult { alloc::free(pointer) }
/// ```
///
/// of the list becomes
///
/// ```text
/// #[no_mangle]
/// pub unsafe extern "C" fn cuMemFree_v2(pointer: CUdeviceptr) -> CUresult {
///     if gate::refuses(c"cuMemFree_v2") {
///         return CUDA.denied;
///     }
///     let result = alloc::free(pointer, || real::cuMemFree_v2(pointer));
///     pacing::seat_contexts();
///     result
/// }
/// ```
///
/// The handler, a safe function, is between the braces; with `;` in their place the driver alone answers. Handlers get values, and
/// last the call of the driver's function. Addresses come to them checked ([`args`](crate::driver::args)):
///
/// | form | what the handler gets |
/// |---|---|
/// | `f[place](bytes)` | `place`, `bytes`, and the call |
/// | `f(bytes) giving out` | what the driver [gives](crate::driver::args::Given) at `out`, `bytes`, and the call |
/// | `f(bytes) copying description` | a copy of the description, `bytes`, and the call with this copy, which no other thread of the program changes meanwhile. Where `giving` is too, what the driver gives comes first |
/// | `f(device) with [count, list]` | `count`, `list`, `device`, and the call, which takes other places for `count` and `list` |
/// | `f(form(stream))` | the stream, of a function that has two names as the form that was called names it, and the call |
/// | `gives f[in](stream)` | `in` and `stream`: it makes the [item](crate::launch::copies::Item) that the call gives a stream |
macro_rules! export {
    ($library:ident, $sys:ident; $( $family:ident { $(
        fn $name:ident $arguments:tt $(and $second:ident)? -> $result:ident $handler:tt
    )* } )*) => {
        use softmig_driver_sys::$sys::*;

        /// The functions that programs call.
        #[allow(non_snake_case, unsafe_code, clippy::missing_safety_doc, clippy::too_many_arguments, reason = "the driver's names and contracts")]
        mod exported {
            use super::*;
            $($(
                export!(@export $library $family plain $name $arguments $result $handler);
                $( export!(@export $library $family per_thread $second $arguments $result $handler); )?
            )*)*
        }

        /// Each of them, in the order of the rows.
        pub(super) static EXPORTS: &[$crate::exports::table::Export] = &[
            $($(
                $crate::exports::table::Export(exported::$name as *const ()),
                $( $crate::exports::table::Export(exported::$second as *const ()), )?
            )*)*
        ];
    };
    (
        @export $library:ident $family:ident $form:ident
        $name:ident ($($argument:ident: $kind:ty),*) $result:ident $handler:tt
    ) => {
        #[cfg_attr(panic = "abort", unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            #[allow(dead_code, reason = "not for all functions")]
            fn form(stream: softmig_driver_sys::cuda::CUstream) -> $crate::driver::stream::Stream {
                $crate::driver::stream::Stream::$form(stream)
            }
            if Family::$family.is_gated() && $crate::identity::gate::refuses(c_name!($name)) {
                return $library.denied;
            }
            let result = export!(@answer $name ($($argument),*) $handler);
            if Family::$family.follows_context() {
                $crate::pacing::seat_contexts();
            }
            result
        }
    };
    (@answer $name:ident $arguments:tt ;) => {
        export!(@call $name $arguments)
    };
    (@answer $name:ident $arguments:tt {
        gives $($item:ident)::+ $([$($place:ident),*])? ($($value:expr),*)
    }) => {
        $crate::launch::copies::give(
            || $($item)::+($($(export!(@checked $place),)*)? $($value),*),
            || export!(@call $name $arguments),
        )
    };
    (@answer $name:ident $arguments:tt {
        $($handler:ident)::+ ($($value:expr),*) with [$($changed:ident),+]
    }) => {
        $($handler)::+(
            $(export!(@checked $changed),)+
            $($value,)*
            |$($changed),+| {
                $( let $changed = $crate::driver::args::Argument::raw($changed); )+
                export!(@call $name $arguments)
            },
        )
    };
    (@answer $name:ident $arguments:tt {
        $($handler:ident)::+ ($($value:expr),*) $(giving $given:ident)? copying $copied:ident
    }) => {{
        let copy = export!(@checked $copied).get();
        let $copied = $crate::driver::args::copied(copy.as_ref(), $copied);
        export!(@answer $name $arguments { $($handler)::+ [$copied] ($($value),*) $(giving $given)? })
    }};
    (@answer $name:ident $arguments:tt {
        $($handler:ident)::+ $([$place:ident])? ($($value:expr),*) giving $given:ident
    }) => {{
        let given = export!(@checked $given).given();
        let $given = given.place();
        $($handler)::+(
            &given,
            $(export!(@checked $place),)?
            $($value,)*
            || given.passed_on(export!(@call $name $arguments)),
        )
    }};
    (@answer $name:ident $arguments:tt {
        $($handler:ident)::+ $([$($place:ident),*])? ($($value:expr),*)
    }) => {
        $($handler)::+(
            $($(export!(@checked $place),)*)?
            $($value,)*
            || export!(@call $name $arguments),
        )
    };
    (@checked $place:ident) => {
        // SAFETY: the program's argument, for which it keeps the driver's contract.
        unsafe { $crate::driver::args::Pointer::checked($place) }
    };
    (@call $name:ident ($($argument:ident),*)) => {
        // SAFETY: the program's arguments, for which it keeps the driver's contract.
        unsafe { real::$name($($argument),*) }
    };
}

pub(super) use export;
