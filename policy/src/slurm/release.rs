//! Releases of Slurm, and what each of them does in its own way.

use crate::slurm::gres::Prefix;
use std::fmt;
use std::str::FromStr;

/// A Slurm release, such as 24.11.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlurmVersion {
    /// The year.
    pub major: u8,
    /// The month.
    pub minor: u8,
}

impl SlurmVersion {
    /// The oldest release that softmig works with.
    const OLDEST: Self = Self {
        major: 20,
        minor: 11,
    };

    /// The newest release whose forms are known here.
    pub const NEWEST: Self = Self {
        major: 26,
        minor: 5,
    };

    /// How this release marks a GRES.
    pub fn prefix(self) -> Prefix {
        match (self.major, self.minor) {
            (..=20, _) | (21, ..=7) => Prefix::None,
            (..=22, _) | (23, ..=10) => Prefix::Colon,
            _ => Prefix::Slash,
        }
    }
}

impl fmt::Display for SlurmVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.major, self.minor)
    }
}

impl FromStr for SlurmVersion {
    type Err = String;

    /// Also as `sinfo --version` prints it: `slurm 24.11.5`, from Debian `slurm-wlm 24.11.5`.
    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (["slurm" | "slurm-wlm", release] | [release]) = words.as_slice() else {
            return Err(no_release(text));
        };
        let mut parts = release.split('.');
        // Two digits each: 24.1 is not 24.11.
        let number = |part: &str| {
            let plain = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| part.parse::<u8>().ok())?
        };
        let (major, minor) = (parts.next(), parts.next());
        let (Some(major), Some(minor)) = (major.and_then(number), minor.and_then(number)) else {
            return Err(no_release(text));
        };
        let version = Self { major, minor };
        let named = |part: &str| part.starts_with(|first: char| first.is_ascii_digit());
        if !MONTHS.contains(&minor) || !parts.next().is_none_or(named) {
            return Err(no_release(text));
        }
        if version < Self::OLDEST {
            return Err(format!(
                "Slurm {version} is too old: softmig works from {} on; write for example 24.11",
                Self::OLDEST
            ));
        }
        Ok(version)
    }
}

/// The months in which Slurm is released.
const MONTHS: [u8; 4] = [2, 5, 8, 11];

fn no_release(text: &str) -> String {
    format!(
        "\"{text}\" is no Slurm release: those are called by year and month, which is 02, 05, 08 or 11; write for example 24.11"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> SlurmVersion {
        text.parse().unwrap()
    }

    #[test]
    fn each_release_has_its_own_mark() {
        for (text, prefix) in [
            ("20.11", Prefix::None),
            ("21.08", Prefix::Colon),
            ("22.05.8", Prefix::Colon),
            ("23.02", Prefix::Colon),
            ("23.11", Prefix::Slash),
            ("24.05", Prefix::Slash),
            ("26.05", Prefix::Slash),
        ] {
            assert_eq!(version(text).prefix(), prefix, "{text}");
        }
    }

    #[test]
    fn a_release_is_written_as_slurm_writes_it() {
        for text in [
            "24.11",
            "24.11.3",
            "24.11.0-0rc1",
            "slurm 24.11.0",
            "slurm-wlm 24.11.5",
        ] {
            assert_eq!(version(text).to_string(), "24.11", "{text}");
        }
        let error = |text: &str| text.parse::<SlurmVersion>().unwrap_err();
        for text in [
            "", "24", "24.1", "24.5", "24.13", "24.12", "24.x", "2024.11", "24.11.", "24.11.x",
            "24.+1", "v24.11", "slurm",
        ] {
            let told = format!("\"{text}\" is no Slurm release");
            assert!(error(text).starts_with(&told), "{text}: {}", error(text));
            assert!(error(text).ends_with("write for example 24.11"));
        }
        for text in ["19.05", "20.02", "20.02.7", "20.08"] {
            assert!(
                error(text).contains("is too old: softmig works from 20.11 on"),
                "{text}"
            );
        }
    }
}
