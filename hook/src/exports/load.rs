//! The code that runs when the library is loaded: a look at the loader's list.
//!
//! A library before this one in that list, or one that audits the loader, can hide the driver's functions from this one. In a job
//! with limits such a process gets no GPU.

#![expect(unsafe_code, reason = "called by the loader")]

use core::ffi::{CStr, c_char, c_int};

use softmig_policy::node::identity::{Finding, ProcessRules, Reason};

use crate::driver::cuda::CUDA;
use crate::driver::nvml::NVML;
use crate::identity::gate;
use crate::identity::log;
use crate::identity::message::{Message, Why};
use crate::os::elf::Symbols;
use crate::os::load_order::Start;
use crate::os::{Errno, seccomp};

/// The functions that lead to the driver's, and those by which this library asks the kernel.
const OTHERS: [&CStr; 4] = [c"dlsym", c"dlvsym", c"syscall", c"getauxval"];

/// The loader calls this, as it does every library's initializer.
#[cfg(panic = "abort")]
#[used]
#[unsafe(link_section = ".init_array")]
static INITIALIZER: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = look;

/// Linkers put this section before all other code: beside what the loader reads of this library anyway. Elsewhere it would be
/// another page fault in every process.
///
/// # Safety
///
/// The loader calls it.
#[unsafe(link_section = ".init")]
unsafe extern "C" fn look(
    count: c_int,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    // SAFETY: an initializer's arguments.
    let start = unsafe { Start::read(count, arguments, environment) };
    if let Some(start) = start
        && !start.is_plain()
    {
        look_again(&start);
    }
}

#[cold]
#[inline(never)]
fn look_again(start: &Start) {
    // The loader leaves no other library in a program with more rights than its user's.
    if start.is_secure {
        return;
    }
    let _errno = Errno::save();
    let hidden_by = match start.find_before(hides_functions) {
        Some(b"libsoftmig.so") => b"another libsoftmig.so",
        Some(file) => file,
        None if start.is_audited() => b"LD_AUDIT",
        None => return,
    };
    gate::with_finding(|finding| {
        // The user's own limits are theirs to get round, and a job without limits may be one without GPUs.
        let has_limits = match finding.standing {
            ProcessRules::Job(_) => true,
            ProcessRules::Denied(why) => why != Reason::NoConf,
            _ => false,
        };
        if has_limits {
            take_away(finding, hidden_by);
        }
    });
}

/// Whether a library has a function that this one exports, or needs.
fn hides_functions(symbols: &Symbols) -> bool {
    let rows = CUDA.rows.iter().chain(NVML.rows);
    let mut names = OTHERS.into_iter().chain(rows.map(|row| row.name));
    names.any(|name| symbols.defines(name))
}

/// Keeps the process from the GPU, or says that this would be done on a node that only observes.
fn take_away(finding: &Finding, hidden_by: &[u8]) {
    if !finding.observe && seccomp::keep_from_driver().is_err() {
        return log::say(finding, &Message::NotKeptAway(hidden_by));
    }
    gate::count(finding, c"the GPU", Why::HiddenBy(hidden_by));
}
