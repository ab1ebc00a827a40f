//! The effect of the defaults: prints a table. `cargo test -p softmig-monitor figures -- --nocapture`

use super::*;

/// The evenness of shares: 1 if each job got the same part of its own.
pub(super) fn jain(got: &[f64]) -> f64 {
    let sum: f64 = got.iter().sum();
    let squares: f64 = got.iter().map(|it| it * it).sum();
    sum * sum / (got.len() as f64 * squares)
}

/// The figures also tell how even the work is from one window of this length to the next.
const WINDOW: Nanos = 100 * MS;

#[test]
fn figures_of_the_defaults() {
    for (epoch, mean) in [(20, 4), (25, 5), (40, 5), (50, 6)] {
        let rules = Rules {
            epoch: epoch * MS,
            mean_turn: mean * MS,
            ..Rules::default()
        };
        for parts in [&[1, 9][..], &[3, 7], &[1; 4], &[1; 8]] {
            for kernel in [20 * US, 100 * US, MS, 20 * MS] {
                let all: u32 = parts.iter().sum();
                let programs: Vec<Program> = (0..)
                    .zip(parts)
                    .map(|(job, &part)| Program::hard(job, (part, all), kernel))
                    .collect();
                let mut world = World::new(rules, &programs, 1);
                let windows: Vec<Vec<f64>> = (10..50)
                    .map(|at| world.shares_over(at * WINDOW, (at + 1) * WINDOW))
                    .collect();
                let count = windows.len() as f64;
                let of = |job: usize| windows.iter().map(move |window| window[job]);
                let got: Vec<f64> = (0..parts.len())
                    .map(|job| of(job).sum::<f64>() / count)
                    .collect();
                let relative: Vec<f64> = (got.iter().zip(parts))
                    .map(|(got, &part)| got * f64::from(all) / f64::from(part))
                    .collect();
                let deviation = |job: usize| {
                    let squares: f64 = of(job).map(|it| (it - got[job]).powi(2)).sum();
                    (squares / count).sqrt() / got[job]
                };
                let most = (0..got.len()).map(deviation).fold(0.0, f64::max);
                let sum: f64 = got.iter().sum();
                let turns: u64 = world.turns.standings().map(|it| it.turns).sum();
                println!(
                    "epoch {epoch} mean {mean}: {parts:?} x {kernel:>8} ns: sum {:.2} % jain {:.4} first {:.2} turns/s {:.0} deviation {most:.3}",
                    100.0 * sum,
                    jain(&relative),
                    100.0 * got[0],
                    turns as f64 / 5.0,
                );
            }
        }
    }
}
