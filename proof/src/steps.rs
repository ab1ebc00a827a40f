//! The steps, in their order.

use serde::{Deserialize, Serialize};
use softmig_node::proofs::Failed;
use std::time::Duration;

use crate::trouble::Trouble;
use crate::verdict::{self, Phase, SLICES, Verdict};

/// The findings about a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The first step that had no effect; `None` where all had.
    pub failed: Option<Failed>,
    /// The time slice that a CUDA context has by itself, in microseconds.
    pub slice_us: Option<u64>,
    /// What a change from one group to another costs, in microseconds of work.
    pub change_us: Option<u64>,
    /// Whether channels that run can be let run once more, and are held by the next call that holds them.
    pub may_release: bool,
    /// The figures until then.
    pub figures: Figures,
}

/// The figures of each step; `null` for a step that was not reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Whether one of the programs was another user's.
    pub has_other_user: bool,
    /// Nothing was set.
    pub log: Option<Phase>,
    /// With time slices of 8000 and 2000 us.
    pub slices: Option<Phase>,
    /// With the first one's channels disabled.
    pub hold: Option<Phase>,
    /// With all enabled again.
    pub go_on: Option<Phase>,
    /// With the first one's channels disabled after they were enabled once more.
    pub hold_again: Option<Phase>,
    /// With the first one's channels disabled within a kernel of 100 ms, and with all enabled again.
    pub long: Option<[Phase; 2]>,
}

/// Two programs on a GPU.
pub(crate) trait Bench {
    /// Measures both for this time.
    fn measure(&mut self, time: Duration) -> Result<Phase, Trouble>;
    /// What is wrong with the driver's answer to one that asks for the other's channel group.
    fn ask_for_others(&mut self) -> Verdict;
    /// The time slice that the first one has, in microseconds.
    fn slice(&mut self) -> Result<u64, Trouble>;
    /// Sets each one's time slice, in microseconds.
    fn set_slices(&mut self, slices: [u64; 2]) -> Result<(), Trouble>;
    /// Lets the first one's channels run or not.
    fn enable(&mut self, is_on: bool) -> Result<(), Trouble>;
    /// The first one's kernels take so many nanoseconds from now on.
    fn set_kernel(&mut self, nanos: u64) -> Result<(), Trouble>;
    /// Whether the second one is another user's.
    fn has_other_user(&self) -> bool;
}

/// How long a look takes, and one at what changes slowly.
const LOOK: Duration = Duration::from_millis(300);
const LONG_LOOK: Duration = Duration::from_millis(600);

/// A kernel that is far longer than any time slice.
const LONG_KERNEL: u64 = 100_000_000;

/// Does all steps until one has no effect. The channels are enabled at the end, whatever was seen.
pub(crate) fn run(bench: &mut impl Bench) -> Result<Outcome, Trouble> {
    let mut outcome = Outcome::default();
    outcome.figures.has_other_user = bench.has_other_user();
    outcome.failed = all(bench, &mut outcome)?;
    let figures = &outcome.figures;
    let change = figures.slices.as_ref().zip(figures.hold.as_ref());
    outcome.change_us = change.and_then(|(sliced, held)| verdict::change_us(sliced, held));
    Ok(outcome)
}

/// The parts that had no effect.
pub(crate) fn failed(step: &str, why: String) -> Failed {
    Failed {
        step: step.into(),
        why,
    }
}

fn all(bench: &mut impl Bench, outcome: &mut Outcome) -> Result<Option<Failed>, Trouble> {
    let figures = &mut outcome.figures;
    let log = *figures.log.insert(bench.measure(LOOK)?);
    if let Some(why) = verdict::log(&log)? {
        return Ok(Some(failed("log", why)));
    }
    if let Some(why) = bench.ask_for_others()? {
        return Ok(Some(failed("owner", why)));
    }
    match bench.slice() {
        Ok(slice) => outcome.slice_us = Some(slice),
        Err(Trouble::Refused(why)) => return Ok(Some(failed("slices", why))),
        Err(other) => return Err(other),
    }
    if let Some(why) = answered(bench.set_slices(SLICES))? {
        return Ok(Some(failed("slices", why)));
    }
    let sliced = *figures.slices.insert(bench.measure(LONG_LOOK)?);
    if let Some(why) = verdict::slices(&sliced)? {
        return Ok(Some(failed("slices", why)));
    }
    let held = hold(bench, &mut figures.hold, &sliced);
    let enabled = answered(bench.enable(true));
    if let Some(why) = held? {
        return Ok(Some(failed("hold", why)));
    }
    if let Some(why) = enabled? {
        return Ok(Some(failed("go_on", why)));
    }
    let after = *figures.go_on.insert(bench.measure(LONG_LOOK)?);
    if let Some(why) = verdict::go_on(&after, &sliced)? {
        return Ok(Some(failed("go_on", why)));
    }
    outcome.may_release = may_release(bench, &mut figures.hold_again, &sliced)?;
    bench.set_kernel(LONG_KERNEL)?;
    // Until one of them is on the GPU.
    bench.measure(LOOK)?;
    let mut there = None;
    let held = hold(bench, &mut there, &sliced);
    let enabled = answered(bench.enable(true));
    if let Some(why) = held?.or(enabled?) {
        return Ok(Some(failed("long", why)));
    }
    let after = bench.measure(LONG_LOOK)?;
    figures.long = there.map(|there| [there, after]);
    Ok(verdict::go_on(&after, &sliced)?.map(|why| failed("long", why)))
}

fn hold(bench: &mut impl Bench, figures: &mut Option<Phase>, before: &Phase) -> Verdict {
    if let Some(why) = answered(bench.enable(false))? {
        return Ok(Some(why));
    }
    let held = *figures.insert(bench.measure(LOOK)?);
    verdict::hold(&held, before)
}

/// Whether channels that run can be let run once more, and are held by the next call that holds them.
fn may_release(
    bench: &mut impl Bench,
    figures: &mut Option<Phase>,
    before: &Phase,
) -> Result<bool, Trouble> {
    // A driver that refuses that changes nothing by it.
    let more = answered(bench.enable(true));
    let held = hold(bench, figures, before);
    // If it ran on, that call undid the one before.
    let runs = figures.is_some_and(|phase| phase.pace[0] > 0.0);
    let enabled = if runs {
        Ok(None)
    } else {
        answered(bench.enable(true))
    };
    more?;
    enabled?;
    Ok(held?.is_none())
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
        /// How often the first one's channels are to wait.
        off: i32,
        /// Whether that can be less than never.
        counts_below: bool,
        was_off: bool,
        /// The call that has no effect.
        deaf_to: &'static str,
        /// The call that is refused.
        refuses: &'static str,
        /// Another process comes when channels are disabled for this time.
        guest: Option<u32>,
        holds: u32,
        kernel: u64,
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
            let is_off = self.off > 0;
            let first = match self.slices {
                _ if is_off && self.deaf_to == "long" && self.kernel > 0 => 0.4,
                _ if is_off && self.deaf_to != "hold" => 0.0,
                _ if self.was_off && !is_off && self.deaf_to == "go_on" => 0.0,
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
                others: match self.guest {
                    Some(hold) if is_off && hold == self.holds => 0.4,
                    _ => 0.0,
                },
                changes: 200.0,
                is_hidden: false,
                pace: [first * 1000.0, (1.0 - first) * 1000.0],
            })
        }

        fn ask_for_others(&mut self) -> Verdict {
            Ok((self.deaf_to == "owner").then(|| "it was told".into()))
        }

        fn slice(&mut self) -> Result<u64, Trouble> {
            Ok(2048)
        }

        fn set_kernel(&mut self, nanos: u64) -> Result<(), Trouble> {
            self.kernel = nanos;
            Ok(())
        }

        fn has_other_user(&self) -> bool {
            true
        }

        fn set_slices(&mut self, slices: [u64; 2]) -> Result<(), Trouble> {
            self.refused("slices")?;
            self.slices = slices;
            Ok(())
        }

        fn enable(&mut self, is_on: bool) -> Result<(), Trouble> {
            self.refused(if is_on { "go_on" } else { "hold" })?;
            self.off += if is_on { -1 } else { 1 };
            if !self.counts_below {
                self.off = self.off.max(0);
            }
            self.holds += u32::from(!is_on);
            self.was_off |= self.off > 0;
            Ok(())
        }
    }

    #[test]
    fn a_gpu_that_does_as_it_is_told_is_proved_by_all_steps() {
        let mut gpu = Gpu::default();
        let outcome = run(&mut gpu).unwrap();
        assert_eq!(outcome.failed, None);
        assert_eq!((outcome.slice_us, outcome.change_us), (Some(2048), Some(0)));
        let figures = outcome.figures;
        assert!(figures.has_other_user && figures.long.is_some());
        assert!(figures.log.is_some() && figures.go_on.is_some());
        assert_eq!(figures.slices.unwrap().on_gpu[0], 0.8);
        assert_eq!(figures.hold.unwrap().on_gpu[0], 0.0);
        assert!(gpu.was_off && gpu.off == 0);
        assert!(outcome.may_release && figures.hold_again.is_some());
    }

    #[test]
    fn a_driver_that_counts_below_nothing_is_noted_and_has_its_channels_as_they_were() {
        let mut gpu = Gpu {
            counts_below: true,
            ..Gpu::default()
        };
        let outcome = run(&mut gpu).unwrap();
        assert_eq!(outcome.failed, None);
        assert!(!outcome.may_release && gpu.off == 0);
    }

    #[test]
    fn each_step_without_effect_is_found_and_channels_are_enabled_again() {
        for step in ["log", "owner", "slices", "hold", "go_on", "long"] {
            let mut gpu = Gpu {
                deaf_to: step,
                ..Gpu::default()
            };
            let failed = run(&mut gpu).unwrap().failed.unwrap();
            assert_eq!(failed.step, step, "{}", failed.why);
            assert_eq!(gpu.off, 0, "{step}");
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
        for hold in 1..=3 {
            let mut gpu = Gpu {
                guest: Some(hold),
                ..Gpu::default()
            };
            assert!(matches!(run(&mut gpu), Err(Trouble::NotMeasured(_))));
            assert!(gpu.was_off && gpu.off == 0, "{hold}");
        }
    }
}
