//! The system calls of a command, as strace sees them, and those that it makes only with the library.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use crate::node::Node;
use crate::programs::{FOLDER, LIBRARY, PRELOAD};

/// The system calls of a command and of all that it starts, without what differs between any two runs.
#[derive(Clone, Debug)]
pub struct Trace {
    calls: Vec<String>,
}

impl Trace {
    /// Runs a command of alice's in the clients' folder under strace.
    pub fn of(node: &Node, command: &str) -> Result<Trace> {
        // Each process has a file of its own, so that no call is cut in two, and the addresses are the same in every
        // run. Root traces, since a set-uid program loses its rights when its caller traces it.
        let shell = format!(
            "mkdir /tmp/trace; setarch -R strace -u alice -ff -qq -s 128 -o /tmp/trace/of {command} </dev/null >/dev/null"
        );
        let root = |shell: &str| node.command("root", &["bash", "-c", shell]);
        let ran = root(&shell)
            .env("PYTHONHASHSEED", "0")
            .cwd(FOLDER)
            .output()?;
        ensure!(ran.success(), "{command}: {ran}");
        let text = root("cat /tmp/trace/*; rm -r /tmp/trace").output()?.ok()?;
        // When a signal comes, whether one comes for two children, and who waits for a lock, differs as well.
        let chance = |line: &&str| {
            ["---", "+++", "rt_sigreturn(", "futex("]
                .iter()
                .any(|start| line.starts_with(start))
        };
        let calls: Vec<String> = text
            .lines()
            .filter(|line| !chance(line))
            .map(plain)
            .collect();
        ensure!(!calls.is_empty(), "{command}: strace saw no call");
        Ok(Trace { calls })
    }

    /// The calls that this run made and `other` did not, or made less often.
    pub fn beyond(&self, other: &Trace) -> Vec<&str> {
        let mut left: BTreeMap<&str, usize> = BTreeMap::new();
        for call in &other.calls {
            *left.entry(call).or_default() += 1;
        }
        let mut beyond = Vec::new();
        for call in &self.calls {
            match left.get_mut(call.as_str()) {
                Some(count) if *count > 0 => *count -= 1,
                _ => beyond.push(call.as_str()),
            }
        }
        beyond
    }

    /// How many programs were started: each of them loads the library.
    pub fn programs(&self) -> usize {
        let started = |call: &&String| call.starts_with("execve(") && call.ends_with(" = 0");
        self.calls.iter().filter(started).count()
    }
}

/// The name of a call.
pub fn name(call: &str) -> &str {
    call.split('(').next().unwrap_or(call)
}

/// Whether a call only brings the library into a process: the loader opens its list and the library, and maps both.
pub fn loads_the_library(call: &str) -> bool {
    match name(call) {
        "openat" | "access" => call.contains(PRELOAD) || call.contains(LIBRARY),
        "read" | "pread64" | "newfstatat" | "fstat" | "mmap" | "munmap" | "mprotect" | "close" => {
            true
        }
        _ => false,
    }
}

/// A line of strace without what differs from run to run: addresses, processes, times, and what was read or written.
fn plain(line: &str) -> String {
    // The loader's own memory grows with each library, and what /proc says of the process too.
    let varies = [
        "read", "pread64", "mmap", "munmap", "mprotect", "get", "set_tid", "clone", "vfork",
        "wait4", "sysinfo",
    ];
    if varies.iter().any(|start| name(line).starts_with(start)) {
        return name(line).to_owned();
    }
    // The text that is written is left out, and so is the byte of the fake driver's node that a process locks.
    let begins = match name(line) {
        "write" => 1,
        "fcntl" => 2,
        _ => usize::MAX,
    };
    let line: Vec<&str> = line.split(',').take(begins).collect();
    let line = line.join(",");
    let mut plain = String::new();
    let mut rest = line.as_str();
    while let Some(at) = rest.find("0x") {
        plain += &rest[..at];
        plain += "ADDRESS";
        rest = rest[at + 2..].trim_start_matches(|c: char| c.is_ascii_hexdigit());
    }
    plain += rest;
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(text: &str) -> Trace {
        Trace {
            calls: text.lines().map(plain).collect(),
        }
    }

    #[test]
    fn runs_that_differ_in_numbers_only_are_alike() {
        let one = trace("mmap(0x7f01, 5, PROT_READ, MAP_SHARED, 3, 0) = 0x7f01\ngetpid() = 12\n");
        let other = trace("mmap(0xaff, 5, PROT_READ, MAP_SHARED, 3, 0) = 0xaff\ngetpid() = 34\n");
        assert_eq!(one.beyond(&other), [""; 0]);
    }

    #[test]
    fn a_call_that_is_made_once_more_is_found() {
        let one = trace("umask(022) = 0\numask(022) = 0\nclose(3) = 0\n");
        let other = trace("close(3) = 0\numask(022) = 0\n");
        assert_eq!(one.beyond(&other), ["umask(022) = 0"]);
        assert!(!loads_the_library("umask(022) = 0"));
        assert!(!loads_the_library(
            "openat(AT_FDCWD, \"/run/x\", O_RDONLY) = 3"
        ));
        assert!(loads_the_library(
            "openat(AT_FDCWD, \"/etc/ld.so.preload\", O_RDONLY) = 3"
        ));
    }
}
