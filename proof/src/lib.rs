//! Measures on a GPU whether steering it by its own scheduler has effect.
//!
//! Two short programs ([`load`]) keep the GPU busy for some seconds. Meanwhile root does with them what softmig-monitor does
//! with jobs, and looks at what they get:
//!
//! | step | what is done | what has to be seen |
//! |---|---|---|
//! | `open` | the GPU and its log are opened | the driver takes the calls |
//! | `log` | nothing | the log of context switches has both programs |
//! | `slices` | time slices of 8000 and 2000 us are set | 80 % and 20 % of the time and of the work |
//! | `hold` | the first one's channels are disabled | it is not on the GPU and gets nothing done, and the other goes on |
//! | `go_on` | they are enabled | it goes on |
//!
//! [`prove`] does it all on a GPU. `steps` has the order, `verdict` what the figures mean; both know no GPU. The programs are
//! processes of this executable, since each has to have a context and channels of its own. They note their channels
//! themselves (`noted`).

mod bench;
mod cuda;
mod load;
mod noted;
mod program;
mod residence;
mod steps;
mod verdict;

pub use bench::prove;
pub use load::run as load;
pub use steps::{Figures, Outcome};
pub use verdict::Phase;

/// Why something was not measured, or has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The driver refuses a call that steering needs.
    Refused(String),
    /// It could not be measured, so nothing is known.
    NotMeasured(String),
}

impl From<softmig_rm::Error> for Trouble {
    fn from(error: softmig_rm::Error) -> Self {
        /// `NV_ERR_INSUFFICIENT_PERMISSIONS`.
        const NO_RIGHTS: u32 = 0x1b;
        let text = error.to_string();
        match error {
            softmig_rm::Error::Refused { status, .. } if status != NO_RIGHTS => Self::Refused(text),
            _ => Self::NotMeasured(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_rm::Error;

    #[test]
    fn a_call_that_the_driver_does_not_know_is_an_answer_and_missing_rights_are_none() {
        let refused = |status| {
            Trouble::from(Error::Refused {
                command: 0x2080_110b,
                status,
            })
        };
        assert!(matches!(refused(0x56), Trouble::Refused(_)));
        assert!(matches!(refused(0x1b), Trouble::NotMeasured(_)));
        let closed = Error::Io(std::io::ErrorKind::PermissionDenied.into());
        assert!(matches!(closed.into(), Trouble::NotMeasured(_)));
    }
}
