//! A relay between Prometheus and the exporter, which gives each scrape the fixture's time: six minutes pass in seconds.

use crate::common::get;
use crate::fixture::{QUARTERS, Quarter, SCRAPES, UUIDS};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The exporter gives a younger answer again.
const APART: Duration = Duration::from_millis(260);

/// Relays to the exporter; each scrape is the next one of the fixture, up to its last.
pub fn start(
    exporter: String,
    scrape: Arc<AtomicU32>,
    time: impl Fn(u32) -> f64 + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut next = 0;
        let mut last = Instant::now();
        for client in listener.incoming() {
            let mut client = client.unwrap();
            // The request is small, and is always the same.
            let _ = client.read(&mut [0; 4096]);
            std::thread::sleep(APART.saturating_sub(last.elapsed()));
            scrape.store(next, Ordering::SeqCst);
            let (status, page) = get(&exporter, "/metrics");
            last = Instant::now();
            assert_eq!(status, 200, "{page}");
            let milliseconds = (time(next) * 1000.0).round();
            let body = stamped(&page, milliseconds) + &dcgm(milliseconds);
            next = (next + 1).min(SCRAPES - 1);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = client.write_all((head + &body).as_bytes());
        }
    });
    address
}

fn stamped(page: &str, milliseconds: f64) -> String {
    let line = |line: &str| {
        if line.starts_with('#') {
            format!("{line}\n")
        } else {
            format!("{line} {milliseconds}\n")
        }
    };
    page.lines().map(line).collect()
}

/// The page of dcgm-exporter for the GPU; the power as with a job mapping, once for each job.
fn dcgm(milliseconds: f64) -> String {
    let gpu = format!("gpu=\"0\",UUID=\"{}\",hostname=\"n1\"", UUIDS[0]);
    let power = |quarter: &Quarter| {
        let job = quarter.job;
        format!("DCGM_FI_DEV_POWER_USAGE{{{gpu},hpc_job=\"{job}\"}} 300 {milliseconds}\n")
    };
    let powers: String = QUARTERS.iter().map(power).collect();
    format!("DCGM_FI_DEV_GPU_UTIL{{{gpu}}} 80 {milliseconds}\n{powers}")
}
