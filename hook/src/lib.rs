//! libsoftmig.so: sits in every process of a node through `/etc/ld.so.preload` and holds those that use a GPU to
//! their job's slice.
//!
//! One call, followed through the files:
//!
//! 1. A program looks up `cuMemAlloc_v2`. Linked directly it finds the export of [`rows::cuda`]; by `dlsym` it comes to
//!    [`symbols`], by `cuGetProcAddress` to [`proc_address`], and both give it the same export.
//! 2. It calls it. The export is made by [`table`] from one line of [`rows::cuda`], as are all others.
//! 3. [`gate`] says whether the call may go on. The first time it asks [`place`] whose process this is, which reads
//!    what [`node`] finds; afterwards that is one load and one comparison.
//! 4. [`driver`] has found the driver's own function, which is called with the same arguments.
//! 5. What there is to say goes to the job's log: [`report`].
//!
//! All that is `unsafe` is in [`channels`], [`objects`], [`glibc`], [`driver`], [`symbols`], [`os`], the macro in [`table`], [`arch`] and at the
//! edge of handlers. Nothing runs when the library is loaded, and nothing at all in a process that makes no call to
//! the driver, except that its `dlsym` passes through [`symbols`] and its `ioctl` through [`channels`].
//!
//! Under the profile `hook` this is a library without std that cannot panic; under every other one it is an ordinary
//! crate that exports nothing, so that it can be tested.

#![cfg_attr(panic = "abort", no_std)]
#![deny(
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

mod account;
mod arch;
mod channels;
mod compute;
mod driver;
mod entry;
mod gate;
mod glibc;
mod in_stream;
mod launches;
mod memory;
mod node;
mod objects;
mod once;
mod os;
mod place;
mod proc_address;
mod report;
mod rows;
mod symbols;
mod table;
mod text;
mod views;
mod waits;

/// Cannot be reached: `abort` is then not among the library's undefined symbols, which `cargo xtask gates` checks.
#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: takes no argument and does not return.
    unsafe { libc::abort() }
}
