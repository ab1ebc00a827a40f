//! Releases of Slurm, and the differences between them that softmig depends on.
//!
//! Each difference has a name here, and no other file compares releases. The first release of each is the one that
//! Slurm's sources and notes name. "Seen" says on which releases a cluster was tried.
//!
//! Some differences can be seen in Slurm itself where the release is not known. `job-submit` looks whether Slurm gives
//! scripts `ESLURM_INVALID_GRES`, which came with `extra` in the prolog (23.02). The prolog uses the variables that are
//! in its environment (`SLURM_JOB_START_TIME` from 23.02, `SLURM_JOB_GID` from 23.11, `SLURM_JOB_SLUID` from 25.11).

use crate::slurm::gres::Prefix;
use std::fmt;
use std::str::FromStr;

/// A Slurm release, such as 24.11 or 24.11.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlurmVersion {
    /// The year.
    pub major: u8,
    /// The month.
    pub minor: u8,
    /// The third number. A release without it counts as the first of its month, which lacks the additions of later
    /// ones.
    pub micro: u8,
}

const fn release(major: u8, minor: u8, micro: u8) -> SlurmVersion {
    SlurmVersion {
        major,
        minor,
        micro,
    }
}

impl SlurmVersion {
    /// The oldest release that softmig works with.
    const OLDEST: Self = release(20, 11, 0);

    /// The newest release whose forms are known here.
    pub const NEWEST: Self = release(26, 5, 0);

    /// How this release marks a GRES in `job_desc`.
    pub fn prefix(self) -> Prefix {
        if self.marks_with_slash() {
            Prefix::Slash
        } else if self.marks_with_colon() {
            Prefix::Colon
        } else {
            Prefix::None
        }
    }
}

/// For each difference: the first release that has it, and the question whether a release does.
macro_rules! differences {
    ($($(#[$doc:meta])* $question:ident $first:ident = $major:literal $minor:literal $($micro:literal)?;)*) => {
        impl SlurmVersion {
            $(
                #[doc = concat!("The first release for which [`Self::", stringify!($question), "`] holds.")]
                pub const $first: Self = release($major, $minor, 0 $(+ $micro)?);

                $(#[$doc])*
                pub fn $question(self) -> bool {
                    self >= Self::$first
                }
            )*
        }
    };
}

differences! {
    /// Marks a GRES as `gres:gpu:1`, where earlier ones have `gpu:1`. Seen on 22.05.
    marks_with_colon MARKS_WITH_COLON = 21 8;
    /// Has `SelectType=select/cons_tres`, which counts shards, by default.
    counts_shards_by_default COUNTS_SHARDS_BY_DEFAULT = 23 2;
    /// Gives a job's `extra` to the prolog, as `SLURM_JOB_EXTRA`. Seen on 24.11, and missing on 22.05.
    passes_extra_to_prolog PASSES_EXTRA_TO_PROLOG = 23 2;
    /// Marks a GRES as `gres/gpu:1`. Seen on 24.11 and 26.05.
    marks_with_slash MARKS_WITH_SLASH = 23 11;
    /// Can take the GPU with the most free shards of a node first, by `LL_SHARED_GRES`. Seen on 26.05; with this word
    /// slurmctld 22.05 does not start, and it always fills a node's first GPU first.
    spreads_shards SPREADS_SHARDS = 23 11;
    /// Can reserve single GPUs. Seen on 26.05; 22.05 has no reservations of GRES.
    reserves_gpus RESERVES_GPUS = 23 11;
    /// Drains a node with shards of some of its GPUs' types and not of others.
    drains_without_all_shards DRAINS_WITHOUT_ALL_SHARDS = 23 11;
    /// Runs the programs of all lines of Prolog= and Epilog=. Seen on 24.11; on 22.05 only the last line counts.
    adds_programs_up ADDS_PROGRAMS_UP = 24 11;
    /// Keeps upper and lower case of an AdminComment that sacctmgr sets. Seen on 24.11; 22.05 makes all of it lower case, which
    /// destroys base64. Releases between were not tried.
    keeps_case_of_admin_comment KEEPS_CASE_OF_ADMIN_COMMENT = 24 11;
    /// Gives each run of a job a SLUID: `squeue` has a column of that name. Seen on 26.05, and missing on 24.11.
    gives_jobs_sluids GIVES_JOBS_SLUIDS = 25 11;
    /// Names jobs' control groups (version 2) by SLUID unless cgroup.conf has `CgroupJobIdPaths=yes`. Seen on 26.05.
    names_cgroups_by_sluid NAMES_CGROUPS_BY_SLUID = 26 5;
    /// Knows `CgroupJobIdPaths` in cgroup.conf. To earlier releases this is an unknown word, with which Slurm's daemons do
    /// not start. Seen on 26.05.5.
    knows_job_id_paths KNOWS_JOB_ID_PATHS = 26 5 2;
}

impl fmt::Display for SlurmVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.major, self.minor)?;
        match self.micro {
            0 => Ok(()),
            micro => write!(f, ".{micro}"),
        }
    }
}

impl FromStr for SlurmVersion {
    type Err = String;

    /// Also reads what `sinfo --version` prints: `slurm 24.11.5`, or `slurm-wlm 24.11.5` on Debian.
    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (["slurm" | "slurm-wlm", numbers] | [numbers]) = words.as_slice() else {
            return Err(no_release(text));
        };
        let mut parts = numbers.split('.');
        // Two digits each: 24.1 is not 24.11.
        let number = |part: &str| {
            let plain = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| part.parse::<u8>().ok())?
        };
        let (major, minor) = (parts.next(), parts.next());
        let (Some(major), Some(minor)) = (major.and_then(number), minor.and_then(number)) else {
            return Err(no_release(text));
        };
        // `0-0rc1` is a candidate of the first.
        let third = |part: &str| part.split('-').next()?.parse::<u8>().ok();
        let Some(micro) = parts.next().map_or(Some(0), third) else {
            return Err(no_release(text));
        };
        if !MONTHS.contains(&minor) {
            return Err(no_release(text));
        }
        let version = release(major, minor, micro);
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
        "\"{text}\" is not a Slurm release: a release is a year and a month (02, 05, 08 or 11); write for example 24.11"
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
    fn a_release_without_its_third_number_is_the_first_of_its_month() {
        for (text, knows) in [
            ("25.11.9", false),
            ("26.05", false),
            ("26.05.1", false),
            ("26.05.2", true),
            ("26.05.10", true),
            ("26.11", true),
        ] {
            assert_eq!(version(text).knows_job_id_paths(), knows, "{text}");
        }
        assert_eq!(SlurmVersion::KNOWS_JOB_ID_PATHS.to_string(), "26.05.2");
    }

    #[test]
    fn a_release_is_written_as_slurm_writes_it() {
        for (text, release) in [
            ("24.11", "24.11"),
            ("24.11.3", "24.11.3"),
            ("24.11.0-0rc1", "24.11"),
            ("24.11.5-4", "24.11.5"),
            ("slurm 24.11.0", "24.11"),
            ("slurm-wlm 24.11.5", "24.11.5"),
        ] {
            assert_eq!(version(text).to_string(), release, "{text}");
        }
        let error = |text: &str| text.parse::<SlurmVersion>().unwrap_err();
        for text in [
            "",
            "24",
            "24.1",
            "24.5",
            "24.13",
            "24.12",
            "24.x",
            "2024.11",
            "24.11.",
            "24.11.x",
            "24.11.-1",
            "24.11.999",
            "24.+1",
            "v24.11",
            "slurm",
        ] {
            let told = format!("\"{text}\" is not a Slurm release");
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
