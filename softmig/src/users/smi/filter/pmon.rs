//! The lines of `nvidia-smi pmon`: for each GPU one for each process, or one without a process, again and again.
//!
//! ```text
//! # gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command
//! # Idx           #    C/G      %      %      %      %      %      %    name
//!     0       1411     C     98     12      -      -      -      -    python3
//!     1          -     -      -      -      -      -      -      -    -
//! ```
//!
//! With `-o DT` the date and the time are before the GPU.

use super::line::{Owns, pid, split_line};
use std::ops::Range;

/// The facts from the lines so far.
#[derive(Default)]
pub(super) struct Pmon {
    columns: Option<Columns>,
    group: Option<Group>,
}

/// Which of the words in a row is what.
#[derive(Clone, Copy)]
struct Columns {
    pid: usize,
    command: usize,
}

/// The processes of one GPU in one sample.
struct Group {
    /// The text before the process id: the GPU, and the time.
    key: Vec<Vec<u8>>,
    /// The ids and types so far. Nothing else tells one sample of a single GPU from the next.
    seen: Vec<[Vec<u8>; 2]>,
    /// The line that says that the GPU has no process, unless one was kept.
    idle: Option<Vec<u8>>,
}

impl Pmon {
    /// One line goes on, or not.
    pub(super) fn line(&mut self, line: &[u8], owns: &Owns, out: &mut Vec<u8>) {
        let (text, _) = split_line(line);
        if let Some(title) = text.strip_prefix(b"#") {
            // The second line of a title has other words.
            if let Some(columns) = Columns::read(title) {
                self.columns = Some(columns);
            }
        } else if let Some((columns, spans, pid)) = self.process(text) {
            self.row(line, columns, &spans, owns(pid), out);
            return;
        }
        self.flush(out);
        out.extend_from_slice(line);
    }

    /// Nothing more is to come for this GPU and sample.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        if let Some(group) = self.group.take() {
            out.extend(group.idle.unwrap_or_default());
        }
    }

    /// Whether there is something to flush.
    pub(super) fn waits(&self) -> bool {
        self.group
            .as_ref()
            .is_some_and(|group| group.idle.is_some())
    }

    /// Reads the row of a process.
    fn process(&self, text: &[u8]) -> Option<(Columns, Vec<Range<usize>>, u32)> {
        let columns = self.columns?;
        let spans = spans(text);
        let pid = pid(text.get(spans.get(columns.pid)?.clone())?)?;
        Some((columns, spans, pid))
    }

    fn row(
        &mut self,
        line: &[u8],
        columns: Columns,
        spans: &[Range<usize>],
        is_own: bool,
        out: &mut Vec<u8>,
    ) {
        let word = |at: usize| {
            let span = spans.get(at).cloned().unwrap_or_default();
            line.get(span).unwrap_or_default().to_vec()
        };
        let key: Vec<Vec<u8>> = (0..columns.pid).map(word).collect();
        let process = [word(columns.pid), word(columns.pid + 1)];
        let is_next = |group: &Group| group.key != key || group.seen.contains(&process);
        if self.group.as_ref().is_none_or(is_next) {
            self.flush(out);
            self.group = Some(Group {
                key,
                seen: Vec::new(),
                idle: (!is_own).then(|| idle(line, columns, spans)),
            });
        }
        if let Some(group) = &mut self.group {
            group.seen.push(process);
            if is_own {
                group.idle = None;
            }
        }
        if is_own {
            out.extend_from_slice(line);
        }
    }
}

impl Columns {
    fn read(title: &[u8]) -> Option<Self> {
        let at = |name: &[u8]| super::line::words(title).position(|word| word == name);
        Some(Self {
            pid: at(b"pid")?,
            command: at(b"command")?,
        })
    }
}

/// The row of a GPU without processes, in the columns of a row that has one: numbers to the right, the name to the left.
fn idle(line: &[u8], columns: Columns, spans: &[Range<usize>]) -> Vec<u8> {
    let mut row = line.to_vec();
    let length = split_line(line).0.len();
    for (at, span) in spans.iter().enumerate().skip(columns.pid) {
        // A name may have blanks in it, so it is all that is left.
        let (cleared, dash) = if at < columns.command {
            (span.clone(), span.end.saturating_sub(1))
        } else {
            (span.start..length, span.start)
        };
        if let Some(cleared) = row.get_mut(cleared) {
            cleared.fill(b' ');
        }
        if let Some(place) = row.get_mut(dash) {
            *place = b'-';
        }
        if at >= columns.command {
            break;
        }
    }
    row
}

/// Where the words of a line are.
fn spans(text: &[u8]) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    let mut start = None;
    for (at, byte) in text.iter().chain(b" ").enumerate() {
        match (byte.is_ascii_whitespace(), start) {
            (true, Some(from)) => {
                spans.push(from..at);
                start = None;
            }
            (false, None) => start = Some(at),
            _ => {}
        }
    }
    spans
}
