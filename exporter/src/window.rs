//! The last stretch of time, for figures that are not counters: the monitor's answers of the last scrapes.

use softmig_usage::{Job, JobGpu, Node};
use std::collections::VecDeque;

/// The shortest stretch, in seconds: a second reader does not shorten it further.
const SHORTEST: f64 = 10.0;
/// Answers that follow sooner are not kept. In seconds.
const APART: f64 = 1.0;

/// The monitor's answers, the oldest first: one from before the stretch, and those since.
#[derive(Debug, Default)]
pub struct Window(VecDeque<Node>);

/// The use of a slice in a stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// The GPU time that it was charged.
    pub charged: f64,
    /// How long the stretch was.
    pub wall: f64,
}

impl Used {
    /// The charged part of the time that the share allows, in percent; at most 100, also for a soft slice that had more.
    pub fn percent_of(self, share: f64) -> f64 {
        let allowed = share * self.wall;
        if allowed > 0.0 {
            (100.0 * self.charged / allowed).clamp(0.0, 100.0)
        } else {
            0.0
        }
    }
}

impl Window {
    /// Keeps an answer for later ones.
    pub fn keep(&mut self, now: Node) {
        match self.0.back() {
            Some(last) if now.time < last.time => self.0.clear(),
            Some(last) if now.time < last.time + APART => return,
            _ => {}
        }
        while self
            .0
            .get(1)
            .is_some_and(|second| second.time <= now.time - SHORTEST)
        {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    /// The use of a GPU by a slice since the latest answer that is old enough; since the monitor counts where there is
    /// none, or where the job or the monitor began later.
    pub fn used(&self, now: &Node, job: &Job, gpu: &JobGpu) -> Used {
        let is_before = |then: &&Node| then.time <= now.time - SHORTEST;
        let whole = Used {
            charged: gpu.charged_seconds,
            wall: gpu.known_seconds,
        };
        let Some(then) = self.0.iter().rfind(is_before) else {
            return whole;
        };
        let its = |(other, _, on): &(&Job, _, &JobGpu)| other.job == job.job && on.uuid == gpu.uuid;
        let Some((_, _, then)) = then.slices().find(its) else {
            return whole;
        };
        let used = Used {
            charged: gpu.charged_seconds - then.charged_seconds,
            wall: gpu.known_seconds - then.known_seconds,
        };
        if used.wall > 0.0 && used.charged >= 0.0 {
            used
        } else {
            whole
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_usage::Slice;

    /// A quarter of a GPU that was charged `charged_seconds`, when the monitor had counted for `known_seconds`.
    fn node(time: f64, charged_seconds: f64, known_seconds: f64) -> Node {
        let gpu = JobGpu {
            uuid: "GPU-1".into(),
            charged_seconds,
            known_seconds,
            ..JobGpu::default()
        };
        let job = Job {
            job: 7,
            slice: Some(Slice::default()),
            gpus: vec![gpu],
            ..Job::default()
        };
        Node {
            time,
            jobs: vec![job],
            ..Node::default()
        }
    }

    fn used(window: &Window, now: &Node) -> (f64, f64) {
        let (job, _, gpu) = now.slices().next().expect("a slice");
        let used = window.used(now, job, gpu);
        (used.charged, used.wall)
    }

    #[test]
    fn a_window_begins_with_the_latest_answer_ten_seconds_old() {
        let mut window = Window::default();
        let first = node(100.0, 5.0, 50.0);
        assert_eq!(used(&window, &first), (5.0, 50.0));
        window.keep(first);
        window.keep(node(115.0, 8.0, 65.0));
        // A second reader, a little later.
        window.keep(node(117.0, 8.5, 67.0));
        let now = node(118.0, 8.75, 68.0);
        assert_eq!(used(&window, &now), (3.75, 18.0));
        let now = node(130.0, 12.0, 80.0);
        assert_eq!(used(&window, &now), (3.5, 13.0));
        window.keep(now);
        assert_eq!(window.0.len(), 2);
    }

    #[test]
    fn a_monitor_that_was_started_again_counts_anew() {
        let mut window = Window::default();
        window.keep(node(100.0, 50.0, 500.0));
        assert_eq!(used(&window, &node(115.0, 1.0, 4.0)), (1.0, 4.0));
        // A clock that was set back.
        window.keep(node(50.0, 51.0, 510.0));
        assert_eq!(used(&window, &node(60.0, 52.0, 520.0)), (1.0, 10.0));
    }

    #[test]
    fn many_readers_make_it_keep_no_more() {
        let mut window = Window::default();
        for tenth in 0..10_000 {
            window.keep(node(f64::from(tenth) / 10.0, 0.0, 0.0));
        }
        assert!(window.0.len() <= 12, "{}", window.0.len());
    }

    #[test]
    fn a_percentage_is_one_of_the_share() {
        let used = Used {
            charged: 3.0,
            wall: 20.0,
        };
        assert_eq!(used.percent_of(0.25), 60.0);
        assert_eq!(used.percent_of(0.1), 100.0);
        assert_eq!(used.percent_of(0.0), 0.0);
    }
}
