//! The lines of `--query-compute-apps`: fields separated by a comma and a blank, the process id before all others.

use super::line::{Owns, pid, split_line};

/// Takes lines out, and the first field out of the others.
pub(super) struct Apps;

impl Apps {
    /// One line goes on, or not.
    pub(super) fn line(&mut self, line: &[u8], owns: &Owns, out: &mut Vec<u8>) {
        let (text, _) = split_line(line);
        let comma = text.windows(2).position(|pair| pair == b", ");
        let Some((first, rest)) = comma.and_then(|at| Some((text.get(..at)?, line.get(at + 2..)?)))
        else {
            return out.extend_from_slice(line);
        };
        if let Some(pid) = pid(first) {
            if owns(pid) {
                out.extend_from_slice(rest);
            }
        } else if first == b"pid" || (first.starts_with(b"[") && first.ends_with(b"]")) {
            // The heading, and what nvidia-smi has for an id that it cannot tell.
            out.extend_from_slice(rest);
        } else {
            out.extend_from_slice(line);
        }
    }
}
