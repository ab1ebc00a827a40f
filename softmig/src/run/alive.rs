//! Which processes of a run are alive, as their environment says: those that use a GPU also have a lock on the ledger.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The variable that names the ledger.
pub(super) const LEDGER: &str = "SOFTMIG_RUN";

/// How often a process is looked at that executes a program, and the time between two looks.
const MOMENTS: u32 = 10;
const MOMENT: Duration = Duration::from_millis(10);

/// Whether a process of the user's has this ledger in the environment that it was started with.
pub(crate) fn has_process(uid: u32, ledger: &Path) -> bool {
    let wanted = [LEDGER.as_bytes(), b"=", ledger.as_os_str().as_bytes()].concat();
    // `None` without an environment.
    let has_it = |process: &PathBuf| {
        let environment = std::fs::read(process.join("environ")).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        (!environment.is_empty()).then(|| variables.any(|it| it == wanted))
    };
    let mut processes: Vec<_> = processes(uid).collect();
    for _ in 0..MOMENTS {
        let mut unclear = Vec::new();
        for process in processes {
            match has_it(&process) {
                Some(true) => return true,
                Some(false) => {}
                None => unclear.push(process),
            }
        }
        // A process has no environment for a moment while it executes a program. Zombies have none either, but have no program.
        unclear.retain(|process| process.join("exe").read_link().is_ok());
        if unclear.is_empty() {
            return false;
        }
        std::thread::sleep(MOMENT);
        processes = unclear;
    }
    // One that still executes a program may be one of them.
    processes.iter().any(|process| !is_without(process))
}

/// Whether the kernel says where the environment of a process is, and that it is empty (`env -i`). During an exec its
/// place is 0.
fn is_without(process: &Path) -> bool {
    /// The place of `env_start` among the fields behind the name; `env_end` follows.
    const ENV_START: usize = 47;
    let stat = std::fs::read(process.join("stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let mut ends = fields.split_whitespace().skip(ENV_START);
    let (start, end) = (ends.next(), ends.next());
    start == end && start != Some("0")
}

/// The folders of the user's processes.
fn processes(uid: u32) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(move |entry| {
            let is_process = entry.file_name().as_bytes().iter().all(u8::is_ascii_digit);
            is_process && entry.metadata().is_ok_and(|stat| stat.uid() == uid)
        })
        .map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Instant;

    #[test]
    fn a_process_with_an_empty_environment_is_of_no_run() {
        let mut child = Command::new("sleep").arg("60").env_clear().spawn().unwrap();
        let begin = Instant::now();
        let uid = rustix::process::getuid().as_raw();
        let has_it = has_process(uid, Path::new("/nowhere/ledger"));
        let took = begin.elapsed();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!has_it);
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
}
