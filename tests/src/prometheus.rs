//! A real Prometheus and node_exporter on a cluster's node.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{Client, Cluster, Node};

/// Where Prometheus listens on its node.
const ADDRESS: &str = "127.0.0.1:9090";
const CONF: &str = "/etc/softmig-prometheus.yml";

/// The tree with both programs that `cargo xtask test` brings, arranged like `/`.
///
/// # Errors
/// If it is not there.
pub fn layer() -> Result<PathBuf> {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/prometheus");
    ensure!(
        tree.join("usr/bin/promtool").exists(),
        "{} is missing: `cargo xtask test` brings it",
        tree.display()
    );
    Ok(tree)
}

/// A Prometheus on a node that has the [`layer`]. It ends when it is dropped.
pub struct Prometheus<'a> {
    node: &'a Node,
    _process: Client,
}

impl<'a> Prometheus<'a> {
    /// Starts one that scrapes these `(job, address)` each second, and waits until it answers.
    ///
    /// # Errors
    /// If it does not.
    pub fn start(cluster: &Cluster, node: &'a Node, scraped: &[(&str, &str)]) -> Result<Self> {
        let mut conf =
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n".to_owned();
        for (job, address) in scraped {
            conf +=
                &format!("- {{job_name: {job}, static_configs: [{{targets: ['{address}']}}]}}\n");
        }
        node.write(CONF, &conf)?;
        let listen = format!("--web.listen-address={ADDRESS}");
        let config = format!("--config.file={CONF}");
        let data = "--storage.tsdb.path=/var/lib/softmig-prometheus";
        let argv = ["prometheus", &config, &listen, data, "--log.level=error"];
        let prometheus = Self {
            node,
            _process: node.command("root", &argv).spawn()?,
        };
        cluster.wait_until("a scrape of each exporter", || {
            let up = prometheus.ask("up == 1");
            Ok(up.is_ok_and(|up| up.len() == scraped.len()))
        })?;
        Ok(prometheus)
    }

    /// The labels and the values of the answer to a query.
    ///
    /// # Errors
    /// If it is not a query, or Prometheus does not answer.
    pub fn ask(&self, query: &str) -> Result<Vec<(Value, f64)>> {
        let url = format!("http://{ADDRESS}");
        let argv = ["promtool", "query", "-o", "json", "instant", &url, query];
        let said = self.node.run_as_root(&argv)?.ok()?;
        let rows: Vec<Value> = serde_json::from_str(&said).with_context(|| said.clone())?;
        let row = |row: Value| {
            let value = row["value"][1].as_str().context("no value")?.parse()?;
            Ok((row["metric"].clone(), value))
        };
        rows.into_iter().map(row).collect()
    }

    /// The one value of the answer to a query.
    ///
    /// # Errors
    /// If it has another number of values.
    pub fn value(&self, query: &str) -> Result<f64> {
        let rows = self.ask(query)?;
        ensure!(rows.len() == 1, "{query}: {rows:?}");
        Ok(rows[0].1)
    }
}
