//! The kernel driver's calls that libcuda makes for a context, and the filter that answers them on a machine without a
//! kernel driver.

use std::io;

/// `NV_ESC_RM_FREE`, `_CONTROL`, `_ALLOC` and `_MAP_MEMORY`, each with its structure's size.
pub const FREE: u32 = 0xc010_4629;
/// See [`FREE`].
pub const CONTROL: u32 = 0xc020_462a;
/// See [`FREE`].
pub const ALLOCATE: u32 = 0xc020_462b;
/// See [`FREE`].
pub const MAP: u32 = 0xc038_464e;

/// `NV01_ROOT_CLIENT`.
pub const CLIENT: u32 = 0x41;
/// `KEPLER_CHANNEL_GROUP_A`.
pub const CHANNEL_GROUP: u32 = 0xa06c;
/// `HOPPER_CHANNEL_GPFIFO_A`.
pub const CHANNEL: u32 = 0xc86f;
/// `NVA06C_CTRL_CMD_SET_TIMESLICE`.
pub const SET_TIME_SLICE: u32 = 0xa06c_0103;
/// `NVA06C_CTRL_CMD_GET_TIMESLICE`.
pub const GET_TIME_SLICE: u32 = 0xa06c_0104;

/// The control file's name below `/dev`.
pub const CONTROL_FILE: &str = "nvidiactl";

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done: `ioctl` returns 0, and the structure is as it was.
    Done,
    /// The thread gets SIGSYS: a handler answers.
    Signal,
}

/// Has all such calls of this process, and of those that it starts, answered so. Without a privilege they can gain none from
/// then on.
///
/// # Errors
/// The system's, where it knows no such filters.
pub fn answer_calls(answer: Answer) -> io::Result<()> {
    let action = match answer {
        Answer::Done => libc::SECCOMP_RET_ERRNO,
        Answer::Signal => libc::SECCOMP_RET_TRAP,
    };
    let mut filter = filter(action);
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: takes numbers.
    let promised = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the program is this function's own, and the kernel copies it.
    let set = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    if promised == 0 && set == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Picks `ioctl` with the driver's numbers, of whatever size, and lets all else go on.
fn filter(action: u32) -> [libc::sock_filter; 12] {
    /// `AUDIT_ARCH_X86_64`.
    const PROCESSOR: u32 = 0xc000_003e;
    /// Of `struct seccomp_data`: the call, the processor, the second argument's lower half.
    const CALL: u32 = 0;
    const ARCHITECTURE: u32 = 4;
    const REQUEST: u32 = 24;
    let step = |code: u32, value: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k: value,
    };
    let load = |at| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at);
    let answer = |value| step(libc::BPF_RET | libc::BPF_K, value);
    // How many steps are skipped if the word is equal, and if it is not.
    let compare = |value, equal, other| libc::sock_filter {
        jt: equal,
        jf: other,
        ..step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value)
    };
    [
        load(ARCHITECTURE),
        compare(PROCESSOR, 0, 8),
        load(CALL),
        compare(libc::SYS_ioctl as u32, 0, 6),
        load(REQUEST),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0xffff),
        compare(FREE & 0xffff, 4, 0),
        compare(CONTROL & 0xffff, 3, 0),
        compare(ALLOCATE & 0xffff, 2, 0),
        compare(MAP & 0xffff, 1, 0),
        answer(libc::SECCOMP_RET_ALLOW),
        answer(action),
    ]
}
