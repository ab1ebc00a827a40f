//! The meaning of a step's figures.

use serde::{Deserialize, Serialize};

use crate::trouble::Trouble;

/// The figures of both programs for some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// For how long.
    pub seconds: f64,
    /// The part of that time in which each was on the GPU, by the log.
    pub on_gpu: [f64; 2],
    /// The part in which others were.
    pub others: f64,
    /// How often one came to the GPU in a second.
    pub changes: f64,
    /// Whether the log has processes without their numbers.
    pub is_hidden: bool,
    /// Rounds of its loop that each did in a second, by its own count.
    pub pace: [f64; 2],
}

/// The time slices that are set, in microseconds.
pub(crate) const SLICES: [u64; 2] = [8000, 2000];

/// How far a share may be from what the time slices say.
const TOLERANCE: f64 = 0.1;

/// A part of the time that is nothing, and one that is something.
const NOTHING: f64 = 0.02;

/// The part that has no effect, or that no verdict is possible.
pub(crate) type Verdict = Result<Option<String>, Trouble>;

/// Nothing can be said of programs that are not alone on the GPU.
fn alone(phase: &Phase) -> Result<(), Trouble> {
    if phase.others > NOTHING {
        let part = percent(phase.others);
        return Err(Trouble::NotMeasured(format!(
            "other processes had the GPU for {part} of the time"
        )));
    }
    Ok(())
}

/// Whether the log has both.
pub(crate) fn log(phase: &Phase) -> Verdict {
    if phase.is_hidden {
        return Err(Trouble::NotMeasured(
            "the log hides whose processes are there: this needs CAP_SYS_ADMIN".into(),
        ));
    }
    alone(phase)?;
    let missing = phase.on_gpu.iter().filter(|part| **part <= NOTHING).count();
    let why =
        || format!("the log of context switches lacks {missing} of the 2 programs that were busy");
    Ok((missing > 0).then(why))
}

/// Whether the time slices divide time and work.
pub(crate) fn slices(phase: &Phase) -> Verdict {
    alone(phase)?;
    let wanted = SLICES[0] as f64 / (SLICES[0] + SLICES[1]) as f64;
    let is_off = |both| (share(both) - wanted).abs() > TOLERANCE;
    let why = || {
        let (time, work) = (share(phase.on_gpu), share(phase.pace));
        format!(
            "with time slices of {} and {} us the first of two programs had {} of the time and did {} of the work, not {}",
            SLICES[0],
            SLICES[1],
            percent(time),
            percent(work),
            percent(wanted)
        )
    };
    Ok((is_off(phase.on_gpu) || is_off(phase.pace)).then(why))
}

/// Whether the first one is off the GPU, and the other goes on; `before` is the step with time slices.
pub(crate) fn hold(phase: &Phase, before: &Phase) -> Verdict {
    alone(phase)?;
    let [time, _] = phase.on_gpu;
    if time > NOTHING || phase.pace[0] > 0.0 {
        let work = percent(phase.pace[0] / before.pace[0]);
        let time = percent(time);
        return Ok(Some(format!(
            "a program whose channels were disabled was on the GPU for {time} of the time, at {work} of its pace"
        )));
    }
    let why = || {
        let work = percent(phase.pace[1] / before.pace[1]);
        format!(
            "while one program's channels were disabled, the other had {work} of its pace before"
        )
    };
    // It had a fifth of the GPU, and has all of it now.
    Ok((phase.pace[1] <= before.pace[1]).then(why))
}

/// Whether the first one is back.
pub(crate) fn go_on(phase: &Phase, before: &Phase) -> Verdict {
    alone(phase)?;
    let pace = phase.pace[0] / before.pace[0];
    let why = || {
        let pace = percent(pace);
        format!("a program had {pace} of its pace after its channels were enabled again")
    };
    Ok((pace < 0.5).then(why))
}

/// What a change from one program to another costs, in microseconds of work: what both did less, with time slices, than one does
/// alone.
pub(crate) fn change_us(sliced: &Phase, alone: &Phase) -> Option<u64> {
    let done = sliced.pace.iter().sum::<f64>() / alone.pace[1];
    let cost = (1.0 - done).max(0.0) * 1e6 / sliced.changes;
    cost.is_finite().then_some(cost.round() as u64)
}

/// The first one's part.
fn share([first, second]: [f64; 2]) -> f64 {
    match first + second {
        0.0 => 0.0,
        sum => first / sum,
    }
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(on_gpu: [f64; 2], pace: [f64; 2]) -> Phase {
        Phase {
            seconds: 0.5,
            on_gpu,
            pace,
            ..Phase::default()
        }
    }

    fn why(verdict: Verdict) -> String {
        verdict.unwrap().unwrap()
    }

    /// As measured on an H200.
    const SLICED: Phase = Phase {
        seconds: 0.6,
        on_gpu: [0.782, 0.203],
        others: 0.0,
        changes: 200.0,
        is_hidden: false,
        pace: [769.0, 189.0],
    };

    #[test]
    fn a_gpu_that_does_as_it_is_told_is_clean() {
        assert_eq!(log(&phase([0.48, 0.48], [450.0, 450.0])), Ok(None));
        assert_eq!(slices(&SLICED), Ok(None));
        assert_eq!(hold(&phase([0.0, 1.0], [0.0, 1000.0]), &SLICED), Ok(None));
        assert_eq!(go_on(&SLICED, &SLICED), Ok(None));
    }

    #[test]
    fn a_log_without_one_of_them_is_of_no_use() {
        for on_gpu in [[0.0, 0.97], [0.97, 0.0], [0.0, 0.0]] {
            let missing = on_gpu.iter().filter(|part| **part == 0.0).count();
            let wanted = format!("lacks {missing} of the 2 programs");
            assert!(why(log(&phase(on_gpu, [450.0, 450.0]))).contains(&wanted));
        }
    }

    #[test]
    fn slices_have_to_divide_the_time_and_the_work() {
        for (on_gpu, pace) in [
            ([0.48, 0.48], [450.0, 450.0]),
            // The log says one thing and the work another.
            ([0.78, 0.20], [450.0, 450.0]),
            ([0.48, 0.48], [769.0, 189.0]),
            ([0.95, 0.03], [950.0, 30.0]),
            ([0.0, 0.0], [0.0, 0.0]),
        ] {
            let why = why(slices(&phase(on_gpu, pace)));
            assert!(
                why.starts_with("with time slices of 8000 and 2000 us"),
                "{why}"
            );
            assert!(why.ends_with("not 80 %"), "{why}");
        }
        assert_eq!(slices(&phase([0.70, 0.28], [690.0, 280.0])), Ok(None));
        assert_eq!(slices(&phase([0.88, 0.11], [880.0, 120.0])), Ok(None));
    }

    #[test]
    fn who_is_held_has_to_be_off_the_gpu_and_the_other_has_to_go_on() {
        for (on_gpu, pace) in [([0.3, 0.7], [0.0, 900.0]), ([0.0, 1.0], [1.0, 900.0])] {
            let why = why(hold(&phase(on_gpu, pace), &SLICED));
            assert!(
                why.starts_with("a program whose channels were disabled"),
                "{why}"
            );
        }
        let why = why(hold(&phase([0.0, 1.0], [0.0, 0.0]), &SLICED));
        assert!(
            why.ends_with("the other had 0 % of its pace before"),
            "{why}"
        );
    }

    #[test]
    fn a_change_costs_the_work_that_is_missing() {
        let alone = phase([0.0, 1.0], [0.0, 1000.0]);
        assert_eq!(change_us(&SLICED, &alone), Some(210));
        assert_eq!(change_us(&alone, &alone), None);
    }

    #[test]
    fn who_is_let_go_has_to_go_on() {
        let stuck = phase([0.0, 1.0], [0.0, 1000.0]);
        assert!(why(go_on(&stuck, &SLICED)).contains("had 0 % of its pace"));
    }

    #[test]
    fn beside_others_or_without_rights_nothing_is_known() {
        let beside = Phase {
            others: 0.3,
            ..SLICED
        };
        for verdict in [
            log(&beside),
            log(&Phase {
                on_gpu: [0.0, 0.5],
                ..beside
            }),
            slices(&beside),
            hold(&beside, &SLICED),
            go_on(&beside, &SLICED),
            log(&Phase {
                is_hidden: true,
                ..phase([0.0, 0.0], [450.0, 450.0])
            }),
        ] {
            assert!(
                matches!(verdict, Err(Trouble::NotMeasured(_))),
                "{verdict:?}"
            );
        }
    }
}
