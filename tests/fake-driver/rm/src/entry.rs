//! How the monitor's calls come here.

use std::ffi::{CStr, c_char, c_int, c_void};

use softmig_fake_node::kernel::{Answer, answer_calls};

use crate::call;

/// The start of the names of the driver's files.
const DEVICES: &[u8] = b"/dev/nvidia";

/// Runs when the library is loaded.
extern "C" fn begin() {
    // SAFETY: all zero is such a structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = answer;
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the structure is complete.
    let set = unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) };
    if set != 0 || answer_calls(Answer::Signal).is_err() {
        // Then no call gets here, and the monitor finds no driver.
        eprintln!("softmig-fake-rm: this kernel has no filters for system calls");
    }
}

// SAFETY: the section is an array of functions without arguments, which the loader calls.
#[unsafe(link_section = ".init_array")]
#[used]
static BEGIN: extern "C" fn() = begin;

/// A thread has made one of the driver's calls and waits for what comes of it: it is here.
extern "C" fn answer(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives the thread's state, and takes it back when this returns.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let registers = &mut context.uc_mcontext.gregs;
    let register = |number: c_int| registers.get(number as usize).copied().unwrap_or(0);
    let (file, request) = (register(libc::REG_RDI), register(libc::REG_RSI));
    let argument = register(libc::REG_RDX);
    // SAFETY: the caller answers for what it hands the driver.
    let result = unsafe { call::answer(file as c_int, request as u32, argument as u64) };
    if let Some(place) = registers.get_mut(libc::REG_RAX as usize) {
        *place = match result {
            Ok(()) => 0,
            Err(error) => -i64::from(error),
        };
    }
}

/// Opens a file; one of the driver's, behind which there is nothing, as a name alone.
///
/// # Safety
///
/// As for glibc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller gives a text.
    let name = unsafe { CStr::from_ptr(path) };
    let flags = if name.to_bytes().starts_with(DEVICES) {
        libc::O_PATH | libc::O_CLOEXEC
    } else {
        flags | libc::O_LARGEFILE
    };
    // SAFETY: the caller's own call.
    unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode) as c_int }
}
