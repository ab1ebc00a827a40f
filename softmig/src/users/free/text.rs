//! The table for people, and the JSON object.

use crate::output::say::{plain, wrapped};
use crate::output::table::columns;
use crate::users::free::estimate::Estimate;
use crate::users::free::offers::Offer;
use serde::Serialize;
use softmig_policy::slurm::hostlist;

const WIDTH: usize = 80;
const VERSION: u32 = 1;

pub(super) fn lines(offers: &[Offer], notes: &[String], has_least: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if offers.is_empty() {
        let (what, ask) = match has_least {
            true => ("GPU with so much memory", "--memory=SIZE"),
            false => ("GPU", "--gres=gpu:TYPE:1"),
        };
        lines.push(format!(
            "You may have no {what} here; 'softmig explain {ask}' says why"
        ));
    } else {
        let head = ["TYPE THIS", "MEMORY", "TIME", "FREE NOW", "WHERE"].map(str::to_string);
        let table: Vec<[String; 5]> = [head].into_iter().chain(offers.iter().map(row)).collect();
        let mut table = columns(&table, 0).into_iter();
        lines.extend(table.next());
        for (line, offer) in table.zip(offers) {
            lines.push(line);
            lines.extend(
                offer
                    .estimate
                    .iter()
                    .map(|estimate| format!("    {}", when(estimate))),
            );
        }
    }
    for note in notes {
        lines.push(String::new());
        lines.extend(wrapped(note, WIDTH, 0));
    }
    lines.iter().map(|line| plain(line)).collect()
}

fn row(offer: &Offer) -> [String; 5] {
    let percent = offer.limits.map(|limits| format!("{} %", limits.percent()));
    let nodes = hostlist::compress(offer.nodes.iter().map(String::as_str));
    let partitions: Vec<&str> = offer.partitions.iter().map(String::as_str).collect();
    [
        format!("--gres={}", offer.gres),
        offer
            .memory_mib
            .map_or("-".to_string(), |mib| format!("{mib} MiB")),
        percent.unwrap_or_else(|| "all".to_string()),
        offer.free.to_string(),
        if nodes.is_empty() {
            "-".to_string()
        } else {
            format!("{nodes} ({})", partitions.join(", "))
        },
    ]
}

fn when(estimate: &Estimate) -> String {
    match estimate {
        Estimate::Start { at, nodes } => {
            let at = at.replace('T', " ");
            format!("Slurm expects a start at {at} on {nodes}")
        }
        Estimate::No(why) => format!("Slurm gives no time: {why}"),
    }
}

#[derive(Serialize)]
struct Json<'a> {
    schema_version: u32,
    /// Seconds since 1970.
    time: i64,
    offers: Vec<JsonOffer<'a>>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct JsonOffer<'a> {
    #[serde(flatten)]
    offer: &'a Offer,
    /// `null` for all of a GPU.
    shards: Option<u32>,
    shards_per_gpu: Option<u32>,
}

pub(super) fn json(offers: &[Offer], notes: &[String], time: i64) -> String {
    let offers = offers.iter().map(|offer| {
        let share = offer.limits.map(|limits| limits.share());
        JsonOffer {
            offer,
            shards: share.map(|share| share.shards()),
            shards_per_gpu: share.map(|share| share.per_gpu()),
        }
    });
    let json = Json {
        schema_version: VERSION,
        time,
        offers: offers.collect(),
        notes,
    };
    serde_json::to_string(&json).unwrap_or_default()
}
