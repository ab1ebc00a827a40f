//! The one macro that exports functions of the driver, with the rows of `cuGetProcAddress`.
//!
//! A row such as
//! ```ignore
//! exports! {
//!     static SYMBOLS;
//!     /// Whether all work is done.
//!     fn cuStreamQuery [cuStreamQuery 2000], cuStreamQuery_ptsz [7000] (stream: CUstream) |per_thread| =>
//!         query(stream, per_thread);
//! }
//! ```
//! makes both functions, which count the call, take the arguments over and turn the outcome into a code; compares
//! their signatures with NVIDIA's declaration of the first; and enters them into `SYMBOLS`: `cuGetProcAddress` answers
//! for `cuStreamQuery` with the first from CUDA 2.0 on and, if asked for a default stream per thread, with the second
//! from 7.0 on. `like NAME` before the arguments names another declaration to compare with, `like none` none.

use std::ffi::c_void;

use softmig_fake_node::{Function, Slow};

use crate::entry;

/// A function that the driver exports.
pub(crate) struct Symbol {
    /// Its name without `_v2` and `_ptsz`.
    pub(crate) base: &'static str,
    /// The first CUDA version whose programs use this form.
    pub(crate) since: i32,
    /// Whether it has a default stream for each thread.
    pub(crate) per_thread: bool,
    /// Its address.
    pub(crate) address: fn() -> *const c_void,
}

/// Counts a call, if there is a node.
pub(crate) fn count(function: &Function) -> Option<Slow> {
    function.count(entry::process().ok()?)
}

/// Makes the functions of one topic, row by row; see this file's first lines.
macro_rules! exports {
    (static $table:ident; $($rows:tt)*) => {
        $crate::export::exports!(@row $table [] $($rows)*);
    };
    // Two functions: of the context's default stream, and of the thread's.
    (@row $table:ident [$($symbols:tt)*]
        $(#[doc = $doc:literal])*
        fn $name:ident [$base:ident $since:literal], $thread:ident [$thread_since:literal]
            ($($args:tt)*) |$per_thread:ident| => $body:expr;
        $($rows:tt)*
    ) => {
        $crate::export::export!([$($doc)*] $name [$name] ($($args)*) [$per_thread = false] $body);
        $crate::export::export!([$($doc)*] $thread [$name] ($($args)*) [$per_thread = true] $body);
        $crate::export::exports!(@row $table [
            $($symbols)*
            $crate::export::symbol!($name $base $since false),
            $crate::export::symbol!($thread $base $thread_since true),
        ] $($rows)*);
    };
    // One function, of a signature that is NVIDIA's declaration of another, or of none.
    (@row $table:ident [$($symbols:tt)*]
        $(#[doc = $doc:literal])*
        fn $name:ident [$base:ident $since:literal] like $like:ident ($($args:tt)*) => $body:expr;
        $($rows:tt)*
    ) => {
        $crate::export::export!([$($doc)*] $name [$like] ($($args)*) [] $body);
        $crate::export::exports!(@row $table [
            $($symbols)* $crate::export::symbol!($name $base $since false),
        ] $($rows)*);
    };
    // One function.
    (@row $table:ident [$($symbols:tt)*]
        $(#[doc = $doc:literal])*
        fn $name:ident [$base:ident $since:literal] ($($args:tt)*) => $body:expr;
        $($rows:tt)*
    ) => {
        $crate::export::export!([$($doc)*] $name [$name] ($($args)*) [] $body);
        $crate::export::exports!(@row $table [
            $($symbols)* $crate::export::symbol!($name $base $since false),
        ] $($rows)*);
    };
    (@row $table:ident [$($symbols:tt)*]) => {
        /// The answers of `cuGetProcAddress`.
        pub(crate) static $table: &[$crate::export::Symbol] = &[$($symbols)*];
    };
}

/// Makes one entry of the table.
macro_rules! symbol {
    ($name:ident $base:ident $since:literal $per_thread:literal) => {
        $crate::export::Symbol {
            base: stringify!($base),
            since: $since,
            per_thread: $per_thread,
            address: || $name as *const std::ffi::c_void,
        }
    };
}

/// Makes one function.
macro_rules! export {
    ([$($doc:literal)*] $name:ident [$check:ident] ($($arg:ident: $type:ty),* $(,)?)
        [$($per_thread:ident = $value:literal)?] $body:expr) => {
        $(#[doc = $doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($arg: <$type as softmig_fake_node::edge::Edge>::Raw),*
        ) -> softmig_driver_sys::cuda::CUresult {
            static FUNCTION: softmig_fake_node::Function =
                softmig_fake_node::Function::new(stringify!($name));
            let _slow = $crate::export::count(&FUNCTION);
            $(
                // SAFETY: who calls a function of the driver gives it what its manual says, or null.
                let $arg = unsafe { <$type as softmig_fake_node::edge::Edge>::from_raw($arg) };
            )*
            $(let $per_thread: bool = $value;)?
            $crate::entry::code($body)
        }

        $crate::export::declared!($check ($($type),*));
    };
}

/// Fails to compile where a function is not as NVIDIA declares it.
macro_rules! declared {
    (none $types:tt) => {};
    ($name:ident ($($type:ty),*)) => {
        const _: unsafe extern "C" fn(
            $(<$type as softmig_fake_node::edge::Edge>::Raw),*
        ) -> softmig_driver_sys::cuda::CUresult = softmig_driver_sys::cuda::$name;
    };
}

pub(crate) use {declared, export, exports, symbol};
