//! Why something was not measured.

/// Why something was not measured, or has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The driver refuses a call that steering needs.
    Refused(String),
    /// It could not be measured, so nothing is known.
    NotMeasured(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Refused(why) | Self::NotMeasured(why)) = self;
        f.write_str(why)
    }
}

impl From<softmig_rm::Error> for Trouble {
    fn from(error: softmig_rm::Error) -> Self {
        use softmig_rm::{Error, ErrorKind};
        /// `NV_ERR_GPU_IS_LOST`, `INVALID_STATE` and `RESET_REQUIRED`: of this GPU now, and not of its kind.
        const ILL: [u32; 3] = [0x0f, 0x40, 0x62];
        let text = error.to_string();
        match error {
            Error::Io(_) | Error::NoGpu => Self::NotMeasured(text),
            Error::Refused { status, .. } if ILL.contains(&status) => Self::NotMeasured(text),
            error if error.kind() == ErrorKind::Passing => Self::NotMeasured(text),
            _ => Self::Refused(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_rm::Error;

    #[test]
    fn a_refusal_is_an_answer_and_what_may_pass_is_none() {
        let refused = |status| {
            Trouble::from(Error::Refused {
                command: 0x2080_110b,
                status,
            })
        };
        for status in [0x56, 0x1b, 0x57] {
            assert!(matches!(refused(status), Trouble::Refused(_)));
        }
        for status in [0x51, 0x0f, 0x62] {
            assert!(matches!(refused(status), Trouble::NotMeasured(_)));
        }
        let closed = Error::Io(std::io::ErrorKind::PermissionDenied.into());
        assert!(matches!(closed.into(), Trouble::NotMeasured(_)));
        let old = Error::Old("530.30.02".into());
        assert!(matches!(old.into(), Trouble::Refused(_)));
    }
}
