//! `[report]` in policy.toml: where a job's use of GPUs is reported.

use serde::Deserialize;
use std::collections::BTreeSet;

/// The ways in which a job's use is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Whether TaskEpilog says in a line of the job's output what the job used.
    #[serde(default)]
    pub end_line: bool,
    /// Whether the epilog writes a summary into AdminComment of Slurm's accounting.
    #[serde(default)]
    pub admin_comment: bool,
    /// The events that `softmig events --tell-users` tells a job's user.
    #[serde(default)]
    pub notices: BTreeSet<Notice>,
}

/// An event that a job's user can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Notice {
    /// The job does not use its GPU (`idle_minutes`).
    Idle,
    /// The job holds nearly all of its memory.
    Memory,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodePolicy;

    #[test]
    fn nothing_is_left_behind_unless_the_administrator_says_so() {
        let read = |text: &str| NodePolicy::parse(text).map(|policy| policy.report);
        assert_eq!(read("").unwrap(), Report::default());
        let all = Report {
            end_line: true,
            admin_comment: true,
            notices: [Notice::Idle, Notice::Memory].into(),
        };
        let text =
            "[report]\nend_line = true\nadmin_comment = true\nnotices = [\"memory\", \"idle\"]\n";
        assert_eq!(read(text).unwrap(), all);
        assert!(read("[report]\nnotices = [\"start\"]\n").is_err());
        let error = read("[report]\nendline = true\n").unwrap_err().to_string();
        assert!(error.contains("did you mean end_line?"), "{error}");
    }
}
