//! `[metrics]` in policy.toml: where the monitor writes what jobs use, for node_exporter.

use crate::config::error::PolicyError;
use serde::Deserialize;

/// `[metrics]` as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricsTable {
    textfile: Option<String>,
}

impl MetricsTable {
    /// The textfile's path: absolute, in plain names, and one that node_exporter reads.
    pub(crate) fn check(self) -> Result<Option<String>, PolicyError> {
        let Some(path) = self.textfile else {
            return Ok(None);
        };
        let is_plain = |name: &str| !matches!(name, "" | "." | "..");
        let why = if !path.starts_with('/') {
            "is not an absolute path"
        } else if !path.split('/').skip(1).all(is_plain) {
            "has an empty name, . or .. in it"
        } else if !path.ends_with(".prom") {
            "does not end in .prom, so node_exporter would not read it"
        } else {
            return Ok(Some(path));
        };
        let message = format!("textfile = \"{path}\" {why}");
        Err(PolicyError::of("[metrics]", None, message))
    }
}

#[cfg(test)]
mod tests {
    use crate::NodePolicy;

    fn textfile(table: &str) -> Result<Option<String>, String> {
        let policy = NodePolicy::parse(&format!("[metrics]\n{table}\n"));
        policy
            .map(|policy| policy.textfile)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn there_is_no_textfile_unless_the_administrator_says_so() {
        assert_eq!(NodePolicy::parse("").unwrap().textfile, None);
        assert_eq!(textfile(""), Ok(None));
        let path = "/var/lib/softmig/metrics/softmig.prom";
        assert_eq!(
            textfile(&format!("textfile = \"{path}\"")),
            Ok(Some(path.into()))
        );
    }

    #[test]
    fn a_path_that_node_exporter_or_the_monitor_would_not_use_is_an_error() {
        for (path, said) in [
            ("softmig.prom", "is not an absolute path"),
            ("", "is not an absolute path"),
            ("/run/../softmig.prom", ".. in it"),
            ("/run//softmig.prom", "an empty name"),
            ("/run/softmig.txt", "does not end in .prom"),
            ("/", "an empty name"),
        ] {
            let error = textfile(&format!("textfile = \"{path}\"")).unwrap_err();
            assert!(error.contains(said), "{path}: {error}");
        }
        assert!(textfile("textfiles = \"/a.prom\"").is_err());
    }
}
