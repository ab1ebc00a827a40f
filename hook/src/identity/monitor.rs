//! Asks the monitor. Root's answers alone are believed.

use softmig_policy::node::paths::ARBITER_SOCKET;

use crate::os::{self, Error, File};

/// The time between the first two tries, which becomes twice as long each time.
const PAUSE_NS: u64 = 50_000_000;
/// The longest: of many processes that ask.
const LONGEST_PAUSE_NS: u64 = 800_000_000;

/// Asks once. An answer begins with an errno; where that is 0, a file may be beside it.
pub(crate) fn ask(question: &[u8], answer: &mut [u8]) -> Result<Option<File>, Error> {
    /// The number of root in a user namespace that does not map root.
    const NOBODY: u32 = 65534;
    let peer = os::ask(ARBITER_SOCKET, question, answer)?;
    if peer.uid != 0 && peer.uid != NOBODY {
        return Err(Error(libc::EPERM));
    }
    let errno = answer.first_chunk().ok_or(Error(libc::EBADMSG))?;
    match i32::from_le_bytes(*errno) {
        0 => Ok(peer.file),
        error => Err(Error(error)),
    }
}

/// Asks again and again until there is an answer. `patience` says for how many milliseconds in all, by the last error.
pub(super) fn insist<T>(
    mut ask: impl FnMut() -> Result<T, Error>,
    patience: impl Fn(Error) -> u64,
) -> Result<T, Error> {
    let (start, mut pause) = (os::milliseconds(), PAUSE_NS);
    loop {
        let answer = ask();
        let took = os::milliseconds().saturating_sub(start);
        match answer {
            Err(error) if took < patience(error) => os::nap(pause),
            _ => return answer,
        }
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE_NS);
    }
}

/// Whether it listens.
pub(super) fn listens() -> bool {
    os::is_listening(ARBITER_SOCKET)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_again_as_long_as_the_last_error_is_worth() {
        let patience = |error| if error == Error::AGAIN { 10_000 } else { 0 };
        let mut answers = [Err(Error::AGAIN), Ok(1), Ok(2)].into_iter();
        assert_eq!(insist(|| answers.next().unwrap(), patience), Ok(1));
        let mut answers = [Err(Error::AGAIN), Err(Error::MISSING), Ok(2)].into_iter();
        let answer = insist(|| answers.next().unwrap(), patience);
        assert_eq!(answer, Err(Error::MISSING));
    }
}
