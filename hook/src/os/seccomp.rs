//! A filter of system calls (seccomp) that keeps a process from NVIDIA's kernel driver.
//!
//! The driver's library does everything on a GPU by `ioctl` with requests of type `F` (`NV_IOCTL_MAGIC` in NVIDIA's open kernel
//! modules, kernel-open/common/inc/nv-ioctl-numbers.h), the first of them before it opens a GPU. The kernel uses this type also
//! for frame buffers, which jobs have no use for.

use super::error::Error;
use super::sys;

const NV_IOCTL_MAGIC: u32 = b'F' as u32;

// Offsets in `struct seccomp_data` (linux/seccomp.h).
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// The lower half of the second argument.
const REQUEST: u32 = 24;

/// `AUDIT_ARCH_X86_64` and `AUDIT_ARCH_I386` (linux/audit.h).
const X86_64: u32 = 0xc000_003e;
const I386: u32 = 0x4000_0003;
/// The number of `ioctl` for programs of 64 bits, of the x32 ABI, and of 32 bits.
const IOCTL: u32 = libc::SYS_ioctl as u32;
const IOCTL_X32: u32 = 0x4000_0000 + 514;
const IOCTL_I386: u32 = 54;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const SHIFT_RIGHT: u32 = libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

const fn step(code: u32, value: u32) -> libc::sock_filter {
    jump(code, value, 0, 0)
}

/// Skips the next `if_equal` instructions if the loaded word is `value`, and the next `else_` instructions otherwise.
const fn jump(code: u32, value: u32, if_equal: u8, else_: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: if_equal,
        jf: else_,
        k: value,
    }
}

const FILTER: [libc::sock_filter; 14] = [
    step(LOAD, ARCHITECTURE),
    jump(IF_EQUAL, X86_64, 3, 0),
    jump(IF_EQUAL, I386, 0, 9),
    // Numbers of calls are the architecture's own.
    step(LOAD, NUMBER),
    jump(IF_EQUAL, IOCTL_I386, 3, 7),
    step(LOAD, NUMBER),
    jump(IF_EQUAL, IOCTL, 1, 0),
    jump(IF_EQUAL, IOCTL_X32, 0, 4),
    step(LOAD, REQUEST),
    step(SHIFT_RIGHT, 8),
    step(AND, 0xff),
    jump(IF_EQUAL, NV_IOCTL_MAGIC, 1, 0),
    step(RETURN, libc::SECCOMP_RET_ALLOW),
    step(RETURN, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
];

/// From now on this process, and what it starts, can ask nothing of NVIDIA's driver. As the kernel demands of users who filter
/// calls, no program that it starts has more rights than it has itself (`no_new_privs`).
///
/// # Errors
///
/// The kernel's error: it does not know filters, or does not let this process have one.
pub(crate) fn keep_from_driver() -> Result<(), Error> {
    sys::set_no_new_privileges()?;
    let program = libc::sock_fprog {
        len: FILTER.len() as u16,
        filter: FILTER.as_ptr().cast_mut(),
    };
    // For threads too that another library has started already.
    sys::set_filter_of_all_threads(&program).or_else(|_| sys::set_filter(&program))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's answer, with as much of BPF as this filter needs.
    fn run(architecture: u32, number: u32, request: u32) -> u32 {
        let mut word = 0;
        let mut at = 0;
        loop {
            let instruction = FILTER[at];
            at += 1;
            match u32::from(instruction.code) {
                LOAD => {
                    word = match instruction.k {
                        NUMBER => number,
                        ARCHITECTURE => architecture,
                        REQUEST => request,
                        other => panic!("{other}"),
                    }
                }
                SHIFT_RIGHT => word >>= instruction.k,
                AND => word &= instruction.k,
                IF_EQUAL if word == instruction.k => at += usize::from(instruction.jt),
                IF_EQUAL => at += usize::from(instruction.jf),
                RETURN => return instruction.k,
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn only_the_drivers_requests_are_refused() {
        const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        const ALLOWED: u32 = libc::SECCOMP_RET_ALLOW;
        // NV_ESC_RM_ALLOC, NV_ESC_CARD_INFO; TCGETS, FIONREAD.
        let drivers = [0xc020_462b, 0xc900_46c8];
        let others = [0x5401, 0x541b];
        for (architecture, number) in [(X86_64, IOCTL), (X86_64, IOCTL_X32), (I386, IOCTL_I386)] {
            for request in drivers {
                assert_eq!(run(architecture, number, request), REFUSED);
            }
            for request in others {
                assert_eq!(run(architecture, number, request), ALLOWED);
            }
        }
        assert_eq!(run(X86_64, libc::SYS_write as u32, drivers[0]), ALLOWED);
        // Numbers of the other architecture's ioctl.
        assert_eq!(run(X86_64, IOCTL_I386, drivers[0]), ALLOWED);
        assert_eq!(run(I386, IOCTL, drivers[0]), ALLOWED);
        assert_eq!(run(0xc000_00b7, 29, drivers[0]), ALLOWED);
    }
}
