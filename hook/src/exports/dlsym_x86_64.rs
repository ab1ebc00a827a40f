//! `dlsym` and `dlvsym` on x86-64.
//!
//! glibc learns who asks from the return address, which `RTLD_NEXT` depends on. So these functions have no frame of
//! their own: what is not ours they leave to glibc by a jump, with every register and the stack as they came.
//!
//! Debuggers and profilers walk through them by the `.cfi` lines.
//!
//! The answer comes in two registers: `rax` is the address to return, or zero, and then `rdx` is where to jump.

#![expect(unsafe_code, reason = "assembler that C calls")]

use core::arch::naked_asm;
use core::ffi::{c_char, c_void};

use super::dlsym::{answer_dlsym, answer_dlvsym};

/// The program's `dlsym(3)`.
///
/// # Safety
///
/// As for glibc's.
#[cfg_attr(panic = "abort", unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        // The stack is aligned at the call below.
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rdx, [rsp + 24]",
        "call {answer}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "jnz 2f",
        "test rdx, rdx",
        "jz 2f",
        "jmp rdx",
        "2: ret",
        ".cfi_endproc",
        answer = sym answer_dlsym,
    )
}

/// The program's `dlvsym(3)`.
///
/// # Safety
///
/// As for glibc's.
#[cfg_attr(panic = "abort", unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        // The stack is aligned at the call below.
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "mov rcx, [rsp + 24]",
        "call {answer}",
        "mov rcx, rdx",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "jnz 2f",
        "test rcx, rcx",
        "jz 2f",
        "jmp rcx",
        "2: ret",
        ".cfi_endproc",
        answer = sym answer_dlvsym,
    )
}
