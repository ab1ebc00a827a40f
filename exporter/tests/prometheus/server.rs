//! Prometheus and node_exporter, from Debian's packages, on loopback.

use crate::common::{Program, get};
use crate::dashboards::Rows;
use serde_json::Value;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Cargo's target folder.
pub fn target() -> &'static Path {
    let exporter = Path::new(env!("CARGO_BIN_EXE_softmig-exporter"));
    exporter.ancestors().nth(2).unwrap()
}

/// Where `cargo xtask test` unpacks the packages.
pub fn program(name: &str) -> PathBuf {
    let program = target().join("prometheus/usr/bin").join(name);
    let missing = "is missing: `cargo xtask test` brings it";
    assert!(program.exists(), "{} {missing}", program.display());
    program
}

/// A port that is free now.
pub fn free() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Starts a server that listens at an address, and waits until it answers.
pub fn start(name: &str, options: &[String], address: &str, ready: &str) -> Program {
    let mut command = Command::new(program(name));
    command.args(options).stdout(Stdio::null());
    let mut running = Program(command.spawn().unwrap());
    let began = Instant::now();
    while std::net::TcpStream::connect(address).is_err() || get(address, ready).0 != 200 {
        assert_eq!(running.0.try_wait().unwrap(), None, "{name} has ended");
        assert!(began.elapsed() < Duration::from_secs(30), "{name}");
        std::thread::sleep(Duration::from_millis(50));
    }
    running
}

/// A Prometheus that answers.
pub struct Prometheus {
    pub address: String,
    pub _program: Program,
}

impl Prometheus {
    fn api(&self, path: &str) -> Value {
        let (status, body) = get(&self.address, path);
        assert_eq!(status, 200, "{path}: {body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        answer["data"].clone()
    }

    /// The answer to a query at a time.
    pub fn ask(&self, query: &str, time: f64) -> Rows {
        let path = format!("/api/v1/query?time={time}&query={}", encoded(query));
        let data = self.api(&path);
        let rows = data["result"].as_array().unwrap().iter();
        let row = |row: &Value| {
            let value = row["value"][1].as_str().unwrap().parse().unwrap();
            (key(&row["metric"]), value)
        };
        let told: Vec<(String, f64)> = rows.map(row).collect();
        let count = told.len();
        let told: Rows = told.into_iter().collect();
        assert_eq!(told.len(), count, "{query}: rows that look alike");
        told
    }

    /// The values of a label, as `label_values(METRIC, LABEL)` of Grafana asks for them.
    pub fn values(&self, asked: &str) -> Vec<String> {
        let inner = asked.strip_prefix("label_values(").expect(asked);
        let (metric, label) = inner.trim_end_matches(')').split_once(", ").unwrap();
        let values = self.api(&format!("/api/v1/label/{label}/values?match[]={metric}"));
        serde_json::from_value(values).unwrap()
    }
}

/// The labels that tell a row from the others of the same answer.
pub fn key(labels: &Value) -> String {
    let told = [
        "gpu",
        "index",
        "jobid",
        "hpc_job",
        "slurmjobid",
        "who",
        "state",
        "kind",
    ];
    let values: Vec<&str> = told
        .iter()
        .filter_map(|label| labels[*label].as_str())
        .collect();
    values.join("/")
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}
