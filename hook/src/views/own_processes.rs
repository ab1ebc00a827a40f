//! Which processes a program may see: those of its own job.
//!
//! - In a job: those that the kernel has in that job's control groups. On nodes whose jobs have none, those with the same
//!   `SLURM_JOB_ID` in their environment, which only their own user can read.
//! - Under limits that a user set for himself: those of the same `softmig run`, by its variable; without one, nobody else.
//! - Outside every job, limited as the jobs on its GPUs: nobody else.
//!
//! Who cannot be asked, or is gone, is a stranger. NVML's numbers are those of the caller's own namespace.

use core::ffi::CStr;

use crate::identity::gate;
use crate::identity::host::ThisNode;
use crate::identity::resolve::{self, Standing};
use crate::os::fixed_str::{Text, text};
use crate::os::{self, File, Scratch};

/// Whose processes are shown.
pub(super) struct Own {
    us: u32,
    group: Group,
}

/// What makes others this process's own.
enum Group {
    /// Nothing.
    Nobody,
    /// Their job.
    Job(u32),
    /// What this variable of their environment says.
    Run(&'static [u8]),
}

/// `NAME=VALUE`.
type Entry = Text<288>;

impl Own {
    /// As seen from this process.
    pub(super) fn of_this_process() -> Self {
        let group = gate::with_finding(|finding| match finding.standing {
            Standing::Job(_) => finding.job.map(Group::Job),
            Standing::Own(_) => os::variable(c"SOFTMIG_RUN").map(Group::Run),
            Standing::Neighbours | Standing::Passive | Standing::Denied(_) => None,
        });
        Self {
            us: os::process_id(),
            group: group.unwrap_or(Group::Nobody),
        }
    }

    /// Whether a process is one of them.
    pub(super) fn has(&self, pid: u32) -> bool {
        pid == self.us
            || match &self.group {
                Group::Nobody => false,
                Group::Job(job) => is_in_job(pid, *job),
                Group::Run(run) => has_entry(pid, &text(&[b"SOFTMIG_RUN=", run])),
            }
    }
}

fn is_in_job(pid: u32, job: u32) -> bool {
    let cgroup = of(pid, b"cgroup");
    let Some(file) = cgroup.as_path().and_then(open) else {
        return false;
    };
    let Ok(mut scratch) = Scratch::new() else {
        return false;
    };
    let Ok(list) = file.read_all(scratch.bytes()) else {
        return false;
    };
    match resolve::job_of(&ThisNode, list) {
        Some(its) => its == job,
        None => {
            let mut entry = text(&[b"SLURM_JOB_ID="]);
            entry.push_number(job.into(), 1);
            has_entry(pid, &entry)
        }
    }
}

/// Whether a process was started with this in its environment.
fn has_entry(pid: u32, entry: &Entry) -> bool {
    // What was cut off is nobody's.
    let Some(entry) = entry.as_path() else {
        return false;
    };
    let environment = of(pid, b"environ");
    let Some(file) = environment.as_path().and_then(open) else {
        return false;
    };
    let Ok(mut scratch) = Scratch::new() else {
        return false;
    };
    let mut search = Search::new(entry.to_bytes());
    loop {
        let room = scratch.bytes();
        let Ok(count) = file.read(room) else {
            return false;
        };
        match room.get(..count) {
            Some(piece) if count > 0 => {
                if search.is_in(piece) {
                    return true;
                }
            }
            _ => return false,
        }
    }
}

/// `/proc/PID/NAME`.
fn of(pid: u32, name: &[u8]) -> Text<32> {
    let mut path = text(&[b"/proc/"]);
    path.push_number(pid.into(), 1);
    path.push(b"/");
    path.push(name);
    path
}

fn open(path: &CStr) -> Option<File> {
    File::open(path, libc::O_RDONLY).ok()
}

/// Looks for one text among many, each with a zero byte at its end, that come in pieces.
struct Search<'a> {
    wanted: &'a [u8],
    /// How much of it the text so far is; `None` for one that is another.
    so_far: Option<usize>,
}

impl<'a> Search<'a> {
    fn new(wanted: &'a [u8]) -> Self {
        Self {
            wanted,
            so_far: Some(0),
        }
    }

    /// Whether it ends in this piece.
    fn is_in(&mut self, piece: &[u8]) -> bool {
        for &byte in piece {
            if byte != 0 {
                let so_far = self.so_far;
                let same = so_far.filter(|&at| self.wanted.get(at) == Some(&byte));
                self.so_far = same.map(|at| at.saturating_add(1));
            } else if self.so_far == Some(self.wanted.len()) {
                return true;
            } else {
                self.so_far = Some(0);
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    #[test]
    fn an_entry_is_found_however_the_pieces_fall() {
        let all = b"A=1\0SOFTMIG_RUN=/x\0B=SOFTMIG_RUN=/y\0SOFTMIG_RUN=/zz\0";
        let found = |wanted: &[u8], size: usize| {
            let mut search = Search::new(wanted);
            all.chunks(size).any(|piece| search.is_in(piece))
        };
        for size in 1..=all.len() {
            for wanted in ["A=1", "SOFTMIG_RUN=/x", "SOFTMIG_RUN=/zz"] {
                assert!(found(wanted.as_bytes(), size), "{wanted} by {size}");
            }
            for other in ["A=", "A=11", "=1", "SOFTMIG_RUN=/y", "SOFTMIG_RUN=/z", "x"] {
                assert!(!found(other.as_bytes(), size), "{other} by {size}");
            }
        }
    }

    #[test]
    fn an_entry_that_does_not_end_is_none() {
        assert!(!Search::new(b"A=1").is_in(b"A=1"));
    }

    struct Ended(Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn a_process_belongs_to_the_run_that_it_was_started_in() {
        let mut sleep = Command::new("sleep");
        // More than one look can read.
        sleep
            .arg("100")
            .env("LONG", "x".repeat(40_000))
            .env("RUN", "/one");
        let child = Ended(sleep.spawn().unwrap());
        let pid = child.0.id();
        // The kernel has it a moment after the program.
        while std::fs::read(format!("/proc/{pid}/environ"))
            .unwrap()
            .is_empty()
        {}
        assert!(has_entry(pid, &text(&[b"RUN=/one"])));
        for other in ["RUN=/on", "RUN=/one/", "RUN="] {
            assert!(!has_entry(pid, &text(&[other.as_bytes()])), "{other}");
        }
        assert!(!has_entry(pid, &text(&[&[b'x'; 300]])));
        drop(child);
        assert!(!has_entry(pid, &text(&[b"RUN=/one"])));
    }

    #[test]
    fn without_a_group_a_process_sees_itself_alone() {
        let own = Own {
            us: os::process_id(),
            group: Group::Nobody,
        };
        assert!(own.has(os::process_id()));
        assert!(!own.has(1) && !own.has(0) && !own.has(u32::MAX));
    }
}
