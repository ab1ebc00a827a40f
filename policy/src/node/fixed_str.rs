//! Text in a fixed buffer: paths and log lines, without an allocator and without `core::fmt`.

use core::ffi::CStr;

/// At most `N - 1` bytes of text; what does not fit is cut off.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Text<N> {
    /// An empty text.
    pub const fn new() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }

    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        // The last byte stays zero.
        let room = self
            .bytes
            .iter_mut()
            .take(N.saturating_sub(1))
            .skip(self.len);
        for (place, byte) in room.zip(bytes) {
            *place = *byte;
            self.len = self.len.saturating_add(1);
        }
    }

    /// Adds a number with at least `width` digits.
    pub fn push_number(&mut self, mut number: u64, width: usize) {
        let mut digits = [b'0'; 20];
        let mut first = digits.len();
        for (at, digit) in digits.iter_mut().enumerate().rev() {
            if number == 0 && digits_from(at) > width.max(1) {
                break;
            }
            *digit = b'0'.wrapping_add((number % 10) as u8);
            number /= 10;
            first = at;
        }
        self.push(digits.get(first..).unwrap_or_default());
    }

    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// The text as a path; `None` when it was too long for one.
    pub fn as_path(&self) -> Option<&CStr> {
        if self.len.saturating_add(1) >= N {
            return None;
        }
        CStr::from_bytes_until_nul(&self.bytes).ok()
    }
}

/// How many digits there are from this place to the end of the buffer.
fn digits_from(at: usize) -> usize {
    20_usize.saturating_sub(at)
}

/// The text of several parts.
pub fn text<const N: usize>(parts: &[&[u8]]) -> Text<N> {
    let mut text = Text::new();
    for part in parts {
        text.push(part);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for (number, width, written) in [
            (0, 0, "0"),
            (0, 2, "00"),
            (7, 2, "07"),
            (10, 1, "10"),
            (123, 2, "123"),
            (u64::MAX, 0, "18446744073709551615"),
        ] {
            let mut text = Text::<32>::new();
            text.push_number(number, width);
            assert_eq!(core::str::from_utf8(text.as_bytes()).unwrap(), written);
        }
    }

    #[test]
    fn text_that_is_too_long_is_cut_and_no_path() {
        let long = text::<8>(&[b"/var", b"/run/softmig"]);
        assert_eq!(long.as_bytes(), b"/var/ru");
        assert_eq!(long.as_path(), None);
        let short = text::<8>(&[b"/var", b"/r"]);
        assert_eq!(short.as_path(), Some(c"/var/r"));
    }
}
