//! `[report]` in policy.toml: what a job's end leaves behind of its use of GPUs.

use serde::Deserialize;

/// The traces that a job's end leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Whether TaskEpilog says in a line of the job's output what the job used.
    #[serde(default)]
    pub end_line: bool,
    /// Whether the epilog writes a summary into AdminComment of Slurm's accounting.
    #[serde(default)]
    pub admin_comment: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodePolicy;

    #[test]
    fn nothing_is_left_behind_unless_the_administrator_says_so() {
        let read = |text: &str| NodePolicy::parse(text).map(|policy| policy.report);
        assert_eq!(read("").unwrap(), Report::default());
        let both = Report {
            end_line: true,
            admin_comment: true,
        };
        let text = "[report]\nend_line = true\nadmin_comment = true\n";
        assert_eq!(read(text).unwrap(), both);
        let error = read("[report]\nendline = true\n").unwrap_err().to_string();
        assert!(error.contains("did you mean end_line?"), "{error}");
    }
}
