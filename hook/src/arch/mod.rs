//! What is particular to a processor: one file each.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{MANY_TICKS, SOME_TICKS, dlsym, dlvsym, ticks};

#[cfg(not(target_arch = "x86_64"))]
compile_error!("no dlsym for this processor yet: add a file like hook/src/arch/x86_64.rs");
