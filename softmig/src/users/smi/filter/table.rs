//! The processes in the table that nvidia-smi prints when it is asked for nothing else.
//!
//! ```text
//! | Processes:                                                                              |
//! |  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
//! |        ID   ID                                                               Usage      |
//! |=========================================================================================|
//! |    0   N/A  N/A            1411      C   python3                                 518MiB |
//! +-----------------------------------------------------------------------------------------+
//! ```
//!
//! Drivers before 450 have no columns GI and CI, and the title is in the first line.

use super::line::{Owns, pid, split_line, words};

/// The text of the table when there are no processes.
const NONE: &[u8] = b"|  No running processes found";

/// Where the table of processes is.
#[derive(Default)]
pub(super) enum Table {
    #[default]
    Outside,
    /// Between its first line and the double one.
    Title {
        /// Which of the words in a row is the process id.
        pid: Option<usize>,
    },
    Rows(Rows),
}

/// The rows so far.
pub(super) struct Rows {
    pid: Option<usize>,
    /// How wide the table is.
    width: usize,
    kept: bool,
    /// The line feed of a row that was taken out.
    taken: Option<Vec<u8>>,
}

impl Table {
    /// Whether it took this line over.
    pub(super) fn line(&mut self, line: &[u8], owns: &Owns, out: &mut Vec<u8>) -> bool {
        let (text, end) = split_line(line);
        match self {
            Self::Outside => {
                if text.starts_with(b"| Processes:") {
                    *self = Self::Title { pid: None };
                }
                false
            }
            Self::Title { pid } => {
                if text.starts_with(b"|=") {
                    *self = Self::Rows(Rows {
                        pid: *pid,
                        width: text.len(),
                        kept: false,
                        taken: None,
                    });
                } else if let Some(at) = words(text).position(|word| word == b"PID") {
                    *pid = Some(at);
                } else if !text.starts_with(b"|") {
                    *self = Self::Outside;
                }
                false
            }
            Self::Rows(rows) => {
                if !text.starts_with(b"|") {
                    self.end(out);
                    return false;
                }
                let is_foreign = rows.pid_of(text).is_some_and(|pid| !owns(pid));
                if is_foreign {
                    rows.taken = Some(end.to_vec());
                } else {
                    rows.kept = true;
                }
                is_foreign
            }
        }
    }

    /// The table is at its end.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        if let Self::Rows(rows) = self
            && let (false, Some(end)) = (rows.kept, rows.taken.take())
        {
            out.extend_from_slice(NONE);
            let blanks = rows.width.saturating_sub(NONE.len() + 1);
            out.extend(std::iter::repeat_n(b' ', blanks));
            out.push(b'|');
            out.extend(end);
        }
        *self = Self::Outside;
    }
}

impl Rows {
    fn pid_of(&self, row: &[u8]) -> Option<u32> {
        pid(words(row).nth(self.pid?)?)
    }
}
