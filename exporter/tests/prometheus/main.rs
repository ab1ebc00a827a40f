//! A real Prometheus scrapes the exporter, and says of four slices what they did. Grafana's components draw that.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../common/mod.rs"]
mod common;
mod dashboards;
mod drawing;
mod fixture;
mod relay;
mod server;

use common::{Certificate, address, exporter, get, monitor};
use dashboards::Rows;
use fixture::{LIMIT_MIB, QUARTERS, SCRAPES, SHARE, STEP, UUIDS, node};
use server::{Prometheus, free, program, start};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

fn contrib(path: &str) -> PathBuf {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    project.join("contrib").join(path)
}

/// Within a point of time, 2 MiB of memory, or a hundredth of a count.
fn agree(told: f64, expected: f64) -> bool {
    let within = match expected.abs() {
        bytes if bytes > 1e6 => (2 << 20) as f64,
        value => f64::max(0.01, 0.01 * value),
    };
    (told - expected).abs() <= within
}

fn assert_rows(what: &str, told: &Rows, expected: &Rows) {
    assert!(!expected.is_empty(), "{what}");
    let keys = |rows: &Rows| rows.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(told), keys(expected), "{what}");
    for (key, value) in expected {
        assert!(
            agree(told[key], *value),
            "{what}: {key} is {} and should be {value}",
            told[key]
        );
    }
}

/// The expected rows of each job.
fn jobs(prefix: &str, value: impl Fn(&fixture::Quarter) -> f64) -> Rows {
    let row = |quarter: &fixture::Quarter| (format!("{prefix}{}", quarter.job), value(quarter));
    QUARTERS.iter().map(row).collect()
}

/// The part of its share, as a percentage that others can read.
fn percent(quarter: &fixture::Quarter) -> f64 {
    f64::min(100.0, 100.0 * quarter.charged / SHARE)
}

fn promtool(options: &[&str], input: &str, folder: &Path) {
    let mut tool = Command::new(program("promtool"))
        .args(options)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    tool.stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let done = tool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "promtool {options:?}: {said}");
}

#[test]
fn the_alerts_are_raised_where_they_should_be() {
    let folder = contrib("prometheus");
    promtool(&["check", "rules", "softmig.rules.yml"], "", &folder);
    promtool(&["test", "rules", "softmig.rules.test.yml"], "", &folder);
}

#[test]
fn prometheus_says_of_four_slices_what_they_did() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let end = now.as_secs() as f64 - 5.0;
    let scrape = Arc::new(AtomicU32::new(0));
    let told = Arc::clone(&scrape);
    monitor(&path("usage.sock"), move || {
        node(end, told.load(Ordering::SeqCst))
    });

    let mapping = path("dcgm");
    fs::create_dir(&mapping).unwrap();
    let options = [
        "--listen=127.0.0.1:0",
        "--view=jobstats",
        "--view=slurm-job-exporter",
        "--view=ceems",
        &format!("--dcgm-mapping={}", mapping.display()),
    ];
    let (_exporter, url) = exporter(&path("usage.sock"), &options);
    // Prometheus shows the exporter's own certificate.
    let certificate = Certificate::new(folder.path(), "own");
    let (_tls, secure) = exporter(
        &path("usage.sock"),
        &certificate.options(Some(&certificate)),
    );
    let relay = relay::start(address(&url).to_owned(), scrape, move |scrape| {
        end - STEP * f64::from(SCRAPES - 1 - scrape)
    });

    let page = softmig_usage::metrics::page(&node(end, SCRAPES - 1)).text();
    promtool(&["check", "metrics"], &page, folder.path());
    let texts = path("texts");
    fs::create_dir(&texts).unwrap();
    let file = texts.join("softmig.prom");
    softmig_monitor::watch::textfile::write(&file, rustix::process::getuid().as_raw(), &page)
        .unwrap();
    let collector = free();
    let _node_exporter = start(
        "prometheus-node-exporter",
        &[
            format!("--web.listen-address={collector}"),
            format!("--collector.textfile.directory={}", texts.display()),
            "--collector.disable-defaults".into(),
            "--collector.textfile".into(),
            "--log.level=error".into(),
        ],
        &collector,
        "/",
    );

    let config = format!(
        "global: {{scrape_interval: 300ms, scrape_timeout: 300ms}}
scrape_configs:
- job_name: softmig
  static_configs: [{{targets: ['{relay}'], labels: {{instance: n1}}}}]
- job_name: tls
  scheme: https
  tls_config: {{ca_file: own.cert, cert_file: own.cert, key_file: own.key}}
  static_configs: [{{targets: ['{}']}}]
- job_name: node
  static_configs: [{{targets: ['{collector}']}}]
",
        address(&secure)
    );
    fs::write(path("prometheus.yml"), config).unwrap();
    let listen = free();
    let prometheus = Prometheus {
        _program: start(
            "prometheus",
            &[
                format!("--config.file={}", path("prometheus.yml").display()),
                format!("--storage.tsdb.path={}", path("tsdb").display()),
                format!("--web.listen-address={listen}"),
                "--log.level=error".into(),
            ],
            &listen,
            "/-/ready",
        ),
        address: listen,
    };
    let began = Instant::now();
    let last = || prometheus.ask("timestamp(softmig_build_info{job=\"softmig\"})", end);
    while last().values().next() != Some(&end) {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", last());
        std::thread::sleep(Duration::from_millis(200));
    }

    every_query_of_the_dashboards(&prometheus, end);
    both_dashboards_are_drawn(&prometheus, end, folder.path());
    sums(&prometheus, end);
    views(&prometheus, end);
    others(&prometheus);
    let mapped = fs::read_to_string(mapping.join("0")).unwrap();
    assert_eq!(mapped, "101\n102\n103\n104\n");
    assert!(!mapping.join("1").exists());
    let (_, page) = get(address(&url), "/metrics");
    assert!(
        page.contains("account=\"research \\\"a\\\\b\\\"\""),
        "{page}"
    );
}

fn every_query_of_the_dashboards(prometheus: &Prometheus, end: f64) {
    let mut count = 0;
    for name in ["grafana/softmig-node.json", "grafana/softmig-user.json"] {
        let (queries, variables) = dashboards::read(&contrib(name));
        for query in queries {
            let what = format!("{name}: {} {}: {}", query.panel, query.id, query.text);
            let expected = dashboards::expected(&query);
            let expected = expected
                .unwrap_or_else(|| panic!("{what}: say in dashboards.rs what it should be"));
            // The fixture's own time alone.
            let told = prometheus.ask(
                &query
                    .asked()
                    .replace("user=\"alice\"", "user=\"alice\",job=\"softmig\""),
                end,
            );
            assert_rows(&what, &told, &expected);
            count += 1;
        }
        for variable in variables {
            assert!(
                !prometheus.values(&variable).is_empty(),
                "{name}: {variable}"
            );
        }
    }
    assert!(count > 20, "{count} queries");
}

/// All texts of the pictures: the figures of the fixture, as Grafana writes them.
fn both_dashboards_are_drawn(prometheus: &Prometheus, end: f64, folder: &Path) {
    let draw = |name, variable| drawing::draw(&prometheus.address, name, variable, end, folder);
    let (node, user) = std::thread::scope(|scope| {
        let node = scope.spawn(|| draw("softmig-node", "instance=n1"));
        let user = draw("softmig-user", "user=alice");
        (node.join().unwrap(), user)
    });
    insta::assert_snapshot!("node", node);
    insta::assert_snapshot!("user", user);
}

/// The jobs of a card add up to the card, and join with DCGM's metrics as they are.
fn sums(prometheus: &Prometheus, end: f64) {
    let card = prometheus.ask(
        "rate(softmig_gpu_seconds_total{job=\"softmig\",gpu=\"0\",who=\"slices\"}[1m])",
        end,
    );
    let jobs_of_it = prometheus.ask(
        "sum(rate(softmig_slice_gpu_seconds_total{job=\"softmig\",gpu=\"0\"}[1m]))",
        end,
    );
    assert!(
        agree(jobs_of_it[""], card["0/slices"]),
        "{jobs_of_it:?} {card:?}"
    );
    let joined = "DCGM_FI_DEV_GPU_UTIL * on (UUID) group_right () softmig_slice_share_ratio";
    assert_rows(
        joined,
        &prometheus.ask(joined, end),
        &jobs("0/", |_| 80.0 * SHARE),
    );
    // With a job mapping DCGM says the card's power four times.
    let power = "sum by (hpc_job) (label_replace(DCGM_FI_DEV_POWER_USAGE, \"jobid\", \"$1\", \"hpc_job\", \"(.+)\") * on (UUID, jobid) group_left () softmig_slice_share_ratio)";
    assert_rows(
        power,
        &prometheus.ask(power, end),
        &jobs("", |_| 300.0 * SHARE),
    );
    let page = fs::read_to_string(contrib("../docs/usage.md")).unwrap();
    for query in [joined, power] {
        assert!(
            page.contains(query),
            "docs/usage.md has another query than {query}"
        );
    }
}

fn views(prometheus: &Prometheus, end: f64) {
    let bytes = |mib: u64| (mib << 20) as f64;
    // In the form in which jobstats asks.
    let jobstats = |metric: &str, job: u32| {
        let query = format!("max_over_time(({metric} and nvidia_gpu_jobId == {job})[300s:15s])");
        let told = prometheus.ask(&query, end);
        assert_eq!(told.len(), 1, "{query}: {told:?}");
        told[&job.to_string()]
    };
    for quarter in &QUARTERS {
        let job = quarter.job;
        assert!(agree(
            jobstats("nvidia_gpu_memory_total_bytes", job),
            bytes(LIMIT_MIB)
        ));
        assert!(agree(
            jobstats("nvidia_gpu_memory_used_bytes", job),
            bytes(quarter.used_mib)
        ));
        let told = jobstats("nvidia_gpu_duty_cycle", job);
        assert!((told - percent(quarter)).abs() < 1.0, "{job}: {told}");
    }
    for (query, expected) in [
        (
            "slurm_job_memory_total_gpu",
            jobs("0/", |_| bytes(LIMIT_MIB)),
        ),
        (
            "slurm_job_memory_usage_gpu",
            jobs("0/", |its| bytes(its.used_mib)),
        ),
        ("slurm_job_utilization_gpu", jobs("0/", percent)),
        (
            "max by (slurmjobid) (label_replace(ceems_compute_unit_gpu_index_flag, \"slurmjobid\", \"$1\", \"uuid\", \"(.*)\"))",
            jobs("", |its| its.charged / 0.765),
        ),
    ] {
        assert_rows(query, &prometheus.ask(query, end), &expected);
    }
    let whole = prometheus.ask(
        "sum(ceems_compute_unit_gpu_index_flag{gpuuuid=~\".+\"})",
        end,
    );
    assert!(agree(whole[""], 1.0), "{whole:?}");
    assert!(UUIDS[0].starts_with("GPU-"));
}

/// By TLS, and by node_exporter: at the real time.
fn others(prometheus: &Prometheus) {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs_f64();
    let up = prometheus.ask("min(up)", now);
    assert_eq!(up[""], 1.0, "{up:?}");
    for job in ["tls", "node"] {
        let query = format!("softmig_slice_memory_used_bytes{{job=\"{job}\"}}");
        let expected = jobs("0/", |its| (its.used_mib << 20) as f64);
        assert_rows(&query, &prometheus.ask(&query, now), &expected);
    }
    let failed = prometheus.ask("node_textfile_scrape_error", now);
    assert_eq!(failed[""], 0.0);
    assert_eq!(prometheus.ask("node_textfile_mtime_seconds", now).len(), 1);
}
