//! The functions that the library exports to programs, and the ways to look them up.
//!
//! - [`cuda`], [`nvml`]: the exports, and which function answers each.
//! - [`mod@table`]: the macro that makes them.
//! - [`init`]: what answers `cuInit`.
//! - [`load`]: runs when a process starts, and looks whether another library can hide the driver from this one.
//! - [`ioctl`]: shows [`crate::pacing::channels`] what the driver makes.
//! - [`dlsym`]: by `dlsym` and `dlvsym`; their entries are written for each processor ([`dlsym_x86_64`]).
//! - [`proc_address`]: by `cuGetProcAddress`.

pub(crate) mod cuda;
pub(crate) mod dlsym;
#[cfg(target_arch = "x86_64")]
mod dlsym_x86_64;
pub(crate) mod init;
pub(crate) mod ioctl;
pub(crate) mod load;
pub(crate) mod nvml;
pub(crate) mod proc_address;
pub(crate) mod table;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("no dlsym for this processor yet: add a file like hook/src/exports/dlsym_x86_64.rs");
