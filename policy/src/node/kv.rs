//! Splitting text at a byte.
//!
//! `str::split` can do this too, but the compiler does not see that its searcher cannot panic, and in the hook
//! nothing may.

/// The text before the first `byte` and after it; `None` without such a byte.
pub(crate) fn split_once(text: &str, byte: u8) -> Option<(&str, &str)> {
    let at = text.bytes().position(|other| other == byte)?;
    let (before, rest) = text.split_at_checked(at)?;
    let (_, after) = rest.split_at_checked(1)?;
    Some((before, after))
}

/// The parts of the text between the `byte`s: one more than there are of these.
pub(crate) fn split(text: &str, byte: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    core::iter::from_fn(move || {
        let text = rest?;
        let (part, after) =
            split_once(text, byte).map_or((text, None), |(part, after)| (part, Some(after)));
        rest = after;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_splits_as_std_does() {
        for text in [
            "",
            "=",
            "a",
            "a=",
            "=a",
            "a=b",
            "a==b",
            "a=b=c",
            "\u{e9}=\u{e9}",
        ] {
            assert_eq!(split_once(text, b'='), text.split_once('='), "{text}");
            assert!(split(text, b'=').eq(text.split('=')), "{text}");
        }
    }
}
