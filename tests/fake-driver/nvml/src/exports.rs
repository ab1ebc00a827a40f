//! The one macro that exports functions of NVML.
//!
//! A row such as
//! ```ignore
//! exports! {
//!     /// How many GPUs the process has.
//!     fn nvmlDeviceGetCount_v2(out: Out<u32>) => session(|session| out.set(session.gpus.len() as u32));
//! }
//! ```
//! makes the function, which counts the call, takes the arguments over and turns the outcome into a code, and compares
//! its signature with NVIDIA's declaration.

use softmig_fake_node::{Function, Slow};

use crate::Outcome;
use crate::session;

/// Counts a call, if there is a node.
pub(crate) fn count(function: &Function) -> Option<Slow> {
    function.count(session::process().ok()?)
}

/// The code that a function returns.
pub(crate) fn code(outcome: Outcome) -> u32 {
    match outcome {
        Ok(()) => softmig_driver_sys::nvml::NVML_SUCCESS,
        Err(code) => code,
    }
}

/// Makes the functions of one topic; see this file's first lines.
macro_rules! exports {
    ($(
        $(#[doc = $doc:literal])*
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) => $body:expr;
    )*) => {$(
        $(#[doc = $doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($arg: <$type as softmig_fake_node::edge::Edge>::Raw),*
        ) -> softmig_driver_sys::nvml::nvmlReturn_t {
            static FUNCTION: softmig_fake_node::Function =
                softmig_fake_node::Function::new(stringify!($name));
            let _slow = $crate::exports::count(&FUNCTION);
            $(
                // SAFETY: who calls a function of NVML gives it what its manual says, or null.
                let $arg = unsafe { <$type as softmig_fake_node::edge::Edge>::from_raw($arg) };
            )*
            $crate::exports::code($body)
        }

        const _: unsafe extern "C" fn(
            $(<$type as softmig_fake_node::edge::Edge>::Raw),*
        ) -> softmig_driver_sys::nvml::nvmlReturn_t = softmig_driver_sys::nvml::$name;
    )*};
}

pub(crate) use exports;
