//! A simulated history: what its jobs truly needed is known, and what accounting shows of it is less exact.

use super::advice::{Advice, advise};
use super::catalogue::Catalogue;
use crate::ask::sacct::{self, History};
use fastrand::Rng;
use softmig_node::sacct::HISTORY;
use softmig_policy::Policy;
use softmig_usage::js1::Js1;
use std::collections::{BTreeMap, HashMap};

const POLICY: &str = "
[gpu.l40s]
memory_mib = 46068
reserved_mib = 604
shards = 8
slices = [2, 4, 8]
[gpu.a100]
memory_mib = 40960
reserved_mib = 604
shards = 4
slices = [4]
";

const GPUS: [(&str, usize); 2] = [("l40s", 12), ("a100", 6)];

/// The truth about a simulated history.
#[derive(Default)]
struct Truth {
    /// Jobs and saved hours of each slice.
    slices: BTreeMap<String, (f64, f64)>,
    whole: f64,
    /// Jobs without figures, and with a figure of memory alone.
    unknown: [u64; 2],
    /// Hours of waiting, of each type, with whole GPUs.
    waited: BTreeMap<&'static str, f64>,
    /// The same with slices, of the type whose jobs all need a quarter.
    waited_in_quarters: f64,
}

/// Each job takes the place that is free first: exact for jobs of one size.
fn starts(jobs: &[(i64, i64)], places: usize) -> Vec<i64> {
    let mut places = vec![0; places];
    let start = |&(eligible, takes): &(i64, i64)| {
        places.sort_unstable();
        let start = places[0].max(eligible);
        places[0] = start + takes;
        start
    };
    jobs.iter().map(start).collect()
}

fn waited(jobs: &[(i64, i64)], starts: &[i64]) -> f64 {
    let waits = jobs.iter().zip(starts).map(|(job, start)| start - job.0);
    waits.sum::<i64>() as f64 / 3600.0
}

fn simulate(seed: u64, count: usize) -> (String, Truth) {
    let mut random = Rng::with_seed(seed);
    let policy = Policy::parse(POLICY).unwrap();
    let mut truth = Truth::default();
    let mut rows: Vec<(i64, String)> = Vec::new();
    for (kind, gpus) in GPUS {
        let mut now = 1_700_000_000;
        // Nearly all GPUs are busy nearly always.
        let gap = 2 * 7200 / gpus as i64 + 40;
        let jobs: Vec<(i64, i64)> = (0..count)
            .map(|_| {
                now += random.i64(0..gap);
                (now, random.i64(60..4 * 3600))
            })
            .collect();
        let starts_whole = starts(&jobs, gpus);
        truth.waited.insert(kind, waited(&jobs, &starts_whole));
        if kind == "a100" {
            truth.waited_in_quarters = waited(&jobs, &starts(&jobs, gpus * 4));
        }
        let gpu = policy.gpu(kind).unwrap();
        for (&(eligible, takes), start) in jobs.iter().zip(starts_whole) {
            // As much memory and time as a slice has, or less; what fits a smaller one, too.
            let size = match kind {
                "a100" => 4,
                _ => [1, 2, 4, 8][random.usize(0..4)],
            };
            let limit = f64::from(
                gpu.limits(gpu.shards_per_gpu() / size)
                    .unwrap()
                    .memory_mib(),
            );
            // The queue of those that need a quarter is to be exact: none is at the border.
            let most = match kind {
                "a100" => 0.97,
                _ => 1.0,
            };
            let peak = limit * most * random.f64();
            let utilization = 100.0 / f64::from(size) * most * random.f64();
            let holds = |size: &&u32| {
                let limits = gpu.slice(**size).unwrap();
                peak <= f64::from(limits.memory_mib()) && utilization <= 100.0 / f64::from(**size)
            };
            let smallest = gpu.slices().iter().rev().find(holds);
            let hours = takes as f64 / 3600.0;
            // The highest of the samples is lower than the highest there was.
            let (seen, used) = (
                peak * (1.0 - 0.02 * random.f64()),
                utilization + 0.2 * random.f64() - 0.1,
            );
            let (seen, used) = (seen as u64, used.max(0.0));
            let form = match kind {
                "a100" => 0,
                _ => random.usize(0..20),
            };
            let [mut tot, mut comment] = [const { String::new() }; 2];
            match form {
                0..10 => comment = js1(seen << 20, u64::from(gpu.memory_mib()) << 20, used),
                10..17 => {
                    tot = format!("cpu=00:10:00,gres/gpumem={seen}M,gres/gpuutil={used:.2},mem=1G")
                }
                17 => tot = format!("gres/gpumem={seen}M"),
                _ => {}
            }
            match (form, smallest) {
                (18.., _) => truth.unknown[0] += 1,
                // One that needs the whole GPU for its memory is known.
                (17, Some(_)) => truth.unknown[1] += 1,
                (17, None) if peak <= f64::from(gpu.slice(2).unwrap().memory_mib()) => {
                    truth.unknown[1] += 1
                }
                (_, Some(size)) => {
                    let (jobs, saved) = truth.slices.entry(format!("{kind}.{size}")).or_default();
                    *jobs += 1.0;
                    *saved += hours * (1.0 - 1.0 / f64::from(*size));
                }
                (_, None) => truth.whole += 1.0,
            }
            let id = rows.len() + 1;
            let (end, tres) = (
                start + takes,
                format!("cpu=4,gres/gpu:{kind}=1,gres/gpu=1,mem=8G"),
            );
            rows.push((
                start,
                format!(
                    "{id}|u{}|a|main|normal|{eligible}|{eligible}|{start}|{end}|{tres}|||{comment}\n\
                     {id}.batch||a|||{start}|{start}|{start}|{end}|{tres}|{tot}|{tot}|\n",
                    id % 40
                ),
            ));
        }
    }
    // sacct sorts by the number; whose order is another.
    rows.sort_unstable_by_key(|(start, _)| *start);
    let rows: String = rows.into_iter().map(|(_, row)| row).collect();
    (format!("{}\n{rows}", HISTORY.replace(',', "|")), truth)
}

fn js1(peak: u64, total: u64, utilization: f64) -> String {
    let json = serde_json::json!({
        "nodes": {"n1": {
            "total_memory": 8, "used_memory": 4, "total_time": 1.5, "cpus": 4,
            "gpu_total_memory": {"0": total}, "gpu_used_memory": {"0": peak},
            "gpu_utilization": {"0": (utilization * 10.0).round() / 10.0},
        }},
        "total_time": 100, "gpus": 1,
    });
    serde_json::from_value::<Js1>(json)
        .unwrap()
        .encode()
        .unwrap()
}

fn catalogue() -> Catalogue {
    Catalogue::new(Policy::parse(POLICY).unwrap(), None, 1.0).unwrap()
}

fn answer(history: &History) -> Advice {
    advise(
        history,
        &mut catalogue(),
        &HashMap::from(GPUS.map(|(kind, gpus)| (kind.to_string(), gpus as u32))),
    )
}

fn near(what: &str, found: f64, truth: f64) {
    let off = (found - truth).abs() / truth.abs().max(1e-9);
    println!(
        "{what}: {found:.1}, truth {truth:.1}, off by {:.2} %",
        off * 100.0
    );
    assert!(off <= 0.02, "{what}: {found}, but truly {truth}");
}

#[test]
fn a_history_with_known_truth_is_told_within_2_percent() {
    for seed in [1, 2] {
        let (text, truth) = simulate(seed, 12_000);
        let advice = answer(&sacct::read(text.as_bytes()).unwrap());
        assert_eq!(advice.one_gpu.jobs, 24_000);
        assert_eq!(advice.unknown.no_memory.jobs, truth.unknown[0]);
        near(
            "memory alone",
            advice.unknown.no_utilization.jobs as f64,
            truth.unknown[1] as f64,
        );
        let mut saved = 0.0;
        for slice in advice.types.iter().flat_map(|of| &of.slices) {
            let (jobs, hours) = truth.slices[&slice.slice];
            near(&slice.slice, slice.held.jobs as f64, jobs);
            near(&slice.slice, slice.saved_gpu_hours, hours);
            saved += hours;
        }
        near("saved", advice.saved_gpu_hours, saved);
        let whole: u64 = advice.types.iter().map(|of| of.whole.jobs).sum();
        near("whole", whole as f64, truth.whole);
        for of in &advice.types {
            let replay = of.replay.as_ref().unwrap();
            near(
                "recorded",
                replay.recorded_hours,
                truth.waited[of.r#type.as_str()],
            );
            near(
                "replayed",
                replay.whole_gpus_hours,
                truth.waited[of.r#type.as_str()],
            );
            let won = replay.whole_gpus_hours - replay.slices_hours;
            match of.r#type.as_str() {
                "a100" => near("won", won, truth.waited["a100"] - truth.waited_in_quarters),
                _ => assert!(won > 0.0),
            }
        }
    }
}
