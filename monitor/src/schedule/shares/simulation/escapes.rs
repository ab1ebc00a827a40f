//! Programs that got past the library: they cannot be held, and have the driver's own time slices.

use super::*;

/// The GPU time of a job with a quarter and of one with three quarters beside it, while `escapes` programs of the
/// quarter have no seat.
fn shares(escapes: usize) -> [f64; 2] {
    let jobs = [
        (1, 4, Mode::SOFT, Program::Queue),
        (3, 4, Mode::SOFT, Program::Queue),
    ];
    let (sims, _) = simulate_with(&jobs, &vec![(0, Program::Queue); escapes]);
    let done: Vec<f64> = sims.iter().map(|it| it.done as f64 / 4e9).collect();
    [done[0] + done[2..].iter().sum::<f64>(), done[1]]
}

#[test]
fn time_of_processes_without_a_seat_is_charged_to_their_job() {
    assert_near(&shares(0), &[0.245, 0.735], 0.02);
    // The quarter's other processes make way. Each change costs 0.14 ms, and short slices make more changes. While the
    // job is held, its processes without a seat are on the GPU. `simulate` checks that it still does not count as a job
    // that cannot be held.
    for escapes in [1, 3] {
        let got = shares(escapes);
        assert!(got[0] < 0.27, "{escapes}: {got:.3?}");
        assert!(got[1] > 0.68, "{escapes}: {got:.3?}");
    }
}
