//! Functions as a driver of the future has them: they work, but no name leads to their addresses.
//!
//! One is a detour to the function as it is. It passes on more arguments than any function has, all of them words, so
//! one detour fits all: what a function does not take, it does not read.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use softmig_driver_sys::cuda::CUresult;

/// How many there can be at a time.
const FORMS: usize = 8;

/// Where each leads to.
static TARGETS: [AtomicUsize; FORMS] = [const { AtomicUsize::new(0) }; FORMS];

/// As many words as the longest list of arguments of a function has, the handle of `cuIpcOpenMemHandle` included.
type Words = unsafe extern "C" fn(
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
) -> CUresult;

/// Points the detour of this number at `own` and returns it; `None` if the number is too large.
pub(crate) fn form(number: usize, own: *const c_void) -> Option<*const c_void> {
    // Relaxed: the address of a function is the same for all.
    TARGETS.get(number)?.store(own as usize, Ordering::Relaxed);
    let detours: [Words; FORMS] = [
        detour::<0>,
        detour::<1>,
        detour::<2>,
        detour::<3>,
        detour::<4>,
        detour::<5>,
        detour::<6>,
        detour::<7>,
    ];
    detours.get(number).map(|detour| *detour as *const c_void)
}

unsafe extern "C" fn detour<const N: usize>(
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
    g: usize,
    h: usize,
    i: usize,
    j: usize,
    k: usize,
    l: usize,
    m: usize,
    n: usize,
) -> CUresult {
    let target = TARGETS
        .get(N)
        .map_or(0, |target| target.load(Ordering::Relaxed));
    let target: *const c_void = std::ptr::with_exposed_provenance(target);
    // SAFETY: `form` entered a function of this library before it gave this address away. It takes words, and fewer.
    let function: Words = unsafe { std::mem::transmute(target) };
    // SAFETY: the caller knows what the function takes; what is beyond that is on the caller's stack, and not read.
    unsafe { function(a, b, c, d, e, f, g, h, i, j, k, l, m, n) }
}
