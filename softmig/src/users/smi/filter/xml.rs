//! The processes in what `nvidia-smi -q -x` prints, which has each element on a line of its own.

use super::line::{Owns, pid};

/// An element about one process, while it is not certain whether it stays.
#[derive(Default)]
pub(super) struct Xml {
    element: Option<Element>,
}

struct Element {
    lines: Vec<u8>,
    end: &'static [u8],
    is_foreign: bool,
}

const ELEMENTS: [(&[u8], &[u8]); 2] = [
    (b"<process_info>", b"</process_info>"),
    (b"<accounted_process_info>", b"</accounted_process_info>"),
];

impl Xml {
    /// Whether it took this line over.
    pub(super) fn line(&mut self, line: &[u8], owns: &Owns, out: &mut Vec<u8>) -> bool {
        let text = line.trim_ascii();
        if let Some(element) = &mut self.element {
            element.lines.extend_from_slice(line);
            let inside = text
                .strip_prefix(b"<pid>")
                .and_then(|text| text.strip_suffix(b"</pid>"));
            if let Some(pid) = inside.and_then(pid) {
                element.is_foreign = !owns(pid);
            }
            if text == element.end {
                self.end(out);
            }
            return true;
        }
        let begun = ELEMENTS.iter().find(|(start, _)| text == *start);
        self.element = begun.map(|(_, end)| Element {
            lines: line.to_vec(),
            end,
            is_foreign: false,
        });
        self.element.is_some()
    }

    /// Whether lines wait for one to come.
    pub(super) fn holds(&self) -> bool {
        self.element.is_some()
    }

    /// The element is at its end.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        if let Some(element) = self.element.take().filter(|element| !element.is_foreign) {
            out.extend(element.lines);
        }
    }
}
