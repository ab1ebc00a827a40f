//! The line by which softmig knows again a file that it wrote into a folder of the site's, and sees whether it was changed
//! since.

use sha2::{Digest, Sha256};

/// The beginning of the line, before its digest.
const SAYS: &str = "softmig wrote this file, and replaces it while its sha256 is ";

/// The text with the line, which comes first, or second in a program.
pub(crate) fn stamped(text: &str) -> String {
    let line = format!("# {SAYS}{}\n", digest(text.as_bytes()));
    let at = if text.starts_with("#!") {
        text.find('\n').map_or(text.len(), |end| end + 1)
    } else {
        0
    };
    let (before, after) = text.split_at(at);
    format!("{before}{line}{after}")
}

/// Whether softmig wrote this, and it is as it was written.
pub(crate) fn is_untouched(bytes: &[u8]) -> bool {
    let (said, rest) = parts(bytes);
    said.is_some_and(|said| said == digest(&rest))
}

/// A file's text without the line.
pub(crate) fn unstamped(bytes: &[u8]) -> Vec<u8> {
    parts(bytes).1
}

/// The digest of the line, and all but the line.
fn parts(bytes: &[u8]) -> (Option<String>, Vec<u8>) {
    let mut rest = Vec::new();
    let mut said = None;
    for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        match digest_in(line).filter(|_| number < 2 && said.is_none()) {
            Some(digest) => said = Some(digest),
            None => rest.extend(line),
        }
    }
    (said, rest)
}

fn digest_in(line: &[u8]) -> Option<String> {
    let line = std::str::from_utf8(line).ok()?;
    let (_, digest) = line.split_once(SAYS)?;
    Some(digest.trim_end().to_string())
}

fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_file_is_known_again_until_it_is_changed() {
        let text = "a = 1\nb = 2\n";
        let file = stamped(text);
        let digest = "fe9c2dadb34bee2ae03fc8fe25e26c64ce2f572a53a127db5d6e73899b64fc11";
        let line = file.lines().next().unwrap();
        assert!(line.starts_with("# ") && line.ends_with(digest), "{line}");
        assert!(is_untouched(file.as_bytes()));
        for changed in [
            text.to_string(),
            file.replace("a = 1", "a = 2"),
            format!("{file}c = 3\n"),
            format!("\n\n{file}"),
            file.replacen("is ", "is 0", 2),
            String::new(),
        ] {
            assert!(!is_untouched(changed.as_bytes()), "{changed}");
        }
    }

    #[test]
    fn a_program_stays_one() {
        let file = stamped("#!/bin/sh\nset -eu\n");
        assert!(file.starts_with("#!/bin/sh\n# softmig wrote"), "{file}");
        assert!(is_untouched(file.as_bytes()));
    }

    proptest! {
        #[test]
        fn any_text_is_known_again(text in "\\PC*(\n\\PC*){0,4}") {
            prop_assert!(is_untouched(stamped(&text).as_bytes()));
        }

        #[test]
        fn any_bytes_are_taken(bytes: Vec<u8>) {
            prop_assert!(!is_untouched(&bytes));
        }
    }
}
