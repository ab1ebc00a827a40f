//! The kernel's list of this process's mappings.

use super::error::Error;
use super::file::File;
use super::scratch::Scratch;

/// Calls `visit` with the first address of each shared mapping whose offset in its file is its address. The driver maps
/// its device for managed memory so, and hardly any other mapping is like that. The device's name would tell less: a
/// user can give it another.
pub(crate) fn each_mapping_of_itself(mut visit: impl FnMut(u64)) -> Result<(), Error> {
    let file = File::open(c"/proc/self/maps", libc::O_RDONLY)?;
    let mut scratch = Scratch::new()?;
    let room = scratch.bytes();
    let mut filled = 0_usize;
    loop {
        let free = room.get_mut(filled..).filter(|free| !free.is_empty());
        let count = file.read(free.ok_or(Error::TOO_LONG)?)?;
        if count == 0 {
            return Ok(());
        }
        filled = filled.saturating_add(count);
        let mut rest = room.get(..filled).unwrap_or_default();
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            if let Some(start) = rest.get(..end).and_then(mapped_at_itself) {
                visit(start);
            }
            rest = rest.get(end.saturating_add(1)..).unwrap_or_default();
        }
        // The line that is not complete.
        let left = rest.len();
        let begin = filled.saturating_sub(left);
        for place in 0..left {
            let byte = room.get(begin.saturating_add(place)).copied();
            if let (Some(byte), Some(place)) = (byte, room.get_mut(place)) {
                *place = byte;
            }
        }
        filled = left;
    }
}

/// The first address in a line such as `7f7bba200000-7f7bba500000 rw-s 7f7bba200000 00:06 144 /dev/nvidia-uvm`.
fn mapped_at_itself(line: &[u8]) -> Option<u64> {
    let (start, rest) = number(line);
    let (_, rest) = number(rest.strip_prefix(b"-")?);
    let (access, rest) = rest.strip_prefix(b" ")?.split_at_checked(4)?;
    let (offset, _) = number(rest.strip_prefix(b" ")?);
    (access.ends_with(b"s") && offset == start && start > 0).then_some(start)
}

/// The number in hexadecimal digits that a text begins with, and what follows it.
fn number(text: &[u8]) -> (u64, &[u8]) {
    let (mut value, mut rest) = (0_u64, text);
    while let Some((&digit, behind)) = rest.split_first() {
        let Some(digit) = char::from(digit).to_digit(16) else {
            break;
        };
        value = value << 4 | u64::from(digit);
        rest = behind;
    }
    (value, rest)
}

#[cfg(test)]
#[expect(unsafe_code, reason = "maps at addresses of its choice")]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    #[test]
    fn only_what_is_shared_and_stands_at_its_own_offset_is_told() {
        let own = |line: &str| mapped_at_itself(line.as_bytes());
        for line in [
            "7f7bba200000-7f7bba500000 rw-s 7f7bba200000 00:06 144   /dev/nvidia-uvm",
            "7f7bba200000-7f7bba500000 ---s 7f7bba200000 00:06 144",
            "7f7bba200000-7f7bba500000 rw-s 7f7bba200000 00:06 144   /dev/nvidia-uvm (deleted)",
        ] {
            assert_eq!(own(line), Some(0x7f7b_ba20_0000), "{line}");
        }
        for line in [
            "7f7bba200000-7f7bba500000 rw-p 7f7bba200000 00:06 144   /dev/nvidia-uvm",
            "7f7bba200000-7f7bba500000 rw-s 7f7bba201000 00:06 144   /dev/nvidia-uvm",
            "7f7bba200000-7f7bba500000 rw-s 00000000 00:06 145       /dev/nvidiactl",
            "00000000-00001000 rw-s 00000000 00:06 145",
            "7ffd0c5e6000-7ffd0c607000 rw-p 00000000 00:00 0         [stack]",
            "7f7bba200000",
            "",
        ] {
            assert_eq!(own(line), None, "{line}");
        }
    }

    /// Enough lines for many reads, whose ends are anywhere.
    #[test]
    fn none_is_left_out_of_a_long_list() {
        // SAFETY: a name that ends in a zero byte.
        let file = unsafe { libc::memfd_create(c"pages".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: just opened, and owned by this function alone.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        // SAFETY: takes numbers.
        assert_eq!(unsafe { libc::ftruncate(file.as_raw_fd(), 1 << 47) }, 0);
        let mut starts = Vec::new();
        for _ in 0..3000 {
            let start = map_pages(2, -1, 0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, 0);
            let shared = libc::MAP_SHARED | libc::MAP_FIXED;
            map_pages(1, file.as_raw_fd(), start, shared, start);
            starts.push(start);
        }
        let mut found = Vec::new();
        each_mapping_of_itself(|start| found.push(start)).unwrap();
        starts.sort_unstable();
        assert!(found == starts, "{} of {}", found.len(), starts.len());
        for start in starts {
            assert!(crate::os::is_mapped(start));
            let start = core::ptr::NonNull::new(start as *mut u8).unwrap();
            // SAFETY: mapped above.
            unsafe { crate::os::unmap(start, 2 * 4096) };
        }
    }

    #[test]
    fn an_address_is_mapped_until_it_is_given_back() {
        // The kernel gives no other test this one: it begins at the other end.
        const FAR: u64 = 1 << 40;
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let start = map_pages(1, -1, FAR, anonymous, 0);
        assert_eq!(start, FAR);
        assert!(crate::os::is_mapped(start));
        let place = core::ptr::NonNull::new(start as *mut u8).unwrap();
        // SAFETY: mapped above.
        unsafe { crate::os::unmap(place, 4096) };
        assert!(!crate::os::is_mapped(start));
    }

    fn map_pages(count: usize, file: i32, at: u64, flags: i32, offset: u64) -> u64 {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let at = at as usize as *mut core::ffi::c_void;
        // SAFETY: at an address of the kernel's choice, or over what this test has mapped.
        let start = unsafe { libc::mmap(at, count * 4096, access, flags, file, offset as i64) };
        assert_ne!(start, libc::MAP_FAILED);
        start as u64
    }
}
