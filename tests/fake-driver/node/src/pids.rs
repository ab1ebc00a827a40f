//! The identity of a process, and the number by which others know it: a pid has a meaning only within its namespace.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::layout::{Slot, get};

/// A process, as it sees itself.
pub(crate) struct Identity {
    pub(crate) pid: u32,
    /// Inode of its pid namespace; 0 without /proc.
    pub(crate) namespace: u64,
    /// In clock ticks since the machine's start; 0 without /proc.
    pub(crate) start_time: u64,
    pub(crate) command: String,
}

impl Identity {
    pub(crate) fn of_this_process() -> Identity {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The command is in brackets and may contain anything, so fields count from the last bracket. The state is the
        // first.
        let (head, tail) = stat.rsplit_once(')').unwrap_or_default();
        let command = head.split_once('(').map_or("", |(_, command)| command);
        let start_time = tail.split_whitespace().nth(19);
        Identity {
            pid: std::process::id(),
            namespace: namespace("self"),
            start_time: start_time.and_then(|ticks| ticks.parse().ok()).unwrap_or(0),
            command: command.into(),
        }
    }
}

/// Translates the pids of slots into those of this process's namespace.
pub(crate) struct Translator {
    own_namespace: u64,
    /// From a namespace and a pid there to the pid here; made when the first foreign one is met.
    foreign: Option<HashMap<(u64, u32), u32>>,
}

impl Translator {
    pub(crate) fn new() -> Translator {
        Translator {
            own_namespace: namespace("self"),
            foreign: None,
        }
    }

    /// The number of this slot's process here; `None` if it cannot be seen from here.
    pub(crate) fn translate(&mut self, slot: &Slot) -> Option<u32> {
        self.translate_number(get(&slot.pid), get(&slot.pid_namespace))
    }

    /// The same of a process that has this number in the namespace with that inode.
    pub(crate) fn translate_number(&mut self, pid: u64, its: u64) -> Option<u32> {
        let pid = u32::try_from(pid).ok()?;
        if its == self.own_namespace || its == 0 {
            return Some(pid);
        }
        let foreign = self.foreign.get_or_insert_with(foreign_processes);
        foreign.get(&(its, pid)).copied()
    }
}

/// All processes that /proc shows, by what they call themselves.
fn foreign_processes() -> HashMap<(u64, u32), u32> {
    let mut found = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(here) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let own = fs::read_to_string(entry.path().join("status"))
            .ok()
            .and_then(|status| innermost_pid(&status));
        if let Some(own) = own {
            found.insert((namespace(&format!("{here}")), own), here);
        }
    }
    found
}

/// The last number of the line `NSpid:`: the pid in the namespace in which the process lives.
fn innermost_pid(status: &str) -> Option<u32> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

fn namespace(process: &str) -> u64 {
    fs::metadata(format!("/proc/{process}/ns/pid")).map_or(0, |namespace| namespace.ino())
}
