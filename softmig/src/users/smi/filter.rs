//! Takes the rows of others' processes out of what nvidia-smi prints, and leaves every other byte as it is.
//!
//! nvidia-smi's output is taken line by line. A line goes on at once unless it depends on a later one whether it may.

mod apps;
mod line;
mod list;
mod pmon;
mod table;
mod xml;

use crate::users::smi::request::Form;
use apps::Apps;
use line::Owns;
use list::List;
use pmon::Pmon;
use table::Table;
use xml::Xml;

/// The filter for one run of nvidia-smi.
pub(crate) struct Filter {
    rows: Rows,
    owns: Owns,
    /// A line that has not come to its end.
    line: Vec<u8>,
    /// How much of it went on already.
    shown: usize,
}

/// The facts from the lines so far.
enum Rows {
    /// Any of the forms of a report, which begin differently.
    Report {
        table: Table,
        list: List,
        xml: Xml,
    },
    Apps(Apps),
    Pmon(Pmon),
}

impl Filter {
    /// A filter for this form; `None` for one that has nothing to take out.
    pub(crate) fn new(form: Form, owns: impl Fn(u32) -> bool + 'static) -> Option<Self> {
        let rows = match form {
            Form::Untouched => return None,
            Form::Report => Rows::Report {
                table: Table::default(),
                list: List::default(),
                xml: Xml::default(),
            },
            Form::Apps => Rows::Apps(Apps),
            Form::Pmon => Rows::Pmon(Pmon::default()),
        };
        Some(Self {
            rows,
            owns: Box::new(owns),
            line: Vec::new(),
            shown: 0,
        })
    }

    /// Takes what nvidia-smi has printed next, and adds to `out` what goes on.
    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.finish_line(out);
            }
        }
    }

    /// Nothing has come for a while: what waited for more goes on, as far as that is safe.
    pub(crate) fn pause(&mut self, out: &mut Vec<u8>) {
        if let Rows::Pmon(pmon) = &mut self.rows {
            pmon.flush(out);
        }
        if self.rows.is_nothing(&self.line) {
            out.extend_from_slice(self.line.get(self.shown..).unwrap_or_default());
            self.shown = self.line.len();
        }
    }

    /// Whether something waits that a pause would let go on.
    pub(crate) fn waits(&self) -> bool {
        let of_pmon = matches!(&self.rows, Rows::Pmon(pmon) if pmon.waits());
        of_pmon || self.line.len() > self.shown && self.rows.is_nothing(&self.line)
    }

    /// nvidia-smi is at its end.
    pub(crate) fn end(&mut self, out: &mut Vec<u8>) {
        if !self.line.is_empty() {
            self.finish_line(out);
        }
        match &mut self.rows {
            Rows::Report { table, list, xml } => {
                table.end(out);
                list.end(out);
                xml.end(out);
            }
            Rows::Apps(_) => {}
            Rows::Pmon(pmon) => pmon.flush(out),
        }
    }

    fn finish_line(&mut self, out: &mut Vec<u8>) {
        let line = std::mem::take(&mut self.line);
        let shown = std::mem::take(&mut self.shown);
        match line.get(shown..) {
            Some(rest) if shown > 0 => out.extend_from_slice(rest),
            _ => self.rows.line(&line, &self.owns, out),
        }
    }
}

impl Rows {
    fn line(&mut self, line: &[u8], owns: &Owns, out: &mut Vec<u8>) {
        match self {
            Self::Apps(apps) => apps.line(line, owns, out),
            Self::Pmon(pmon) => pmon.line(line, owns, out),
            Self::Report { table, list, xml } => {
                // Each takes a line only within its own part of the output, and the one that holds lines comes first.
                let is_taken = xml.holds() && xml.line(line, owns, out)
                    || list.line(line, owns, out)
                    || xml.line(line, owns, out)
                    || table.line(line, owns, out);
                if !is_taken {
                    out.extend_from_slice(line);
                }
            }
        }
    }

    /// Whether a line that begins like this says nothing about processes, such as a question that waits for an answer.
    fn is_nothing(&self, start: &[u8]) -> bool {
        let Some(first) = start.first() else {
            return false;
        };
        match self {
            Self::Report { table, list, xml } => {
                let is_outside = matches!(table, Table::Outside) && !list.is_inside();
                is_outside && !xml.holds() && !matches!(first, b'|' | b'+' | b' ' | b'\t' | b'<')
            }
            Self::Apps(_) => !matches!(first, b'p' | b'[' | b'0'..=b'9'),
            Self::Pmon(_) => !matches!(first, b'#' | b' ' | b'0'..=b'9'),
        }
    }
}

#[cfg(test)]
mod tests;
