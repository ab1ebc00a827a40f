//! libsoftmig.so: sits in every process of a node through `/etc/ld.so.preload` and holds those that use a GPU to
//! their job's slice.
//!
//! The rooms, each of which imports only from those before it:
//!
//! - [`os`]: the kernel, the C library and the process itself.
//! - [`driver`]: NVIDIA's two libraries.
//! - [`identity`]: whose process this is.
//! - [`ledger`]: the memory that the process's job holds.
//! - [`pacing`]: the GPU's time that it may have.
//! - [`memory`], [`launch`], [`views`]: the handlers of functions that take memory, give work and show figures.
//! - [`exports`]: what programs call.
//!
//! One call, followed through the files:
//!
//! 1. A program looks up `cuMemAlloc_v2`. Linked directly it finds the export of [`exports::cuda`]; by `dlsym` it comes to
//!    [`exports::dlsym`], by `cuGetProcAddress` to [`exports::proc_address`], and both give it the same export.
//! 2. It calls it. The export is made by [`exports::table`] from one line of [`driver::cuda`], as are all others, and calls the
//!    handler that [`driver::cuda`] names.
//! 3. [`identity::gate`] says whether the call may go on. The first time it asks [`softmig_policy::node::identity`] whose process this
//!    is, which reads what [`identity::host`] finds; afterwards that is one load and one comparison.
//! 4. [`driver::library`] has found the driver's own function, which is called with the same arguments.
//! 5. Messages go to the job's log: [`identity::log`].
//!
//! `unsafe` code is in few files, each of which says why at its beginning; the lint `unsafe_code` denies it elsewhere.
//! In a process that makes no call to the driver nothing runs but the look of [`exports::load`] at its start, and its `dlsym` and
//! `ioctl`, which pass through [`exports::dlsym`] and [`exports::ioctl`].
//!
//! Under the profile `hook` this is a library without std that cannot panic; under every other one it is an ordinary
//! crate that exports nothing, so that it can be tested.

#![cfg_attr(panic = "abort", no_std)]
#![deny(
    unsafe_code,
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "a test that fails says so"
    )
)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "nothing here is public: read it with `cargo doc --document-private-items`"
)]
#![cfg_attr(
    not(panic = "abort"),
    allow(dead_code, reason = "what only the exports use")
)]

#[cfg(not(target_os = "linux"))]
compile_error!("the hook lives in the dynamic loader of GNU/Linux");

mod driver;
mod exports;
mod identity;
mod launch;
mod ledger;
mod memory;
mod os;
mod pacing;
mod views;

/// Cannot be reached: `abort` is then not among the library's undefined symbols, which `cargo xtask gates` checks.
#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    os::abort()
}
