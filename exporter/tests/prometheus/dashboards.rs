//! The dashboards' queries, and what each has to say of the fixture.

use crate::fixture::{CHANGE, FOUND, KNOWN, LIMIT_MIB, QUARTERS, Quarter, SHARE, UNCLAIMED};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Rows by the labels that tell them apart ([`crate::server::key`]).
pub type Rows = BTreeMap<String, f64>;

/// A query as the dashboard has it.
pub struct Query {
    pub dashboard: String,
    pub panel: String,
    pub id: String,
    pub text: String,
}

impl Query {
    /// As Grafana asks it, for the fixture's node and the user alice.
    pub fn asked(&self) -> String {
        self.text
            .replace("$__rate_interval", "1m")
            .replace("$__range", "5m")
            .replace("$instance", "n1")
            .replace("$user", "alice")
    }
}

/// All queries of a dashboard's panels, and those of its variables.
pub fn read(file: &Path) -> (Vec<Query>, Vec<String>) {
    let text = std::fs::read_to_string(file).unwrap();
    let board: Value = serde_json::from_str(&text).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let panels = board["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().unwrap();
        targets.iter().map(move |target| (panel, target))
    });
    let queries = targets.map(|(panel, target)| Query {
        dashboard: text(&board["uid"]),
        panel: text(&panel["title"]),
        id: text(&target["refId"]),
        text: text(&target["expr"]),
    });
    let variables = board["templating"]["list"].as_array().unwrap().iter();
    let asked = variables.filter_map(|variable| variable["definition"].as_str());
    (queries.collect(), asked.map(str::to_owned).collect())
}

/// The value of `increase(...[1h])` for a counter that grows by one a second: Prometheus adds half a step before the first
/// of the samples, 345 s before the last one.
const HOUR: f64 = 345.0 + 7.5;
/// The same for five minutes, at whose beginning is a sample.
const RANGE: f64 = 300.0;

fn each(whose: &dyn Fn(&Quarter) -> bool, value: impl Fn(&Quarter) -> f64) -> Rows {
    let jobs = QUARTERS.iter().filter(|quarter| whose(quarter));
    jobs.map(|quarter| (format!("0/{}", quarter.job), value(quarter)))
        .collect()
}

fn sum(whose: &dyn Fn(&Quarter) -> bool, value: impl Fn(&Quarter) -> f64) -> Rows {
    let sum = each(whose, value).values().sum();
    BTreeMap::from([(String::new(), sum)])
}

/// The expected answer to a query; `None` for one that is not known here.
pub fn expected(query: &Query) -> Option<Rows> {
    let whose: &dyn Fn(&Quarter) -> bool = match query.dashboard.as_str() {
        "softmig-user" => &|quarter| quarter.user == "alice",
        _ => &|_| true,
    };
    let bytes = |mib: u64| (mib << 20) as f64;
    let rows = |rows: &[(&str, f64)]| {
        let row = |(key, value): &(&str, f64)| ((*key).to_owned(), *value);
        rows.iter().map(row).collect()
    };
    // Each job's count since it began, where it is not zero.
    let any = |rate: fn(&Quarter) -> f64| {
        each(&|its| whose(its) && rate(its) > 0.0, |its| {
            KNOWN * rate(its)
        })
    };
    let all: f64 = QUARTERS.iter().map(|quarter| quarter.charged).sum();
    Some(match (query.panel.as_str(), query.id.as_str()) {
        ("Slices", "A") => each(whose, |_| 1.0),
        ("Slices", "B") | ("Memory of each job", "A") => each(whose, |its| bytes(its.used_mib)),
        ("Slices", "C") => each(whose, |its| bytes(its.peak_mib)),
        ("Slices", "D") => each(whose, |_| bytes(LIMIT_MIB)),
        ("Slices", "E") | ("Of its share", "A") => each(whose, |its| its.charged / SHARE),
        ("Slices", "F") | ("Waiting", "A") => each(whose, |its| its.waited),
        ("Slices", "G") => each(whose, |its| its.idle),
        ("GPU time of the card", "A") => rows(&[
            ("0/slices", all),
            ("0/change", CHANGE),
            ("0/unclaimed", UNCLAIMED),
            ("1/slices", 0.0),
            ("1/change", 0.0),
            ("1/unclaimed", 0.0),
        ]),
        ("GPU time of each job", "A") => each(whose, |its| its.charged),
        ("Memory, of the slice", "A") => each(whose, |its| bytes(its.used_mib) / bytes(LIMIT_MIB)),
        ("Shards", "A") => rows(&[("0/allocated", 4.0), ("0/free", 0.0)]),
        ("Refused, not steered", "A") => any(|its| its.refused),
        ("Refused, not steered", "B") => each(&|its| whose(its) && its.unsteered > 0, |its| {
            its.unsteered.into()
        }),
        ("Findings of the monitor", "A") => rows(&[("memory", HOUR * FOUND)]),
        ("GPU hours", "A") => sum(whose, |its| RANGE * its.charged / 3600.0),
        ("GPUs' worth of slices", "A") => sum(whose, |_| SHARE),
        ("Refused allocations", "A") => sum(whose, |its| KNOWN * its.refused),
        ("Hours waited", "A") => sum(whose, |its| RANGE * its.waited / 3600.0),
        ("Debt", "A") => each(whose, |its| its.debt),
        _ => return None,
    })
}
