//! A random search for hostile jobs beside an honest one, which prints what it finds.
//! `COUNT=600 cargo test --release -p softmig-monitor --lib -- --ignored --nocapture hostile_`; `ONLY=7` is one kind.

use super::*;

const SECOND: Nanos = 1_000 * MS;
const STEP: Nanos = MS;

#[derive(Clone, Copy, Debug, PartialEq)]
enum React {
    Never,
    /// Wants nothing while it is held.
    RestsWhenHeld,
    /// Is busy only while the victim's job is capped.
    WhenVictimCapped,
    /// Rests as soon as it leads by more than some ms, until it leads by none.
    RestsAhead(Nanos),
    /// Rests for `.0` after each hold.
    RestsAfterHold(Nanos),
}

#[derive(Clone, Debug)]
struct Foe {
    share: (u32, u32),
    mode: Mode,
    groups: usize,
    program: Program,
    /// 0 for always on.
    on: Nanos,
    off: Nanos,
    phase: Nanos,
    lie: (Option<bool>, Option<Nanos>),
    /// The lie in the time in which it is off.
    leaves: bool,
    react: React,
    /// Every group but one rests: the next one goes on after this.
    rotates: Nanos,
}

impl Foe {
    fn new(share: (u32, u32), mode: Mode) -> Self {
        Self {
            share,
            mode,
            groups: 1,
            program: Program::Queue,
            on: 0,
            off: 0,
            phase: 0,
            lie: (None, None),
            leaves: false,
            react: React::Never,
            rotates: 0,
        }
    }
}

#[derive(Clone, Debug)]
struct Victim {
    share: (u32, u32),
    mode: Mode,
    program: Program,
    groups: usize,
}

#[derive(Clone, Copy, Debug)]
struct Got {
    /// The least in a second, and the mean, as a part of its share.
    least: f64,
    mean: f64,
    /// All foes' part of the sum of their shares.
    foes: f64,
    /// The most GPU time of any foe beyond its share and one burst in ms, in any time.
    beyond: f64,
    /// The longest time without any work done for the victim.
    gap: f64,
    held_too_long: f64,
    /// Milliseconds of the victim's `latest`.
    latest: f64,
    idle: f64,
}

fn play(victim: &Victim, foes: &[Foe], length: Nanos, beats: bool) -> Got {
    let mut gpu = Gpu::new(0);
    gpu.beats = beats;
    let share = |(a, b)| Share::new(a, b).unwrap();
    let v = Job(0);
    gpu.come(v, share(victim.share), victim.mode);
    let victims: Vec<usize> = (0..victim.groups)
        .map(|_| gpu.add(v, true, victim.program))
        .collect();
    let mut sims: Vec<Vec<usize>> = Vec::new();
    for (number, foe) in (1..).zip(foes) {
        gpu.come(Job(number), share(foe.share), foe.mode);
        let of: Vec<usize> = (0..foe.groups)
            .map(|_| gpu.add(Job(number), true, Program::Rest))
            .collect();
        for &it in &of {
            gpu.sims[it].lie = foe.lie;
        }
        sims.push(of);
    }
    let mut is_on = vec![vec![false; 64]; foes.len()];
    let mut is_here = vec![true; foes.len()];
    let mut rests_until = vec![0; foes.len()];
    let mut rests = vec![false; foes.len()];
    let (mut done, mut foes_done): (Vec<Nanos>, Vec<Vec<Nanos>>) =
        (vec![], vec![vec![]; foes.len()]);
    let (mut gap, mut last, mut since) = (0, 0, 0);
    for step in 0..length / STEP {
        let now = step * STEP;
        for (at, foe) in foes.iter().enumerate() {
            let job = Job(at as u32 + 1);
            let cycle = foe.on + foe.off;
            let mut wants = foe.off == 0 || (now + foe.phase) % cycle < foe.on;
            let held = gpu.sharing.jobs.get(&job).and_then(|it| it.held);
            match foe.react {
                React::Never => {}
                React::RestsWhenHeld => wants &= held.is_none(),
                React::RestsAfterHold(time) => {
                    if held.is_some() {
                        rests_until[at] = now + time;
                    }
                    wants &= now >= rests_until[at];
                }
                React::WhenVictimCapped => {
                    wants &= gpu.sharing.jobs[&v].held == Some(Held::Capped);
                }
                React::RestsAhead(most) => {
                    let of = |job| {
                        gpu.sharing
                            .jobs
                            .get(&job)
                            .map_or(0, |it: &JobState| it.virtual_time)
                    };
                    let lead = of(job) - of(v);
                    if lead > most {
                        rests[at] = true;
                    } else if lead <= 0 {
                        rests[at] = false;
                    }
                    wants &= !rests[at];
                }
            }
            if foe.leaves && wants != is_here[at] {
                is_here[at] = wants;
                if wants {
                    gpu.come(job, share(foe.share), foe.mode);
                } else {
                    gpu.sharing.leave(job);
                }
            }
            for (number, &sim) in sims[at].iter().enumerate() {
                let turn = foe.rotates == 0 || (now / foe.rotates) as usize % foe.groups == number;
                let wants = wants && turn;
                if wants != is_on[at][number] {
                    is_on[at][number] = wants;
                    gpu.run(sim, if wants { foe.program } else { Program::Rest });
                    if !wants {
                        gpu.sims[sim].queued = 0;
                    }
                }
            }
        }
        gpu.run_until(now + STEP);
        let all: Nanos = victims.iter().map(|&it| gpu.sims[it].done).sum();
        if all > last {
            (last, since) = (all, now);
        }
        gap = gap.max(now - since);
        done.push(all);
        for (at, of) in sims.iter().enumerate() {
            foes_done[at].push(of.iter().map(|&it| gpu.sims[it].done).sum());
        }
    }
    let own = |(a, b): (u32, u32)| f64::from(a) / f64::from(b);
    let steps = |time: Nanos| (time / STEP) as usize;
    let (second, first) = (steps(SECOND), steps(SECOND / 2));
    let least = (first..done.len() - second)
        .step_by(10)
        .map(|at| done[at + second] - done[at])
        .min();
    let least = least.unwrap_or(0) as f64 / SECOND as f64 / own(victim.share);
    let time = (done.len() - first) as f64 * STEP as f64;
    let mean = (done[done.len() - 1] - done[first]) as f64 / time / own(victim.share);
    let sum: Nanos = foes_done
        .iter()
        .map(|it| it[it.len() - 1] - it[first])
        .sum();
    let shares: f64 = foes.iter().map(|it| own(it.share)).sum();
    let mut beyond = f64::MIN;
    for (foe, done) in foes.iter().zip(&foes_done) {
        let mut low = 0.0_f64;
        for (at, &done) in (1..).zip(done) {
            let over = done as f64 - at as f64 * STEP as f64 * own(foe.share);
            low = low.min(over);
            beyond = beyond.max(over - low - burst(share(foe.share)) as f64);
        }
    }
    Got {
        least,
        mean,
        foes: sum as f64 / time / shares,
        beyond: beyond / MS as f64,
        gap: gap as f64 / MS as f64,
        held_too_long: gpu.held_too_long as f64 / MS as f64,
        latest: victims
            .iter()
            .map(|&it| gpu.sims[it].latest)
            .max()
            .unwrap_or(0) as f64
            / MS as f64,
        idle: gpu.idle_beside_soft as f64 / length as f64,
    }
}

struct Dice(u64);
impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[(self.next() % all.len() as u64) as usize]
    }
    fn log(&mut self, from: Nanos, to: Nanos) -> Nanos {
        let part = (self.next() % 10_000) as f64 / 10_000.0;
        let (a, b) = ((from as f64).ln(), (to as f64).ln());
        (a + (b - a) * part).exp() as Nanos
    }
}

/// Each: the victim's share, those of the foes.
const SPLITS: [((u32, u32), &[(u32, u32)]); 7] = [
    ((1, 2), &[(1, 2)]),
    ((1, 4), &[(3, 4)]),
    ((1, 8), &[(7, 8)]),
    ((3, 4), &[(1, 4)]),
    ((7, 8), &[(1, 8)]),
    ((1, 2), &[(1, 4), (1, 4)]),
    ((1, 8), &[(1, 8); 7]),
];

fn show(name: &str, victim: &Victim, foes: &[Foe], got: Got) {
    println!(
        "{name}: victim {:?} {:?} least {:.3} mean {:.3}; foes {:.3} beyond {:.1} ms; gap {:.0} ms, held beyond {:.1} ms, late {:.0} ms idle {:.3}",
        victim.share,
        victim.mode,
        got.least,
        got.mean,
        got.foes,
        got.beyond,
        got.gap,
        got.held_too_long,
        got.latest,
        got.idle
    );
    for foe in foes {
        println!("      {foe:?}");
    }
}

/// Searches foes of a kind: the worst for the victim, the most for the foes beyond their caps.
fn search(
    name: &str,
    count: usize,
    hard: Mode,
    victim: Program,
    change: impl Fn(&mut Dice, &mut Foe),
) {
    for is_one in [true, false] {
        let splits: Vec<_> = SPLITS
            .iter()
            .filter(|it| (it.1.len() == 1) == is_one)
            .collect();
        let mut dice = Dice(0x1234_5678_9abc_def1 ^ name.len() as u64);
        let mut worst: [Option<(Victim, Vec<Foe>, Got)>; 4] = [None, None, None, None];
        for number in 0..count {
            let &(own, others) = splits[number % splits.len()];
            let victim = Victim {
                share: own,
                mode: hard,
                program: victim,
                groups: 1,
            };
            let is_same = dice.of(&[true, false]);
            let mut foe = Foe::new(others[0], hard);
            change(&mut dice, &mut foe);
            let foes: Vec<Foe> = others
                .iter()
                .map(|&share| {
                    if !is_same {
                        change(&mut dice, &mut foe);
                    }
                    Foe {
                        share,
                        ..foe.clone()
                    }
                })
                .collect();
            let got = play(&victim, &foes, 4 * SECOND, true);
            let all = (victim, foes, got);
            let bad = |it: &Got| [-it.mean, it.beyond, it.gap, it.held_too_long];
            for (kind, place) in worst.iter_mut().enumerate() {
                if place
                    .as_ref()
                    .is_none_or(|it| bad(&got)[kind] > bad(&it.2)[kind])
                {
                    *place = Some(all.clone());
                }
            }
        }
        for (what, it) in ["mean", "cap", "gap", "held"].iter().zip(worst) {
            let Some((victim, foes, _)) = it else {
                continue;
            };
            let long = play(&victim, &foes, 60 * SECOND, true);
            show(&format!("{name} {what}"), &victim, &foes, long);
        }
    }
}

fn count() -> usize {
    std::env::var("COUNT").map_or(140, |it| it.parse().unwrap())
}

fn wanted(name: &str) -> bool {
    std::env::var("ONLY").map_or(true, |it| it.split(',').any(|it| name.starts_with(it)))
}

fn duty(dice: &mut Dice, foe: &mut Foe) {
    foe.on = dice.log(MS, 500 * MS) / STEP * STEP;
    foe.off = dice.log(MS, 500 * MS) / STEP * STEP;
    foe.phase = dice.log(MS, 500 * MS);
}

fn tiny(dice: &mut Dice) -> Program {
    Program::Waits {
        work: dice.log(5_000, 20 * MS),
        pause: dice.log(5_000, 20 * MS),
    }
}

const SILENT: (Option<bool>, Option<Nanos>) = (Some(false), Some(0));
const CLAIMS: (Option<bool>, Option<Nanos>) = (Some(true), Some(100));

#[test]
#[ignore = "a search"]
fn hostile_honest_waiter() {
    // An honest job that works for half of the time, beside one that says that it always has work and has 20 us each 95 ms.
    for (work, pause) in [
        (500_000, 500_000),
        (MS, MS),
        (2 * MS, 2 * MS),
        (5 * MS, 5 * MS),
        (10 * MS, 10 * MS),
        (MS, 3 * MS),
    ] {
        for mode in [HARD, Mode::Soft] {
            let program = Program::Waits { work, pause };
            let victim = Victim {
                share: (1, 2),
                mode,
                program,
                groups: 1,
            };
            let mut foe = Foe::new((1, 8), HARD);
            let mut out = String::new();
            for (name, program, groups, lie) in [
                ("rests", Program::Rest, 1, (None, None)),
                ("queue", Program::Queue, 1, (None, None)),
                (
                    "ticks",
                    Program::Ticks {
                        work: 20_000,
                        period: 95 * MS,
                    },
                    1,
                    (None, None),
                ),
                (
                    "ticks 20",
                    Program::Ticks {
                        work: 20_000,
                        period: 20 * MS,
                    },
                    1,
                    (None, None),
                ),
                (
                    "honest ticks",
                    Program::Waits {
                        work: 20_000,
                        pause: 95 * MS,
                    },
                    1,
                    (None, None),
                ),
            ] {
                (foe.program, foe.groups, foe.lie) = (program, groups, lie);
                let got = play(&victim, &[foe.clone()], 20 * SECOND, true);
                out += &format!(" {name} {:.3}", got.mean / 2.0);
            }
            println!("waiter {work} {pause} {mode:?} part of the GPU beside:{out}");
        }
    }
}

fn foes(
    share: (u32, u32),
    mode: Mode,
    count: usize,
    groups: usize,
    program: Program,
    on: Nanos,
    off: Nanos,
    lie: (Option<bool>, Option<Nanos>),
    leaves: bool,
    react: React,
) -> Vec<Foe> {
    vec![
        Foe {
            groups,
            program,
            on,
            off,
            lie,
            leaves,
            react,
            ..Foe::new(share, mode)
        };
        count
    ]
}

#[test]
#[ignore = "a search"]
fn hostile_named() {
    let q = Program::Queue;
    let true_ = (None, None);
    for mode in [HARD, Mode::Soft] {
        let all = vec![
            (
                "A silent pair 1/4+1/4",
                (1, 2),
                foes((1, 4), mode, 2, 8, q, 0, 0, SILENT, false, React::Never),
            ),
            (
                "A silent seven",
                (1, 8),
                foes((1, 8), mode, 7, 8, q, 0, 0, SILENT, false, React::Never),
            ),
            (
                "A silent pair one group each",
                (1, 2),
                foes((1, 4), mode, 2, 1, q, 0, 0, SILENT, false, React::Never),
            ),
            (
                "B single, wishes, says no work",
                (7, 8),
                foes(
                    (1, 8),
                    mode,
                    1,
                    1,
                    q,
                    141 * MS,
                    139 * MS,
                    (Some(true), Some(0)),
                    false,
                    React::Never,
                ),
            ),
            (
                "B single half",
                (1, 2),
                foes(
                    (1, 2),
                    mode,
                    1,
                    8,
                    q,
                    68 * MS,
                    25 * MS,
                    SILENT,
                    false,
                    React::Never,
                ),
            ),
            (
                "B single quarter",
                (3, 4),
                foes(
                    (1, 4),
                    mode,
                    1,
                    8,
                    q,
                    59 * MS,
                    12 * MS,
                    SILENT,
                    false,
                    React::Never,
                ),
            ),
            (
                "C leaves when held",
                (1, 2),
                foes(
                    (1, 2),
                    mode,
                    1,
                    30,
                    Program::Ticks {
                        work: 11_996,
                        period: 6_238_225,
                    },
                    0,
                    0,
                    (None, Some(0)),
                    true,
                    React::RestsWhenHeld,
                ),
            ),
            (
                "C same, stays",
                (1, 2),
                foes(
                    (1, 2),
                    mode,
                    1,
                    30,
                    Program::Ticks {
                        work: 11_996,
                        period: 6_238_225,
                    },
                    0,
                    0,
                    (None, Some(0)),
                    false,
                    React::RestsWhenHeld,
                ),
            ),
            (
                "C same, true",
                (1, 2),
                foes(
                    (1, 2),
                    mode,
                    1,
                    30,
                    Program::Ticks {
                        work: 11_996,
                        period: 6_238_225,
                    },
                    0,
                    0,
                    true_,
                    true,
                    React::RestsWhenHeld,
                ),
            ),
            (
                "D duty seven x 16",
                (1, 8),
                foes(
                    (1, 8),
                    mode,
                    7,
                    16,
                    q,
                    3 * MS,
                    5 * MS,
                    true_,
                    false,
                    React::Never,
                ),
            ),
            (
                "D duty seven x 8",
                (1, 8),
                foes(
                    (1, 8),
                    mode,
                    7,
                    8,
                    q,
                    MS,
                    3 * MS,
                    true_,
                    false,
                    React::Never,
                ),
            ),
            (
                "D duty seven x 1",
                (1, 8),
                foes((1, 8), mode, 7, 1, q, MS, MS, true_, false, React::Never),
            ),
            (
                "D rests after hold, seven x 30",
                (1, 8),
                foes(
                    (1, 8),
                    mode,
                    7,
                    30,
                    q,
                    0,
                    0,
                    true_,
                    false,
                    React::RestsAfterHold(1_685_776),
                ),
            ),
            (
                "D rests after hold, one x 30",
                (1, 8),
                foes(
                    (7, 8),
                    mode,
                    1,
                    30,
                    q,
                    0,
                    0,
                    true_,
                    false,
                    React::RestsAfterHold(4_837_266),
                ),
            ),
            (
                "E claims ticks 1/4 v 3/4",
                (1, 4),
                foes(
                    (3, 4),
                    mode,
                    1,
                    8,
                    Program::Ticks {
                        work: 37_998,
                        period: 10_797_914,
                    },
                    0,
                    0,
                    CLAIMS,
                    false,
                    React::Never,
                ),
            ),
            (
                "E claims waits seven",
                (1, 8),
                foes(
                    (1, 8),
                    mode,
                    7,
                    1,
                    Program::Waits {
                        work: 6_076,
                        pause: 3_707_587,
                    },
                    0,
                    0,
                    CLAIMS,
                    false,
                    React::Never,
                ),
            ),
            (
                "E true waits seven",
                (1, 8),
                foes(
                    (1, 8),
                    mode,
                    7,
                    1,
                    Program::Waits {
                        work: 6_076,
                        pause: 3_707_587,
                    },
                    0,
                    0,
                    true_,
                    false,
                    React::Never,
                ),
            ),
            (
                "F seven x 30 groups",
                (1, 8),
                foes((1, 8), mode, 7, 30, q, 0, 0, true_, false, React::Never),
            ),
            (
                "F yields two x 2 groups",
                (1, 8),
                foes(
                    (1, 8),
                    mode,
                    7,
                    2,
                    Program::Waits {
                        work: 194_661,
                        pause: 13_516,
                    },
                    0,
                    0,
                    true_,
                    false,
                    React::Never,
                ),
            ),
            (
                "F yields little",
                (1, 2),
                foes(
                    (1, 2),
                    mode,
                    1,
                    1,
                    Program::Waits {
                        work: 20_000,
                        pause: 4 * MS,
                    },
                    0,
                    0,
                    true_,
                    false,
                    React::Never,
                ),
            ),
            (
                "G CUPY victim of three busy",
                (1, 4),
                foes((1, 4), mode, 3, 1, q, 0, 0, true_, false, React::Never),
            ),
            (
                "0 honest seven",
                (1, 8),
                foes((1, 8), mode, 7, 1, q, 0, 0, true_, false, React::Never),
            ),
            (
                "0 honest half",
                (1, 2),
                foes((1, 2), mode, 1, 1, q, 0, 0, true_, false, React::Never),
            ),
        ];
        for (name, share, foes) in all {
            let program = if name.contains("CUPY") { CUPY } else { q };
            let victim = Victim {
                share,
                mode,
                program,
                groups: 1,
            };
            let got = play(&victim, &foes, 30 * SECOND, true);
            println!(
                "N {name:32} {mode:?} v {share:?}: least {:.3} mean {:.3}; foes {:.3} beyond {:.1} ms; gap {:.0} held {:.1} idle {:.3}",
                got.least, got.mean, got.foes, got.beyond, got.gap, got.held_too_long, got.idle
            );
        }
    }
}

#[test]
#[ignore = "a search"]
fn hostile_strategies() {
    let count = count();
    for mode in [HARD, Mode::Soft] {
        let all: Vec<(&str, Box<dyn Fn(&mut Dice, &mut Foe)>)> = vec![
            ("0 honest", Box::new(|_, _| {})),
            (
                "1 groups",
                Box::new(|d, f| f.groups = d.of(&[2, 4, 8, 16, 30])),
            ),
            ("2 duty", Box::new(|d, f| duty(d, f))),
            (
                "3 duty groups",
                Box::new(|d, f| {
                    duty(d, f);
                    f.groups = d.of(&[2, 4, 8, 16, 30]);
                }),
            ),
            (
                "4 yields",
                Box::new(|d, f| {
                    f.program = tiny(d);
                    f.groups = d.of(&[1, 1, 2, 8, 30]);
                }),
            ),
            (
                "5 leaves",
                Box::new(|d, f| {
                    duty(d, f);
                    f.leaves = true;
                    f.groups = d.of(&[1, 2, 8]);
                }),
            ),
            (
                "6 react",
                Box::new(|d, f| {
                    f.groups = d.of(&[1, 2, 8, 30]);
                    f.react = match d.next() % 4 {
                        0 => React::RestsWhenHeld,
                        1 => React::WhenVictimCapped,
                        2 => React::RestsAhead(d.log(MS, 100 * MS)),
                        _ => React::RestsAfterHold(d.log(MS, 100 * MS)),
                    };
                }),
            ),
            (
                "7 silent",
                Box::new(|d, f| {
                    f.lie = SILENT;
                    f.groups = d.of(&[1, 2, 8, 30]);
                }),
            ),
            (
                "8 silent duty",
                Box::new(|d, f| {
                    f.lie = SILENT;
                    duty(d, f);
                    f.groups = d.of(&[1, 2, 8, 30]);
                }),
            ),
            (
                "9 claims",
                Box::new(|d, f| {
                    f.lie = CLAIMS;
                    f.groups = d.of(&[1, 1, 2, 8]);
                    f.program = if d.of(&[true, false]) {
                        Program::Ticks {
                            work: d.log(5_000, 5 * MS),
                            period: d.log(MS, 99 * MS),
                        }
                    } else {
                        tiny(d)
                    };
                }),
            ),
            (
                "a ahead",
                Box::new(|d, f| {
                    let work = d.log(20_000, 2 * MS);
                    f.program = Program::Ahead {
                        work,
                        time: work * d.of(&[50, 90, 110, 200]) / 100,
                        most: d.log(MS, 100 * MS),
                    };
                    f.groups = d.of(&[1, 2, 8]);
                }),
            ),
            (
                "b rotates",
                Box::new(|d, f| {
                    f.groups = d.of(&[2, 3, 8]);
                    f.rotates = d.log(MS, 100 * MS) / STEP * STEP;
                    f.lie = d.of(&[(None, None), SILENT, (None, Some(0)), (Some(false), None)]);
                }),
            ),
            (
                "c wishes without work",
                Box::new(|d, f| {
                    duty(d, f);
                    f.lie = (Some(true), d.of(&[None, Some(0), Some(30), Some(50)]));
                    f.groups = d.of(&[1, 2, 8]);
                }),
            ),
            (
                "d anything",
                Box::new(|d, f| {
                    if d.of(&[true, false]) {
                        duty(d, f);
                    }
                    f.groups = d.of(&[1, 2, 8, 30]);
                    f.lie = d.of(&[
                        (None, None),
                        (None, None),
                        SILENT,
                        CLAIMS,
                        (Some(true), Some(0)),
                        (Some(false), None),
                        (None, Some(0)),
                        (Some(true), Some(40)),
                    ]);
                    f.program = match d.next() % 4 {
                        0 => tiny(d),
                        1 => Program::Ticks {
                            work: d.log(5_000, 5 * MS),
                            period: d.log(MS, 99 * MS),
                        },
                        _ => Program::Queue,
                    };
                    f.leaves = d.of(&[true, false, false, false]);
                    f.rotates = d.of(&[0, 0, 0, 2, 8, 20]) * MS;
                    f.react = match d.next() % 8 {
                        0 => React::RestsWhenHeld,
                        1 => React::WhenVictimCapped,
                        2 => React::RestsAhead(d.log(MS, 100 * MS)),
                        3 => React::RestsAfterHold(d.log(MS, 100 * MS)),
                        _ => React::Never,
                    };
                }),
            ),
        ];
        for (name, change) in all {
            if wanted(name) {
                search(name, count, mode, Program::Queue, change);
            }
        }
    }
}
