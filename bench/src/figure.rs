//! One figure: the ways that were measured in turns, what follows from them, and whether that is good enough.

use serde::Serialize;

/// One thing that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    /// The subject of the measurement.
    pub(crate) what: String,
    /// The ways to do it, each with the median of all rounds.
    pub(crate) ways: Vec<Way>,
    /// The unit of the ways.
    pub(crate) unit: &'static str,
    /// The figure that follows from them.
    pub(crate) result: f64,
    /// The unit of the result.
    pub(crate) result_unit: &'static str,
    /// The value that the result should have; a figure without one only explains another.
    pub(crate) target: Option<Target>,
    /// Whether the result has it.
    pub(crate) met: Option<bool>,
}

/// One way to do it.
#[derive(Debug, Serialize)]
pub(crate) struct Way {
    /// Its name.
    pub(crate) name: String,
    /// The median of all rounds.
    pub(crate) median: f64,
}

/// The value that a result should have.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    /// Less than this.
    Under(f64),
    /// This, or more.
    AtLeast(f64),
}

impl Target {
    fn is_met_by(self, result: f64) -> bool {
        match self {
            Target::Under(limit) => result < limit,
            Target::AtLeast(limit) => result >= limit,
        }
    }
}

/// The subject of a measurement, and the result that it should have.
pub(crate) struct Question {
    /// The subject of the measurement.
    pub(crate) what: String,
    /// The unit of the ways.
    pub(crate) unit: &'static str,
    /// The unit of the result.
    pub(crate) result_unit: &'static str,
    /// The value that the result should have; a figure without one only explains another.
    pub(crate) target: Option<Target>,
}

impl Question {
    /// Answers it from the rounds of each way, by name.
    ///
    /// `result` is made of the values of one round at a time, which were taken within the same second or so, and the
    /// median of all rounds counts: how fast the machine happens to be cancels.
    pub(crate) fn answer(self, ways: &[(&str, &[f64])], result: impl Fn(&[f64]) -> f64) -> Figure {
        let rounds = ways.iter().map(|(_, rounds)| rounds.len()).min();
        let results: Vec<f64> = (0..rounds.unwrap_or(0))
            .map(|round| {
                let values: Vec<f64> = ways.iter().map(|(_, rounds)| rounds[round]).collect();
                result(&values)
            })
            .collect();
        let result = median(&results);
        Figure {
            what: self.what,
            ways: ways
                .iter()
                .map(|(name, rounds)| Way {
                    name: (*name).to_owned(),
                    median: median(rounds),
                })
                .collect(),
            unit: self.unit,
            result,
            result_unit: self.result_unit,
            met: self.target.map(|target| target.is_met_by(result)),
            target: self.target,
        }
    }
}

/// The middle value; of none, not a number.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_ratio_is_made_within_a_round() {
        let question = Question {
            what: "x".into(),
            unit: "/s",
            result_unit: "%",
            target: Some(Target::AtLeast(95.0)),
        };
        // The machine became three times as slow; the ratio did not change.
        let figure = question.answer(
            &[("a", &[300.0, 300.0, 100.0]), ("b", &[150.0, 150.0, 50.0])],
            |values| 100.0 * values[1] / values[0],
        );
        assert_eq!((figure.result, figure.met), (50.0, Some(false)));
        assert_eq!(figure.ways[1].median, 150.0);
    }
}
