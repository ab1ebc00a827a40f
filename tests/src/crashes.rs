//! The kernel's own words on programs that crashed: where, and in which library.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;

/// The kernel's last lines on crashes, oldest first. None where its log cannot be read.
pub(crate) fn last() -> Vec<String> {
    const MOST: usize = 4;
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let log = OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking)
        .open("/dev/kmsg");
    let Ok(mut log) = log else { return Vec::new() };
    let (mut record, mut lines) = ([0; 8192], Vec::new());
    // Each read is one record; there are no more when it would wait.
    while let Ok(count @ 1..) = log.read(&mut record) {
        let text = String::from_utf8_lossy(record.get(..count).unwrap_or_default());
        let line = text.lines().next().unwrap_or_default();
        let is_crash = ["segfault", "traps:", "general protection"];
        if is_crash.iter().any(|word| line.contains(word)) {
            lines.push(line.to_owned());
        }
    }
    let first = lines.len().saturating_sub(MOST);
    lines.split_off(first)
}

/// Whether the kernel's last line on a crash of this program says that it was in Slurm's own code.
pub(crate) fn is_slurms_own(program: &str) -> bool {
    let own = format!(" {program}[");
    let lines = last();
    // A record begins with its number and time, and a semicolon.
    let of_program = |line: &&String| format!(" {}", line.replace(';', " ")).contains(&own);
    lines.iter().rfind(of_program).is_some_and(|line| {
        line.contains(" in libslurm") || line.contains(&format!(" in {program}["))
    })
}
