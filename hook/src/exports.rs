//! What programs come to: the exported functions and the ways to look them up.
//!
//! - [`dlsym`]: by `dlsym` and `dlvsym`; their entries are written for each processor ([`dlsym_x86_64`]).
//! - [`proc_address`]: by `cuGetProcAddress`.

pub(crate) mod dlsym;
#[cfg(target_arch = "x86_64")]
mod dlsym_x86_64;
pub(crate) mod proc_address;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("no dlsym for this processor yet: add a file like hook/src/exports/dlsym_x86_64.rs");
