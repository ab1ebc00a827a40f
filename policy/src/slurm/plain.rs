//! Plain text: what a terminal, a log and slurm.conf can take.

/// The characters that may go to terminals and logs.
pub(crate) fn is_plain(letter: char) -> bool {
    letter == ' ' || letter.is_ascii_graphic()
}
