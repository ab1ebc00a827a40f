//! The parts of a line that nvidia-smi prints.

/// Says whether a process is one of the caller's own.
pub(super) type Owns = Box<dyn Fn(u32) -> bool>;

/// A line in two: what it says, and the line feed that ends it, if it has one.
pub(super) fn split_line(line: &[u8]) -> (&[u8], &[u8]) {
    let end = match line {
        [.., b'\r', b'\n'] => 2,
        [.., b'\n'] => 1,
        _ => 0,
    };
    line.split_at(line.len() - end)
}

/// A process id as nvidia-smi prints it.
pub(super) fn pid(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// The words of a line that blanks separate.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}
