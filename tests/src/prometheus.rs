//! A real Prometheus and node_exporter on a cluster's node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

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

    /// The table of a dashboard in contrib/grafana for the last minute, as Grafana's own components draw it in Chromium: each
    /// row by the titles of its columns. `variable` is `NAME=VALUE`.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub fn table(&self, dashboard: &str, variable: &str) -> Result<Vec<BTreeMap<String, String>>> {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let grafana = project.join("contrib/grafana").canonicalize()?;
        let packages = project.join("target/grafana");
        ensure!(
            packages.exists(),
            "{} is missing: `cargo xtask test` brings it",
            packages.display()
        );
        let folder = tempfile::tempdir()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let drawn = (self.node.on_its_network("node"))
            .current_dir(packages)
            .arg(grafana.join("draw/draw.mjs"))
            .arg("--dashboard")
            .arg(grafana.join(format!("{dashboard}.json")))
            .arg("--out")
            .arg(folder.path().join("picture.png"))
            .args([
                format!("--prometheus=http://{ADDRESS}"),
                format!("--variable={variable}"),
                format!("--from={}", now - 60),
                format!("--to={now}"),
            ])
            .args(["--step=1", "--chromium=/usr/bin/chromium-headless-shell"])
            .output()
            .context("starting Node.js")?;
        let errors = String::from_utf8_lossy(&drawn.stderr);
        ensure!(drawn.status.success(), "{dashboard}: {errors}");
        let said = String::from_utf8(drawn.stdout)?;
        let cells = said.lines().map(|line| line.split(" | "));
        let mut table = cells.map(Vec::from_iter).skip_while(|row| row.len() < 2);
        let titles = table.next().context("no table")?;
        let rows = table.take_while(|row| row.len() == titles.len());
        let pair = |(title, text): (&&str, &str)| ((*title).to_owned(), text.to_owned());
        Ok(rows
            .map(|row| titles.iter().zip(row).map(pair).collect())
            .collect())
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
