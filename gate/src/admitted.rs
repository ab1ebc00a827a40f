//! The processes that may open GPUs.

#![forbid(unsafe_code)]

use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sys::Map;

/// How many processes of one user are admitted at once.
const MOST_OF_A_USER: usize = 4096;

/// Why a process is not admitted.
#[derive(Debug, thiserror::Error)]
pub enum NotAdmitted {
    /// It has not opened the control device since it executed its program.
    #[error("it has not opened the control device")]
    NotAsked,
    /// It has ended, or cannot be looked at.
    #[error("it cannot be looked at: {0}")]
    Unknown(io::Error),
    /// The library is not mapped there.
    #[error("softmig's library is not in it")]
    NoLibrary,
    /// Its user has too many already.
    #[error("its user has {MOST_OF_A_USER} processes with a GPU")]
    TooMany,
    /// The table did not take it.
    #[error("the table of processes: {0}")]
    Table(io::Error),
}

/// Nanoseconds in a tick of `/proc/PID/stat`: `USER_HZ` is 100 where there are GPUs of NVIDIA's.
const TICK: u64 = 10_000_000;

/// A program that a process executes: when the process began, and how many programs it has executed, as in `asked`.
pub(crate) type Program = [u8; 16];

/// A key of the table: the number of the process, four bytes of nothing, and its program.
type Key = [u8; 24];

/// The table, which outlives this process.
#[derive(Debug)]
pub(crate) struct Admitted {
    table: Map,
    /// The entry of each process: its last program alone, and its user.
    held: Mutex<BTreeMap<u32, (Key, u32)>>,
}

impl AsFd for Admitted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}

impl Admitted {
    pub(crate) fn new(table: Map) -> Self {
        let held = Mutex::default();
        Self { table, held }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<u32, (Key, u32)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a process, in the place of the programs that it executed before.
    pub(crate) fn add(&self, pid: u32, program: &Program, uid: u32) -> Result<(), NotAdmitted> {
        let key = key(pid, program);
        let mut held = self.held();
        match held.get(&pid) {
            // An answer that comes late is for a program that is no more.
            Some((other, _)) if is_older(&key, other) => return Err(NotAdmitted::NotAsked),
            Some((other, _)) if *other != key => {
                self.table.remove(other).map_err(NotAdmitted::Table)?;
            }
            _ => {}
        }
        held.remove(&pid);
        let count = held.values().filter(|(_, user)| *user == uid).count();
        if count >= MOST_OF_A_USER {
            return Err(NotAdmitted::TooMany);
        }
        let value = u64::from(uid).to_ne_bytes();
        self.table.put(&key, &value).map_err(NotAdmitted::Table)?;
        held.insert(pid, (key, uid));
        Ok(())
    }

    /// Forgets processes that have ended, and learns of those that an earlier monitor has admitted.
    pub(crate) fn forget_the_dead(&self) -> io::Result<()> {
        for key in self.table.keys::<24>()? {
            let is_there = is_there(&key);
            let mut held = self.held();
            let Some(uid) = self.table.get::<8>(&key)? else {
                continue;
            };
            let pid = number(&key);
            let last = held.get(&pid).map(|(last, _)| *last);
            if !is_there || last.is_some_and(|last| is_older(&key, &last)) {
                self.table.remove(&key)?;
                if last == Some(key) {
                    held.remove(&pid);
                }
                continue;
            }
            if let Some(last) = last.filter(|last| *last != key) {
                self.table.remove(&last)?;
            }
            held.insert(pid, (key, u64::from_ne_bytes(uid) as u32));
        }
        Ok(())
    }
}

fn key(pid: u32, program: &Program) -> Key {
    let mut key = [0; 24];
    key[..4].copy_from_slice(&pid.to_ne_bytes());
    key[8..].copy_from_slice(program);
    key
}

fn number(key: &Key) -> u32 {
    u32::from_ne_bytes([key[0], key[1], key[2], key[3]])
}

/// When a process began, in nanoseconds of `CLOCK_MONOTONIC`, and how many programs it has executed.
fn program(key: &Key) -> (u64, u64) {
    let part = |at: usize| key.iter().skip(at).take(8).copied();
    let number = |at| {
        let mut bytes = [0; 8];
        bytes
            .iter_mut()
            .zip(part(at))
            .for_each(|(to, byte)| *to = byte);
        u64::from_ne_bytes(bytes)
    };
    (number(8), number(16))
}

/// Of two programs of processes with the same number.
fn is_older(one: &Key, other: &Key) -> bool {
    program(one) < program(other)
}

/// Whether the process has not ended, and no other one has its number. One that cannot be looked at is there.
fn is_there(key: &Key) -> bool {
    let began = match fs::read(format!("/proc/{}/stat", number(key))) {
        Ok(stat) => beginning(&stat),
        Err(error) => return error.kind() != io::ErrorKind::NotFound,
    };
    let (start, _) = program(key);
    let least = start.saturating_sub(TICK);
    // This file's clock also counts the time in which the machine was suspended.
    let most = start.saturating_add(suspended() + 2 * TICK);
    began.is_none_or(|began| (least..most).contains(&began))
}

/// How long the machine has been suspended, in nanoseconds.
fn suspended() -> u64 {
    let awake = nanoseconds(ClockId::Monotonic);
    nanoseconds(ClockId::Boottime).saturating_sub(awake)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither clock has been negative.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// When a process began, by its `/proc/PID/stat`, in nanoseconds.
fn beginning(stat: &[u8]) -> Option<u64> {
    // Its name is the second field, may have anything in it, and is in parentheses.
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 2..)?).ok()?;
    let ticks: u64 = rest.split(' ').nth(19)?.parse().ok()?;
    ticks.checked_mul(TICK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::SHAPE_OF_ADMITTED;

    /// A table of its own; `None`, with a line that says so, where this machine permits none.
    fn admitted() -> Option<Admitted> {
        match Map::new(SHAPE_OF_ADMITTED) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                eprintln!("skipped: not permitted here: {error}");
                None
            }
            map => Some(Admitted::new(map.unwrap())),
        }
    }

    fn program(start: u64, executed: u64) -> Program {
        let mut program = [0; 16];
        program[..8].copy_from_slice(&start.to_ne_bytes());
        program[8..].copy_from_slice(&executed.to_ne_bytes());
        program
    }

    fn keys(admitted: &Admitted) -> Vec<Key> {
        admitted.table.keys().unwrap()
    }

    #[test]
    fn a_process_has_one_entry_however_often_it_executes_itself() {
        let Some(admitted) = admitted() else { return };
        for executed in 0..2 * MOST_OF_A_USER as u64 {
            admitted.add(7, &program(5, executed), 2001).unwrap();
        }
        let last = program(5, 2 * MOST_OF_A_USER as u64 - 1);
        assert_eq!(keys(&admitted), [key(7, &last)]);
        let late = admitted.add(7, &program(5, 3), 2001);
        assert!(matches!(late, Err(NotAdmitted::NotAsked)), "{late:?}");
        assert_eq!(keys(&admitted), [key(7, &last)]);
    }

    #[test]
    fn a_user_who_has_too_many_processes_keeps_no_other_out() {
        let Some(admitted) = admitted() else { return };
        for pid in 1..=MOST_OF_A_USER as u32 {
            admitted.add(pid, &program(5, 1), 2001).unwrap();
        }
        let more = admitted.add(10_000, &program(5, 1), 2001);
        assert!(matches!(more, Err(NotAdmitted::TooMany)), "{more:?}");
        admitted.add(10_000, &program(5, 1), 2002).unwrap();
        // One of them executes another program.
        admitted.add(3, &program(5, 2), 2001).unwrap();
        assert_eq!(keys(&admitted).len(), MOST_OF_A_USER + 1);
    }

    #[test]
    fn a_number_that_another_process_has_by_now_is_forgotten() {
        let Some(admitted) = admitted() else { return };
        let pid = std::process::id();
        let stat = fs::read("/proc/self/stat").unwrap();
        let began = beginning(&stat).unwrap();
        let suspended = suspended();
        // As an earlier monitor has left them.
        let value = 2001u64.to_ne_bytes();
        let earlier = key(pid, &program(began - suspended - 1_000_000_000, 9));
        let (first, second) = (program(began - suspended, 1), program(began - suspended, 2));
        let gone = key(u32::MAX, &first);
        for key in [earlier, key(pid, &first), key(pid, &second), gone] {
            admitted.table.put(&key, &value).unwrap();
        }
        admitted.forget_the_dead().unwrap();
        assert_eq!(keys(&admitted), [key(pid, &second)]);
        assert_eq!(admitted.held().get(&pid), Some(&(key(pid, &second), 2001)));
    }

    #[test]
    fn a_name_with_anything_in_it_does_not_move_the_beginning() {
        let stat = b"7 (a) R 1 (\xff) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n";
        assert_eq!(beginning(stat), Some(4711 * TICK));
        assert_eq!(beginning(b"7 (a)"), None);
        assert_eq!(beginning(b""), None);
    }
}
