//! The jobs: each takes all the memory it gets, says how much that was, and stays for a moment. And how that is judged.

use softmig_fake_node::{Gpu, MIB};
use softmig_tests::programs::FOLDER;
use softmig_tests::requests::memory_mib;

/// One allocation of a job.
const STEP: u64 = 256 * MIB;
/// The driver's code when there is no more.
const OUT_OF_MEMORY: &str = "2";

/// Its code if there are no GPUs.
const NO_DEVICE: &str = "100";

/// A job's request.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The words for sbatch.
    pub gres: &'static str,
    /// The shards of its limit: 0 without a GPU, 4 for a whole one.
    shards: u32,
}

const fn kind(gres: &'static str, shards: u32) -> Kind {
    Kind { gres, shards }
}

/// Requests of jobs, each as often as it is here.
pub const KINDS: [Kind; 10] = [
    kind("--gres=gpu:l40s.4:1", 1),
    kind("--gres=gpu:l40s.4:1", 1),
    kind("--gres=gpu:l40s.4:1", 1),
    kind("--gres=gpu:l40s.4:1", 1),
    kind("--gpus=l40s.4:1", 1),
    kind("--gres=gpu:l40s.2:1", 2),
    kind("--gres=gpu:l40s.2:1", 2),
    kind("--gres=gpu:l40s.2:1", 2),
    kind("--gres=gpu:l40s:1", 4),
    kind("--gres=none", 0),
];

impl Kind {
    /// Its script: the test of its limits, and then a process that has a context for this time.
    pub fn script(self, milliseconds: u32) -> String {
        format!(
            "cd {FOLDER}\necho \"run of {}\"\n\
             ./takes cuMemAlloc_v2 {STEP} hold 0 </dev/null\n\
             sleep {}.{:03} | ./takes cuMemAlloc_v2 {STEP} hold 1 >/dev/null\necho over\n",
            self.shards,
            milliseconds / 1000,
            milliseconds % 1000
        )
    }
}

/// The result of a job's run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// It was refused what is beyond its slice.
    Held,
    /// A job with a whole GPU had all of it.
    Whole,
    /// A job without a GPU had none.
    NoGpu,
    /// A job with a slice was given no GPU.
    Denied,
    /// It was ended before it knew.
    CutOff,
    /// A job with a whole GPU had all that others left of it. Slurm gives a GPU to a new job while processes of an old one are
    /// on it, if an administrator set the node down in between: then it waits for no epilog.
    Beside,
    /// A job had less than its slice, or than the GPU that it had alone.
    Short(String),
    /// It had more than it may.
    Loose(String),
}

impl Found {
    /// How it is called in the report.
    pub fn name(&self) -> &'static str {
        match self {
            Found::Held => "held to its slice",
            Found::Whole => "a whole GPU, and had it",
            Found::NoGpu => "no GPU asked, none had",
            Found::Denied => "given no GPU",
            Found::Beside => {
                "a whole GPU of a node that was set down, beside processes of the job before"
            }
            Found::CutOff => "ended before it knew",
            Found::Short(_) => "had less than its slice",
            Found::Loose(_) => "ran without its limits",
        }
    }
}

/// The results of a job's runs, by all that they said.
pub fn judge(said: &str) -> Vec<Found> {
    let runs = said.split("run of ").skip(1);
    runs.map(|run| judge_run(run).unwrap_or(Found::CutOff))
        .collect()
}

fn judge_run(run: &str) -> Option<Found> {
    let (shards, lines) = run.split_once('\n')?;
    let shards: u32 = shards.parse().ok()?;
    let line = |start: &str| lines.lines().find_map(|line| line.strip_prefix(start));
    let started = line("start: ")?;
    if line("libsoftmig: ") != Some("mapped") && shards < 4 {
        return Some(Found::Loose(run.into()));
    }
    match (started, shards) {
        ("0", _) => {}
        (NO_DEVICE, 0) => return Some(Found::NoGpu),
        (NO_DEVICE, _) => return Some(Found::Denied),
        _ => return Some(Found::Short(run.into())),
    }
    let (blocks, then) = line("took: blocks=")?.split_once(" then=")?;
    let taken = blocks.parse::<u64>().ok()? * STEP;
    let limit = u64::from(memory_mib(shards)) * MIB;
    let room = limit.saturating_sub(Gpu::l40s(0).context);
    Some(if shards == 0 || taken > room || then != OUT_OF_MEMORY {
        Found::Loose(run.into())
    } else if taken + 2 * STEP < room {
        match free(line("holding: ")) {
            // A job with a whole GPU sees the driver's own figure.
            Some(free) if shards == 4 && free < STEP => Found::Beside,
            _ => Found::Short(run.into()),
        }
    } else if shards == 4 {
        Found::Whole
    } else {
        Found::Held
    })
}

/// Free bytes by `cuMemGetInfo`, when no more was to be had.
fn free(holding: Option<&str>) -> Option<u64> {
    let mut words = holding?.split_whitespace();
    words.find_map(|word| word.strip_prefix("free=")?.parse().ok())
}

#[test]
fn each_run_of_a_job_is_judged() {
    let run = |shards: u32, start: u32, blocks: u64| {
        format!(
            "run of {shards}\nlibsoftmig: mapped\nstart: {start}\ntook: blocks={blocks} then=2\n"
        )
    };
    let room = |shards| (u64::from(memory_mib(shards)) * MIB - Gpu::l40s(0).context) / STEP;
    let (room, all) = (room(1), room(4));
    let said = [
        run(1, 0, room),
        "run of 1\nlibsoftmig: mapped\n".into(),
        run(1, 100, 0),
        run(0, 100, 0),
        run(4, 0, all),
    ];
    let found = judge(&said.concat());
    let expected = [
        Found::Held,
        Found::CutOff,
        Found::Denied,
        Found::NoGpu,
        Found::Whole,
    ];
    assert_eq!(found, expected);
    let is = |said: String, name: &str| assert_eq!(judge(&said)[0].name(), name, "{said}");
    is(run(1, 0, room + 1), "ran without its limits");
    is(run(0, 0, 1), "ran without its limits");
    is(run(1, 0, room - 3), "had less than its slice");
    let full = "holding: cuMemGetInfo=0 free=188743680 total=47672459264\n";
    is(run(4, 0, all - 3), "had less than its slice");
    is(run(4, 0, all - 3) + full, Found::Beside.name());
    is(run(1, 0, room - 3) + full, "had less than its slice");
    is(
        run(1, 0, room).replace("then=2", "then=0"),
        "ran without its limits",
    );
    is(
        run(1, 0, room).replace("mapped", "not mapped"),
        "ran without its limits",
    );
}
