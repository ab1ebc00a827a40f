//! A job's use of its slice, and whether a smaller one would have done: for `softmig job`, and for the line at a job's end.
//!
//! A smaller slice is one that policy.toml offers, with the limits that the policy gives it; nothing is divided here.

use crate::{Job, JobGpu, Slice};
use softmig_policy::Limits;
use softmig_policy::config::gpu_types::{GpuType, part_names};
use std::fmt;

/// The use by a job with a slice, on all of its GPUs together.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The slice.
    pub slice: Slice,
    /// The memory that it holds now, on the GPU where it holds most.
    pub held_bytes: Option<u64>,
    /// The most that it held on a GPU.
    pub peak_bytes: Option<u64>,
    /// How many allocations were refused.
    pub refused: u64,
    /// After how many of them the program went on and was given memory.
    pub recovered: u64,
    /// The largest of them.
    pub refused_largest_bytes: Option<u64>,
    /// For how long its time was counted, summed over its GPUs.
    pub known_seconds: f64,
    /// The GPU time that it was charged.
    pub charged_seconds: f64,
    /// The time in which it wanted a GPU and was held.
    pub waited_seconds: f64,
}

/// A smaller slice that is on offer, and what it would have held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Smaller {
    /// Its limits.
    pub limits: Limits,
    /// Whether its memory would have held the job's peak.
    pub holds_memory: bool,
    /// Whether its share is at least the part of the GPU's time that the job was charged, on average.
    pub holds_time: bool,
}

impl Summary {
    /// The use by a job; `None` if it has no slice.
    pub fn from_job(job: &Job) -> Option<Self> {
        let slice = job.slice.clone()?;
        let most = |part: fn(&JobGpu) -> Option<u64>| job.gpus.iter().filter_map(part).max();
        let sum = |part: fn(&JobGpu) -> f64| job.gpus.iter().map(part).map(time).sum();
        Some(Self {
            slice,
            held_bytes: most(|gpu| gpu.memory_bytes),
            peak_bytes: most(|gpu| gpu.memory_peak_bytes),
            refused: job.sum(|gpu| gpu.refused),
            recovered: job.sum(|gpu| gpu.recovered),
            refused_largest_bytes: most(|gpu| Some(gpu.refused_largest_bytes))
                .filter(|&largest| largest > 0),
            known_seconds: sum(|gpu| gpu.known_seconds),
            charged_seconds: sum(|gpu| gpu.charged_seconds),
            waited_seconds: sum(|gpu| gpu.waited_seconds),
        })
    }

    /// The GPU time that its share allowed while it was counted.
    pub fn allowed_seconds(&self) -> f64 {
        self.known_seconds * self.slice.share()
    }

    /// The part of its allowed time that it was charged: above 1 if it borrowed idle time.
    pub fn of_share(&self) -> Option<f64> {
        let allowed = self.allowed_seconds();
        (allowed > 0.0).then(|| self.charged_seconds / allowed)
    }

    /// The part of the time in which it was held.
    pub fn waited(&self) -> Option<f64> {
        (self.known_seconds > 0.0).then(|| self.waited_seconds / self.known_seconds)
    }

    /// The smaller slice to tell of: the smallest that would have done; else the smallest that would have held the memory;
    /// else the next smaller one, which would have held too little. `None` without a smaller one, without a known peak,
    /// and if the job [needed more](Self::needed_more) or [used nothing](Self::is_unused).
    pub fn smaller(&self, gpu: &GpuType) -> Option<Smaller> {
        let is_told = !self.needed_more() && !self.is_unused();
        let peak = self.peak_bytes.filter(|_| is_told)?;
        let offers = gpu.slices().iter().filter_map(|&size| gpu.slice(size));
        // The largest first.
        let smaller: Vec<Smaller> = offers
            .filter(|limits| self.is_larger_than(limits))
            .map(|limits| Smaller {
                limits,
                holds_memory: peak <= u64::from(limits.memory_mib()) << 20,
                holds_time: self.charged_seconds <= self.known_seconds * limits.share().fraction(),
            })
            .collect();
        let last = |is_it: fn(&&Smaller) -> bool| smaller.iter().rfind(is_it).copied();
        last(|slice| slice.holds_memory && slice.holds_time)
            .or_else(|| last(|slice| slice.holds_memory))
            .or_else(|| smaller.first().copied())
    }

    /// Whether an allocation was refused without which the program did not go on. Many programs ask for all there is, and take
    /// what they get.
    pub fn needed_more(&self) -> bool {
        self.refused > self.recovered
    }

    /// Whether it had nothing of its GPU yet.
    pub fn is_unused(&self) -> bool {
        self.peak_bytes == Some(0) && self.charged_seconds == 0.0 && self.refused == 0
    }

    fn is_larger_than(&self, other: &Limits) -> bool {
        let (own, other) = (
            [self.slice.shards, self.slice.shards_per_gpu],
            other.share(),
        );
        let [shards, per_gpu] = own.map(u64::from);
        u64::from(other.shards()) * per_gpu < shards * u64::from(other.per_gpu())
    }

    /// All of it in one line: "used 7.9 of 11.1 GiB, 61 % of its quarter, waited 4 %; an eighth would not have held it".
    /// `gpu` is the slice's type in the policy, where that can be read.
    pub fn sentence(&self, gpu: Option<&GpuType>) -> String {
        let part = name(self.slice.shards, self.slice.shards_per_gpu);
        let limit = self.slice.memory_bytes;
        if self.is_unused() {
            return format!("did not use its {part}");
        }
        let mut text = match self.peak_bytes {
            Some(peak) => format!("used {}, ", used_of_limit(peak, limit)),
            // The accounting may have the time alone.
            None if limit == 0 => "used ".to_string(),
            None => format!("used an unknown part of {}, ", Size(limit)),
        };
        match (self.of_share(), self.waited()) {
            (Some(used), Some(waited)) => {
                text += &format!(
                    "{} % of its {part}, waited {} %",
                    percent(used),
                    percent(waited)
                );
            }
            _ => text += &format!("an unknown part of its {part}'s time"),
        }
        text += &match (self.refused, self.refused_largest_bytes.map(Size)) {
            (0, _) => String::new(),
            (1, Some(largest)) => format!("; 1 allocation of {largest} was refused"),
            (1, None) => "; 1 allocation was refused".to_string(),
            (count, Some(largest)) => {
                format!("; {count} allocations were refused, the largest of {largest}")
            }
            (count, None) => format!("; {count} allocations were refused"),
        };
        if self.refused > 0 && !self.needed_more() {
            text += ", and it went on";
        }
        if let Some(smaller) = gpu.and_then(|gpu| self.smaller(gpu)) {
            text += &format!("; {smaller}");
        }
        text
    }
}

impl fmt::Display for Smaller {
    /// "an eighth would have held it: --gres=gpu:l40s.8:1", "an eighth would not have held it".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = self.limits.share();
        f.write_str(&with_article(&name(share.shards(), share.per_gpu())))?;
        match (self.holds_memory, self.holds_time) {
            (true, true) => {
                let request = self.limits.slice_request();
                write!(f, " would have held it: --gres={request}")
            }
            (true, false) => f.write_str(" would have held its memory, but not its GPU time"),
            (false, _) => f.write_str(" would not have held it"),
        }
    }
}

/// A time, from a file that may hold anything.
fn time(seconds: f64) -> f64 {
    if seconds.is_finite() {
        seconds.max(0.0)
    } else {
        0.0
    }
}

/// "quarter", "3/8 of a GPU", "GPU".
pub fn name(shards: u32, per_gpu: u32) -> String {
    match per_gpu.checked_div(shards) {
        Some(1) => "GPU".to_string(),
        Some(size) if size * shards == per_gpu => match part_names(size) {
            Some((one, _)) => one.to_string(),
            None => format!("1/{size} of a GPU"),
        },
        _ => format!("{shards}/{per_gpu} of a GPU"),
    }
}

fn with_article(name: &str) -> String {
    match name.chars().next() {
        Some('0'..='9') => name.to_string(),
        Some('a' | 'e' | 'i' | 'o' | 'u') => format!("an {name}"),
        _ => format!("a {name}"),
    }
}

/// A part of one as a whole percentage. One that a nonsensical file gives is cut.
pub fn percent(part: f64) -> u32 {
    // The cast of a float cuts what does not fit.
    (part * 100.0).round().clamp(0.0, 99_999.0) as u32
}

/// "7.9 of 11.1 GiB": with the unit once where it is the same.
fn used_of_limit(used: u64, limit: u64) -> String {
    let (used, limit) = (Size(used).to_string(), Size(limit).to_string());
    match (used.split_once(' '), limit.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} of {limit}"),
        _ => format!("{used} of {limit}"),
    }
}

/// An amount of memory for people: `11.1 GiB`, `512 MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.0 >> 20;
        match mib {
            ..1024 => write!(f, "{mib} MiB"),
            // Rounded to the nearest tenth.
            _ => {
                let tenths = (mib * 10 + 512) >> 10;
                write!(f, "{}.{} GiB", tenths / 10, tenths % 10)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_policy::Policy;

    const POLICY: &str = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 16\n";

    /// A quarter that was counted for 1000 s.
    fn job(peak_mib: Option<u64>, charged: f64) -> Job {
        let gpu = JobGpu {
            memory_peak_bytes: peak_mib.map(|mib| mib << 20),
            known_seconds: 1000.0,
            charged_seconds: charged,
            waited_seconds: 40.0,
            ..JobGpu::default()
        };
        Job {
            slice: Some(Slice {
                r#type: "l40s".into(),
                shards: 4,
                shards_per_gpu: 16,
                mode: "hard".into(),
                memory_bytes: 11366 << 20,
            }),
            gpus: vec![gpu],
            ..Job::default()
        }
    }

    fn sentence(job: &Job) -> String {
        let policy = Policy::parse(POLICY).unwrap();
        Summary::from_job(job).unwrap().sentence(policy.gpu("l40s"))
    }

    #[test]
    fn the_line_says_what_was_used_and_whether_less_would_have_done() {
        for (peak, charged, told) in [
            (
                Some(8100),
                152.5,
                "used 7.9 of 11.1 GiB, 61 % of its quarter, waited 4 %; an eighth would not have held it",
            ),
            (
                Some(5683),
                100.0,
                "used 5.5 of 11.1 GiB, 40 % of its quarter, waited 4 %; an eighth would have held it: --gres=gpu:l40s.8:1",
            ),
            (
                Some(600),
                10.0,
                "used 600 MiB of 11.1 GiB, 4 % of its quarter, waited 4 %; 1/16 of a GPU would have held it: --gres=gpu:l40s.16:1",
            ),
            (
                Some(600),
                100.0,
                "used 600 MiB of 11.1 GiB, 40 % of its quarter, waited 4 %; an eighth would have held it: --gres=gpu:l40s.8:1",
            ),
            (
                Some(600),
                250.0,
                "used 600 MiB of 11.1 GiB, 100 % of its quarter, waited 4 %; 1/16 of a GPU would have held its memory, but not its GPU time",
            ),
            (
                Some(5684),
                0.0,
                "used 5.6 of 11.1 GiB, 0 % of its quarter, waited 4 %; an eighth would not have held it",
            ),
            (Some(0), 0.0, "did not use its quarter"),
            (
                None,
                250.0,
                "used an unknown part of 11.1 GiB, 100 % of its quarter, waited 4 %",
            ),
        ] {
            assert_eq!(sentence(&job(peak, charged)), told);
        }
    }

    #[test]
    fn a_job_that_was_refused_memory_wanted_more() {
        let mut job = job(Some(600), 10.0);
        job.gpus[0].refused = 1;
        job.gpus[0].refused_largest_bytes = 12 << 30;
        assert!(sentence(&job).ends_with("waited 4 %; 1 allocation of 12.0 GiB was refused"));
        job.gpus[0].refused = 7;
        let told = "waited 4 %; 7 allocations were refused, the largest of 12.0 GiB";
        assert!(sentence(&job).ends_with(told), "{}", sentence(&job));
        job.gpus[0].refused_largest_bytes = 0;
        assert!(sentence(&job).ends_with("waited 4 %; 7 allocations were refused"));
    }

    #[test]
    fn a_job_that_went_on_after_a_refusal_did_not_need_more() {
        let mut job = job(Some(600), 10.0);
        (job.gpus[0].refused, job.gpus[0].recovered) = (2, 1);
        assert!(sentence(&job).ends_with("; 2 allocations were refused"));
        job.gpus[0].recovered = 2;
        let told = sentence(&job);
        let (_, told) = told.split_once("refused").unwrap();
        assert_eq!(
            told,
            ", and it went on; 1/16 of a GPU would have held it: --gres=gpu:l40s.16:1"
        );
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        let mut unknown = job(Some(600), 10.0);
        unknown.gpus[0].known_seconds = 0.0;
        let told = "used 600 MiB of 11.1 GiB, an unknown part of its quarter's time";
        assert!(
            sentence(&unknown).starts_with(told),
            "{}",
            sentence(&unknown)
        );
        let mut time = job(None, 152.5);
        time.slice.as_mut().unwrap().memory_bytes = 0;
        assert_eq!(sentence(&time), "used 61 % of its quarter, waited 4 %");
        let own = Summary::from_job(&job(Some(600), 10.0)).unwrap();
        let told = "used 600 MiB of 11.1 GiB, 4 % of its quarter, waited 4 %";
        assert_eq!(own.sentence(None), told);
        let whole = Job {
            slice: None,
            ..job(None, 1.0)
        };
        assert_eq!(Summary::from_job(&whole), None);
    }

    #[test]
    fn a_nonsensical_file_gives_a_line_all_the_same() {
        let mut odd = job(Some(u64::MAX), f64::NAN);
        odd.gpus[0].waited_seconds = f64::INFINITY;
        odd.gpus[0].refused = u64::MAX;
        odd.gpus.push(odd.gpus[0].clone());
        odd.slice = Some(Slice {
            shards: u32::MAX,
            ..Slice::default()
        });
        assert!(sentence(&odd).len() < 300);
        odd.slice = Some(Slice::default());
        odd.gpus[0].charged_seconds = f64::MAX;
        odd.gpus[1].charged_seconds = f64::MAX;
        assert!(sentence(&odd).len() < 300);
    }

    #[test]
    fn several_gpus_count_together_and_memory_by_the_fullest() {
        let mut two = job(Some(600), 100.0);
        two.gpus.extend(job(Some(8100), 300.0).gpus);
        let told = "used 7.9 of 11.1 GiB, 80 % of its quarter, waited 4 %; an eighth would not have held it";
        assert_eq!(sentence(&two), told);
    }

    #[test]
    fn slices_have_names() {
        for (shards, per_gpu, told) in [
            (1, 2, "half"),
            (2, 16, "eighth"),
            (3, 8, "3/8 of a GPU"),
            (1, 80, "1/80 of a GPU"),
            (4, 4, "GPU"),
            (0, 0, "0/0 of a GPU"),
        ] {
            assert_eq!(name(shards, per_gpu), told);
        }
    }
}
