//! The processes in the list that `nvidia-smi -q` prints.
//!
//! ```text
//! GPU 00000000:01:00.0
//!     Processes
//!         GPU instance ID                   : N/A
//!         Compute instance ID               : N/A
//!         Process ID                        : 1411
//!             Type                          : C
//!             Name                          : python3
//!             Used GPU Memory               : 518 MiB
//! ```
//!
//! Drivers before 450 begin with the process id. Without processes it is one line, `Processes : None`, whose colon is
//! below those of the GPU's other lines: in newer drivers not where those of processes are.

use super::line::{Owns, pid, split_line};

/// Where the list of processes is.
#[derive(Default)]
pub(super) struct List {
    /// Where the colons are outside of it. In it they may be elsewhere.
    colon: Option<usize>,
    section: Option<Section>,
}

/// The lines so far of one GPU's processes.
struct Section {
    /// Its first line, while it is not certain that one of its processes stays.
    title: Option<Vec<u8>>,
    /// How far the title is indented.
    indent: usize,
    /// The first key of each process.
    first_key: Option<Vec<u8>>,
    /// Where the colon is if there are no processes.
    colon: Option<usize>,
    entry: Entry,
    taken: bool,
}

/// The decision on the process that the lines are about.
enum Entry {
    /// It depends on a line to come.
    Held(Vec<u8>),
    Kept,
    Taken,
}

const TITLES: [&[u8]; 2] = [b"Processes", b"Accounted Processes"];

impl List {
    /// Whether it took this line over.
    pub(super) fn line(&mut self, line: &[u8], owns: &Owns, out: &mut Vec<u8>) -> bool {
        let (text, _) = split_line(line);
        let indent = text.iter().take_while(|byte| **byte == b' ').count();
        if let Some(section) = &mut self.section {
            if indent > section.indent && indent < text.len() {
                section.line(line, owns, out);
                return true;
            }
            self.end(out);
        }
        if indent > 0 && TITLES.contains(&text.trim_ascii()) {
            self.section = Some(Section {
                title: Some(line.to_vec()),
                indent,
                first_key: None,
                colon: self.colon,
                entry: Entry::Kept,
                taken: false,
            });
            return true;
        }
        if self.colon.is_none() {
            self.colon = text
                .windows(3)
                .position(|three| three == b" : ")
                .map(|at| at + 1);
        }
        false
    }

    /// Whether lines may wait for others to come.
    pub(super) fn is_inside(&self) -> bool {
        self.section.is_some()
    }

    /// The list is at its end.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        if let Some(section) = self.section.take() {
            section.end(out);
        }
    }
}

impl Section {
    fn line(&mut self, line: &[u8], owns: &Owns, out: &mut Vec<u8>) {
        let (text, _) = split_line(line);
        let Some(colon) = text.iter().position(|byte| *byte == b':') else {
            return self.add(line, out);
        };
        let (key, value) = text.split_at(colon);
        let key = key.trim_ascii();
        if self.first_key.is_none() {
            self.first_key = Some(key.to_vec());
            self.colon.get_or_insert(colon);
        }
        if self.first_key.as_deref() == Some(key) {
            self.settle(out);
            self.entry = Entry::Held(Vec::new());
        }
        self.add(line, out);
        if key == b"Process ID"
            && let Some(pid) = pid(value.get(1..).unwrap_or_default().trim_ascii())
        {
            if owns(pid) {
                self.settle(out);
            } else {
                self.entry = Entry::Taken;
                self.taken = true;
            }
        }
    }

    /// One more line of the same process.
    fn add(&mut self, line: &[u8], out: &mut Vec<u8>) {
        match &mut self.entry {
            Entry::Held(lines) => lines.extend_from_slice(line),
            Entry::Kept => {
                out.extend(self.title.take().unwrap_or_default());
                out.extend_from_slice(line);
            }
            Entry::Taken => {}
        }
    }

    /// Nothing speaks against this process.
    fn settle(&mut self, out: &mut Vec<u8>) {
        if let Entry::Held(lines) = &self.entry {
            out.extend(self.title.take().unwrap_or_default());
            out.extend_from_slice(lines);
            self.entry = Entry::Kept;
        }
    }

    fn end(mut self, out: &mut Vec<u8>) {
        self.settle(out);
        let Some(title) = self.title else { return };
        if !self.taken {
            return out.extend(title);
        }
        let (text, end) = split_line(&title);
        let text = text.trim_ascii_end();
        out.extend_from_slice(text);
        let blanks = self.colon.unwrap_or_default().saturating_sub(text.len());
        out.extend(std::iter::repeat_n(b' ', blanks));
        out.extend_from_slice(b": None");
        out.extend_from_slice(end);
    }
}
