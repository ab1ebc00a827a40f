//! The text of a list of libraries, as the loader reads it: paths between blanks, colons and line feeds, and comments.

use std::path::Path;

/// The part of a line before its comment, and the rest of it.
fn split_comment(line: &[u8]) -> (&[u8], &[u8]) {
    let end = line.iter().position(|byte| matches!(byte, b'#' | b'\n'));
    line.split_at(end.unwrap_or(line.len()))
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b':')
}

/// The paths in the file, as the loader finds them.
pub(crate) fn entries(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
        .flat_map(|line| split_comment(line).0.split(is_blank))
        .filter(|entry| !entry.is_empty())
}

/// The text with this entry, at its end unless it is there already.
pub(crate) fn with(text: &[u8], library: &Path) -> Vec<u8> {
    let library = library.as_os_str().as_encoded_bytes();
    let mut new = text.to_vec();
    if entries(text).any(|entry| entry == library) {
        return new;
    }
    if new.last().is_some_and(|byte| *byte != b'\n') {
        new.push(b'\n');
    }
    new.extend(library);
    new.push(b'\n');
    new
}

/// The text without this entry, wherever it is. A line that had nothing else goes with it.
pub(crate) fn without(text: &[u8], library: &Path) -> Vec<u8> {
    let library = library.as_os_str().as_encoded_bytes();
    let mut new = Vec::new();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let (list, rest) = split_comment(line);
        if !list.split(is_blank).any(|entry| entry == library) {
            new.extend(line);
            continue;
        }
        // Each entry has the blanks before it.
        let mut kept = Vec::new();
        let mut from = 0;
        while from < list.len() {
            let left = list.get(from..).unwrap_or_default();
            let begin = left
                .iter()
                .position(|byte| !is_blank(byte))
                .unwrap_or(left.len());
            let (blanks, left) = left.split_at(begin);
            let end = left.iter().position(is_blank).unwrap_or(left.len());
            let (entry, _) = left.split_at(end);
            if entry != library {
                kept.extend(blanks);
                kept.extend(entry);
            }
            from += begin + end;
        }
        let is_empty = kept.iter().all(is_blank) && rest.trim_ascii().is_empty();
        if !is_empty {
            new.extend(kept);
            new.extend(rest);
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OURS: &str = "/usr/lib/softmig/libsoftmig.so";

    fn added(text: &str) -> String {
        String::from_utf8(with(text.as_bytes(), Path::new(OURS))).unwrap()
    }

    fn removed(text: &str) -> String {
        String::from_utf8(without(text.as_bytes(), Path::new(OURS))).unwrap()
    }

    #[test]
    fn our_line_comes_last_and_once() {
        assert_eq!(added(""), format!("{OURS}\n"));
        assert_eq!(added("/a.so"), format!("/a.so\n{OURS}\n"));
        assert_eq!(added("/a.so # why\n\n"), format!("/a.so # why\n\n{OURS}\n"));
        assert_eq!(added(&format!("# {OURS}")), format!("# {OURS}\n{OURS}\n"));
        for there in [
            OURS.to_string(),
            format!("/a.so:{OURS} # x\n"),
            format!("\t{OURS}\t/b.so"),
        ] {
            assert_eq!(added(&there), there);
        }
    }

    #[test]
    fn only_our_entry_goes() {
        for (text, rest) in [
            (format!("{OURS}\n"), "".to_string()),
            (OURS.to_string(), "".into()),
            (format!("/a.so\n{OURS}\n/b.so\n"), "/a.so\n/b.so\n".into()),
            (
                format!("/a.so:{OURS} /b.so # two\n"),
                "/a.so /b.so # two\n".into(),
            ),
            (format!("{OURS} /b.so\n"), " /b.so\n".into()),
            (format!("{OURS} # ours\n"), " # ours\n".into()),
            (
                format!("{OURS}{OURS}\n# {OURS}\n"),
                format!("{OURS}{OURS}\n# {OURS}\n"),
            ),
            (format!("{OURS}\n\n{OURS}:{OURS}\n"), "\n".into()),
        ] {
            assert_eq!(removed(&text), rest, "{text}");
        }
    }

    fn texts() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            Just(OURS.to_string()),
            "/[a-c]{1,3}\\.so",
            "[ \t:]{1,2}",
            "\n",
            "#[ a-z]{0,5}",
        ];
        proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
    }

    fn list(text: &str) -> Vec<String> {
        entries(text.as_bytes())
            .map(|entry| String::from_utf8(entry.to_vec()).unwrap())
            .collect()
    }

    proptest! {
        #[test]
        fn adding_and_removing_change_our_entry_alone(text in texts()) {
            let others: Vec<String> = list(&text).into_iter().filter(|entry| entry != OURS).collect();
            prop_assert_eq!(list(&removed(&text)), &others[..]);
            let with_ours = added(&text);
            prop_assert!(with_ours.starts_with(&text));
            prop_assert_eq!(list(&with_ours).contains(&OURS.to_string()), true);
            prop_assert_eq!(added(&with_ours), with_ours.clone());
            if !list(&text).contains(&OURS.to_string()) {
                let back = removed(&with_ours);
                prop_assert_eq!(back.strip_suffix('\n').unwrap_or(&back), text.strip_suffix('\n').unwrap_or(&text));
            }
        }
    }
}
