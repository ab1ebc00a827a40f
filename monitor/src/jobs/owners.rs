//! Whose processes are, remembered from one sample to the next: that a process is still there is told by one call, whose it is
//! by four files.

use crate::jobs::owner::{Owner, UNREAD, owner};
use crate::jobs::pidfd::Pidfd;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A process's owner is read again after this time: root can move a process to another control group, and a process can change its user.
const BELIEVED: Duration = Duration::from_secs(10);

/// The processes of the last sample.
#[derive(Debug)]
pub struct Owners {
    proc: PathBuf,
    known: BTreeMap<u32, Known>,
}

#[derive(Debug)]
struct Known {
    owner: Owner,
    pidfd: Pidfd,
    read: Instant,
}

impl Owners {
    /// Those of the `/proc` at this path; none is known yet.
    pub fn new(proc: &Path) -> Self {
        Self {
            proc: proc.into(),
            known: BTreeMap::new(),
        }
    }

    /// Whose each of these is. All others are forgotten.
    pub fn resolve(&mut self, pids: impl IntoIterator<Item = u32>) -> BTreeMap<u32, Owner> {
        let now = Instant::now();
        let mut before = std::mem::take(&mut self.known);
        let mut owners = BTreeMap::new();
        for pid in pids {
            if owners.contains_key(&pid) {
                continue;
            }
            let known = before.remove(&pid).filter(|it| !it.pidfd.has_ended(pid));
            let owner = match self.read_or_keep(pid, known, now) {
                Ok(known) => {
                    let owner = known.owner.clone();
                    self.known.insert(pid, known);
                    owner
                }
                Err(owner) => owner,
            };
            owners.insert(pid, owner);
        }
        owners
    }

    /// Whose a process is that may be known already: then it began when it did.
    fn read_or_keep(&self, pid: u32, known: Option<Known>, now: Instant) -> Result<Known, Owner> {
        let Some(known) = known else {
            return self.read(pid, now);
        };
        if now - known.read < BELIEVED {
            return Ok(known);
        }
        let mut new = self.read(pid, now)?;
        if let (Owner::Process { began: new, .. }, Owner::Process { began, .. }) =
            (&mut new.owner, &known.owner)
            && *new == UNREAD
        {
            *new = *began;
        }
        Ok(new)
    }

    /// Reads whose a process is. An error is the answer for one that is not to be remembered.
    fn read(&self, pid: u32, read: Instant) -> Result<Known, Owner> {
        // First this, so that the number is this process's while its files are read.
        let pidfd = Pidfd::open(pid).map_err(|_| Owner::Gone)?;
        match owner(&self.proc, pid) {
            Owner::Process { .. } if pidfd.has_ended(pid) => Err(Owner::Gone),
            owner @ Owner::Process { .. } => Ok(Known { owner, pidfd, read }),
            owner => Err(owner),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_known_until_it_ends_and_not_by_its_number() {
        let mut owners = Owners::new(Path::new("/proc"));
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let me = std::process::id();
        let first = owners.resolve([me, child.id(), me]);
        assert_eq!(first.len(), 2);
        assert!(matches!(first[&child.id()], Owner::Process { .. }));
        assert_eq!(owners.resolve([me, child.id()]), first);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(owners.resolve([child.id()])[&child.id()], Owner::Gone);
        assert_eq!(owners.known.len(), 0);
    }

    #[test]
    fn a_process_whose_parent_has_not_waited_for_it_is_gone() {
        let mut child = Command::new("true").spawn().unwrap();
        let mut owners = Owners::new(Path::new("/proc"));
        // Its parent leaves it as it is until it has looked.
        while owners.resolve([child.id()])[&child.id()] != Owner::Gone {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
