//! `[metrics]` in policy.toml: where the monitor writes what jobs use, for node_exporter, and where the exporters answer.

use crate::config::error::PolicyError;
use serde::Deserialize;

/// `[metrics]`: the ways in which others learn what jobs use. By default there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// The file in which the monitor keeps metrics for node_exporter.
    pub textfile: Option<String>,
    /// The exporters that `softmig status` asks.
    pub exporters: Option<Exporters>,
}

/// The nodes' exporters (softmig-exporter).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exporters {
    url: String,
    /// The file with the certificates of the authorities that the exporters' own certificates are from, in PEM.
    pub ca: Option<String>,
}

impl Exporters {
    /// The address of a node's exporter, by the node's name in Slurm and its host name. `%n` and `%h` are replaced by them, as in
    /// slurm.conf(5).
    pub fn url(&self, node: &str, host: &str) -> String {
        self.url.replace("%n", node).replace("%h", host)
    }
}

/// `[metrics]` as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricsTable {
    textfile: Option<String>,
    exporters: Option<String>,
    exporters_ca: Option<String>,
}

impl MetricsTable {
    pub(crate) fn check(self) -> Result<Metrics, PolicyError> {
        let wrong = |message: String| PolicyError::new("[metrics]", None, message);
        if let Some(why) = self.textfile.as_deref().and_then(wrong_textfile) {
            let path = self.textfile.unwrap_or_default();
            return Err(wrong(format!("textfile = \"{path}\" {why}")));
        }
        let ca = self.exporters_ca;
        let Some(url) = self.exporters else {
            return match ca {
                Some(_) => Err(wrong(
                    "exporters_ca needs exporters, which says where they are".into(),
                )),
                None => Ok(Metrics {
                    textfile: self.textfile,
                    exporters: None,
                }),
            };
        };
        if let Some(why) = wrong_exporters(&url, ca.is_some()) {
            return Err(wrong(format!("exporters = \"{url}\" {why}")));
        }
        if let Some(ca) = ca.as_deref().filter(|path| !path.starts_with('/')) {
            return Err(wrong(format!(
                "exporters_ca = \"{ca}\" is not an absolute path"
            )));
        }
        Ok(Metrics {
            textfile: self.textfile,
            exporters: Some(Exporters { url, ca }),
        })
    }
}

/// Why this cannot be the textfile: its path is absolute, in plain names, and one that node_exporter reads.
fn wrong_textfile(path: &str) -> Option<&'static str> {
    let is_plain = |name: &str| !matches!(name, "" | "." | "..");
    if !path.starts_with('/') {
        Some("is not an absolute path")
    } else if !path.split('/').skip(1).all(is_plain) {
        Some("has an empty name, . or .. in it")
    } else if !path.ends_with(".prom") {
        Some("does not end in .prom, so node_exporter would not read it")
    } else {
        None
    }
}

/// Why this cannot be the address of each node's exporter.
fn wrong_exporters(url: &str, has_ca: bool) -> Option<&'static str> {
    let plain = url.strip_prefix("http://");
    let Some(place) = plain.or_else(|| url.strip_prefix("https://")) else {
        return Some(
            "does not begin with http:// or https://; write for example \"https://%n:9836\"",
        );
    };
    if place.contains(|letter: char| letter == '/' || letter == '@' || !letter.is_ascii_graphic()) {
        Some("has more than a name and a port behind //; write for example \"https://%n:9836\"")
    } else if !place.contains("%n") && !place.contains("%h") {
        Some("is the same for all nodes: write %n for the node's name, or %h for its host name")
    } else if plain.is_none() && !has_ca {
        Some("needs exporters_ca, the file with the authorities of the exporters' certificates")
    } else if plain.is_some() && has_ca {
        Some("has no TLS, so exporters_ca has no use; write https://")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodePolicy;

    fn textfile(table: &str) -> Result<Option<String>, String> {
        let policy = NodePolicy::parse(&format!("[metrics]\n{table}\n"));
        policy
            .map(|policy| policy.metrics.textfile)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn there_is_no_textfile_unless_the_administrator_says_so() {
        assert_eq!(NodePolicy::parse("").unwrap().metrics, Metrics::default());
        assert_eq!(textfile(""), Ok(None));
        let path = "/var/lib/softmig/metrics/softmig.prom";
        assert_eq!(
            textfile(&format!("textfile = \"{path}\"")),
            Ok(Some(path.into()))
        );
    }

    #[test]
    fn a_textfile_path_that_would_not_be_used_is_an_error() {
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
    #[test]
    fn each_nodes_exporter_has_its_own_address() {
        let exporters = |table: &str| {
            let policy = NodePolicy::parse(&format!("[metrics]\n{table}\n"));
            let told = policy.map(|policy| policy.metrics.exporters.unwrap().url("a17", "gpu17"));
            told.map_err(|error| error.to_string())
        };
        let plain = exporters("exporters = \"http://%n.cluster:9836\"");
        assert_eq!(plain.unwrap(), "http://a17.cluster:9836");
        let tls = exporters("exporters = \"https://%h:9836\"\nexporters_ca = \"/etc/ca.pem\"");
        assert_eq!(tls.unwrap(), "https://gpu17:9836");
        for (table, said) in [
            ("exporters = \"%n:9836\"", "does not begin with http"),
            (
                "exporters = \"http://gpu01:9836\"",
                "the same for all nodes",
            ),
            (
                "exporters = \"http://%n:9836/metrics\"",
                "more than a name and a port",
            ),
            ("exporters = \"http://a@%n\"", "more than a name and a port"),
            ("exporters = \"https://%n:9836\"", "needs exporters_ca"),
            (
                "exporters = \"http://%n\"\nexporters_ca = \"/a\"",
                "has no use",
            ),
            (
                "exporters = \"https://%n\"\nexporters_ca = \"a\"",
                "is not an absolute path",
            ),
            ("exporters_ca = \"/a\"", "needs exporters,"),
        ] {
            let error = exporters(table).unwrap_err();
            assert!(error.contains(said), "{table}: {error}");
        }
    }
}
