//! The steps, in their order.

use serde::Serialize;
use softmig_node::proofs::Failed;
use std::time::Duration;

use crate::trouble::Trouble;
use crate::verdict::{self, Phase, SLICES, Verdict};

/// The findings about a GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The first step that had no effect; `None` where all had.
    pub failed: Option<Failed>,
    /// The figures until then.
    pub figures: Figures,
}

/// The figures of each step; `null` for a step that was not reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Nothing was set.
    pub log: Option<Phase>,
    /// With time slices of 8000 and 2000 us.
    pub slices: Option<Phase>,
    /// With the first one's channels disabled.
    pub hold: Option<Phase>,
    /// With all enabled again.
    pub go_on: Option<Phase>,
}

/// Two programs on a GPU.
pub(crate) trait Bench {
    /// Measures both for this time.
    fn measure(&mut self, time: Duration) -> Result<Phase, Trouble>;
    /// Sets each one's time slice, in microseconds.
    fn set_slices(&mut self, slices: [u64; 2]) -> Result<(), Trouble>;
    /// Lets the first one's channels run or not.
    fn enable(&mut self, is_on: bool) -> Result<(), Trouble>;
}

/// How long a look takes, and one at what changes slowly.
const LOOK: Duration = Duration::from_millis(300);
const LONG_LOOK: Duration = Duration::from_millis(600);

/// Does all steps until one has no effect. The channels are enabled at the end, whatever was seen.
pub(crate) fn run(bench: &mut impl Bench) -> Result<Outcome, Trouble> {
    let mut figures = Figures::default();
    let failed = all(bench, &mut figures);
    Ok(Outcome {
        failed: failed?,
        figures,
    })
}

/// The parts that had no effect.
pub(crate) fn failed(step: &str, why: String) -> Failed {
    Failed {
        step: step.into(),
        why,
    }
}

fn all(bench: &mut impl Bench, figures: &mut Figures) -> Result<Option<Failed>, Trouble> {
    let log = *figures.log.insert(bench.measure(LOOK)?);
    if let Some(why) = verdict::log(&log)? {
        return Ok(Some(failed("log", why)));
    }
    if let Some(why) = answered(bench.set_slices(SLICES))? {
        return Ok(Some(failed("slices", why)));
    }
    let sliced = *figures.slices.insert(bench.measure(LONG_LOOK)?);
    if let Some(why) = verdict::slices(&sliced)? {
        return Ok(Some(failed("slices", why)));
    }
    let held = hold(bench, figures, &sliced);
    let enabled = answered(bench.enable(true));
    if let Some(why) = held? {
        return Ok(Some(failed("hold", why)));
    }
    if let Some(why) = enabled? {
        return Ok(Some(failed("go_on", why)));
    }
    let after = *figures.go_on.insert(bench.measure(LONG_LOOK)?);
    Ok(verdict::go_on(&after, &sliced)?.map(|why| failed("go_on", why)))
}

fn hold(bench: &mut impl Bench, figures: &mut Figures, before: &Phase) -> Verdict {
    if let Some(why) = answered(bench.enable(false))? {
        return Ok(Some(why));
    }
    let held = *figures.hold.insert(bench.measure(LOOK)?);
    verdict::hold(&held, before)
}

/// A refusal is an answer.
fn answered(done: Result<(), Trouble>) -> Verdict {
    match done {
        Ok(()) => Ok(None),
        Err(Trouble::Refused(why)) => Ok(Some(why)),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A GPU that does as it is told, but for what is said here.
    #[derive(Default)]
    struct Gpu {
        slices: [u64; 2],
        is_off: bool,
        was_off: bool,
        /// The call that has no effect.
        deaf_to: &'static str,
        /// The call that is refused.
        refuses: &'static str,
        /// Another process comes while channels are disabled.
        guest: bool,
    }

    impl Gpu {
        fn refused(&self, what: &str) -> Result<(), Trouble> {
            match self.refuses == what {
                true => Err(Trouble::Refused(format!("{what} refused"))),
                false => Ok(()),
            }
        }
    }

    impl Bench for Gpu {
        fn measure(&mut self, time: Duration) -> Result<Phase, Trouble> {
            let first = match self.slices {
                _ if self.is_off && self.deaf_to != "hold" => 0.0,
                _ if self.was_off && !self.is_off && self.deaf_to == "go_on" => 0.0,
                [0, 0] => 0.5,
                _ if self.deaf_to == "slices" => 0.5,
                [first, second] => first as f64 / (first + second) as f64,
            };
            let on_gpu = match self.deaf_to {
                "log" => [0.0, 0.0],
                _ => [first, 1.0 - first],
            };
            Ok(Phase {
                seconds: time.as_secs_f64(),
                on_gpu,
                others: if self.guest && self.is_off { 0.4 } else { 0.0 },
                is_hidden: false,
                pace: [first * 1000.0, (1.0 - first) * 1000.0],
            })
        }

        fn set_slices(&mut self, slices: [u64; 2]) -> Result<(), Trouble> {
            self.refused("slices")?;
            self.slices = slices;
            Ok(())
        }

        fn enable(&mut self, is_on: bool) -> Result<(), Trouble> {
            self.refused(if is_on { "go_on" } else { "hold" })?;
            self.is_off = !is_on;
            self.was_off |= self.is_off;
            Ok(())
        }
    }

    #[test]
    fn a_gpu_that_does_as_it_is_told_is_proved_by_all_steps() {
        let mut gpu = Gpu::default();
        let outcome = run(&mut gpu).unwrap();
        assert_eq!(outcome.failed, None);
        let figures = outcome.figures;
        assert!(figures.log.is_some() && figures.go_on.is_some());
        assert_eq!(figures.slices.unwrap().on_gpu[0], 0.8);
        assert_eq!(figures.hold.unwrap().on_gpu[0], 0.0);
        assert!(gpu.was_off && !gpu.is_off);
    }

    #[test]
    fn each_step_without_effect_is_found_and_channels_are_enabled_again() {
        for step in ["log", "slices", "hold", "go_on"] {
            let mut gpu = Gpu {
                deaf_to: step,
                ..Gpu::default()
            };
            let failed = run(&mut gpu).unwrap().failed.unwrap();
            assert_eq!(failed.step, step, "{}", failed.why);
            assert!(!gpu.is_off, "{step}");
        }
    }

    #[test]
    fn a_refusal_is_no_effect() {
        for step in ["slices", "hold", "go_on"] {
            let mut gpu = Gpu {
                refuses: step,
                ..Gpu::default()
            };
            let failed = run(&mut gpu).unwrap().failed.unwrap();
            assert_eq!(
                (failed.step.as_str(), failed.why),
                (step, format!("{step} refused"))
            );
        }
    }

    #[test]
    fn who_comes_in_between_spoils_it_and_channels_are_enabled_again() {
        let mut gpu = Gpu {
            guest: true,
            ..Gpu::default()
        };
        assert!(matches!(run(&mut gpu), Err(Trouble::NotMeasured(_))));
        assert!(gpu.was_off && !gpu.is_off);
    }
}
