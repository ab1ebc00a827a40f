//! Which processes a program may see: those of its own job, or of its own `softmig run`.

use crate::node::fixed_str::{Text, text};
use crate::node::identity::job_of;
use crate::node::process_view::ProcessView;

/// The mark by which another process is this process's own.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one of it, and no allocator to box it with"
)]
pub enum Group {
    /// It has no group: no other process is its own.
    None,
    /// To be in this job.
    Job(u32),
    /// To have been started with this in its environment.
    Entry(Entry),
}

/// `NAME=VALUE`.
type Entry = Text<288>;

impl Group {
    /// The processes of this process's `softmig run`; `None` outside of one.
    pub fn of_run(node: &impl ProcessView) -> Option<Self> {
        let run = node.variable(c"SOFTMIG_RUN").filter(|run| !run.is_empty());
        Some(Self::Entry(text(&[b"SOFTMIG_RUN=", run?])))
    }

    /// The processes of a job.
    pub fn of_job(job: Option<u32>) -> Self {
        job.map_or(Self::None, Self::Job)
    }

    /// Whether a process belongs to it. One that cannot be read, or has ended, does not. On nodes whose jobs have no
    /// control groups, a job's processes are those with the same `SLURM_JOB_ID`, which only their own user can read.
    pub fn has(&self, node: &impl ProcessView, pid: u32) -> bool {
        match self {
            Self::None => false,
            Self::Entry(entry) => has_entry(node, pid, entry),
            Self::Job(job) => match node.cgroup(Some(pid), |list| job_of(node, list)) {
                Ok(Some(its)) => its == *job,
                Ok(None) => {
                    let mut entry = text(&[b"SLURM_JOB_ID="]);
                    entry.push_number((*job).into(), 1);
                    has_entry(node, pid, &entry)
                }
                Err(_) => false,
            },
        }
    }
}

/// Whether a process was started with this in its environment. An entry that was cut off matches nothing.
fn has_entry(node: &impl ProcessView, pid: u32, entry: &Entry) -> bool {
    let Some(entry) = entry.as_path() else {
        return false;
    };
    let mut search = Search::new(entry.to_bytes());
    let found = node.environment(pid, |piece| search.is_in(piece));
    found == Ok(true)
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
    fn an_entry_without_an_end_is_not_found() {
        assert!(!Search::new(b"A=1").is_in(b"A=1"));
    }
}
