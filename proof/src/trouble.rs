//! Why something was not measured.

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
