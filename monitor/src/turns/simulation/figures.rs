//! What the defaults come to: prints a table. `cargo test -p softmig-monitor figures -- --nocapture`

use super::*;

/// How even shares are: 1 if everybody got the same part of his own.
pub(super) fn jain(got: &[f64]) -> f64 {
    let sum: f64 = got.iter().sum();
    let squares: f64 = got.iter().map(|it| it * it).sum();
    sum * sum / (got.len() as f64 * squares)
}

#[test]
fn figures_of_the_defaults() {
    for (epoch, mean) in [(20, 3), (20, 4), (20, 5), (25, 5), (40, 5), (50, 6)] {
        let rules = Rules {
            epoch: epoch * MS,
            mean_turn: mean * MS,
            ..Rules::default()
        };
        for tenants in [2, 4, 8] {
            for kernel in [20 * US, 100 * US, MS, 20 * MS] {
                let programs: Vec<Program> = (0..tenants)
                    .map(|job| Program::hard(job, (1, tenants), kernel))
                    .collect();
                let mut world = World::new(rules, &programs, 1);
                let got = world.shares_over(SECOND, 5 * SECOND);
                let sum: f64 = got.iter().sum();
                let turns: u64 = world.turns.standings().map(|it| it.turns).sum();
                println!(
                    "epoch {epoch} mean {mean}: {tenants} x {kernel:>8} ns: sum {:.2} % jain {:.4} turns/s {:.0}",
                    100.0 * sum,
                    jain(&got),
                    turns as f64 / 5.0,
                );
            }
        }
    }
}
