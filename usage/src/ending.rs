//! The monitor's report to root about the processes that it ended, or would have ended.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Since the monitor started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    /// `[monitor] end` in policy.toml, as it holds now.
    pub end: String,
    /// For how long it has counted.
    pub counted_seconds: f64,
    /// Processes that were ended.
    pub ended: u64,
    /// Processes that would have been ended if the administrator had said so, by the rule's name.
    pub would_have_ended: Vec<ByRule>,
}

/// A number of processes that a rule is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByRule {
    /// The rule's name.
    pub rule: String,
    /// The number of ended processes.
    pub processes: u64,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { end, ended, .. } = self;
        let time = Duration::from_secs(self.counted_seconds.max(0.0) as u64);
        write!(
            f,
            "end = \"{end}\"; in {} it ended {ended} processes",
            humane(time)
        )?;
        let would: u64 = self.would_have_ended.iter().map(|it| it.processes).sum();
        write!(f, ", and would have ended {would}")?;
        for (at, ByRule { rule, processes }) in self.would_have_ended.iter().enumerate() {
            let before = if at == 0 { ": " } else { ", " };
            write!(f, "{before}{rule} {processes}")?;
        }
        Ok(())
    }
}

/// In the largest unit that is not more.
fn humane(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_it_in_a_line() {
        let by_rule = |rule: &str, processes| ByRule {
            rule: rule.into(),
            processes,
        };
        let mut ending = Ending {
            end: "no".into(),
            counted_seconds: 7300.5,
            ended: 0,
            would_have_ended: vec![by_rule("memory", 3), by_rule("seat", 1)],
        };
        let line =
            "end = \"no\"; in 2 h it ended 0 processes, and would have ended 4: memory 3, seat 1";
        assert_eq!(ending.to_string(), line);
        ending.would_have_ended.clear();
        ending.counted_seconds = 61.0;
        let line = "end = \"no\"; in 61 s it ended 0 processes, and would have ended 0";
        assert_eq!(ending.to_string(), line);
    }
}
