//! Time limits as Slurm's options take them: `30`, `4:00:00`, `7-00:00:00`.

use serde::de::{self, Deserialize, Deserializer};
use std::fmt;

/// A time limit, in minutes as slurmctld counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallTime(u32);

impl WallTime {
    /// Reads a time in Slurm's forms: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes
    /// and days-hours:minutes:seconds. A minute that has begun counts as a whole one, as in Slurm.
    ///
    /// ```
    /// use softmig_policy::WallTime;
    /// assert_eq!(WallTime::parse("1-12").unwrap().minutes(), 36 * 60);
    /// assert_eq!(WallTime::parse("1-12").unwrap().to_string(), "1-12:00:00");
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let (days, rest) = match text.split_once('-') {
            Some((days, rest)) => (Some(number(days)?), rest),
            None => (None, text),
        };
        let parts: Vec<u64> = rest.split(':').map(number).collect::<Option<_>>()?;
        let (hours, minutes, seconds) = match (days, parts.as_slice()) {
            (None, &[minutes]) => (0, minutes, 0),
            (None, &[minutes, seconds]) => (0, minutes, seconds),
            (_, &[hours, minutes, seconds]) => (hours, minutes, seconds),
            (Some(_), &[hours]) => (hours, 0, 0),
            (Some(_), &[hours, minutes]) => (hours, minutes, 0),
            _ => return None,
        };
        let hours = days.unwrap_or(0).checked_mul(24)?.checked_add(hours)?;
        let minutes = hours
            .checked_mul(60)?
            .checked_add(minutes)?
            .checked_add(seconds.div_ceil(60))?;
        // Slurm has numbers of its own for "not set" and "unlimited" at the end of this range.
        u32::try_from(minutes)
            .ok()
            .filter(|minutes| (1..u32::MAX - 1).contains(minutes))
            .map(Self)
    }

    /// A limit of this number of minutes, unless Slurm takes that for unlimited.
    pub(crate) fn of_minutes(minutes: u32) -> Option<Self> {
        (1..u32::MAX - 1)
            .contains(&minutes)
            .then_some(Self(minutes))
    }

    /// The limit in minutes.
    pub fn minutes(self) -> u32 {
        self.0
    }
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, hours, minutes) = (self.0 / 1440, self.0 / 60 % 24, self.0 % 60);
        match days {
            0 => write!(f, "{hours:02}:{minutes:02}:00"),
            days => write!(f, "{days}-{hours:02}:{minutes:02}:00"),
        }
    }
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

impl<'de> Deserialize<'de> for WallTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse_in_full(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl WallTime {
    /// Reads a limit of policy.toml, which must say its unit. Slurm takes "24" and "4:00" as minutes, but they are
    /// often meant as hours.
    fn parse_in_full(text: &str) -> Result<Self, String> {
        const WRITE: &str = "write for example \"4:00:00\" or \"7-00:00:00\"";
        let time = Self::parse(text).ok_or_else(|| format!("\"{text}\" is no time; {WRITE}"))?;
        if text.contains('-') || text.matches(':').count() == 2 {
            return Ok(time);
        }
        Err(format!(
            "\"{text}\" would be {time}, which is hours, minutes and seconds; write that, or what is meant instead"
        ))
    }
}

/// In minutes.
impl From<WallTime> for u64 {
    fn from(time: WallTime) -> Self {
        time.0.into()
    }
}

/// A time limit of policy.toml that may also be "unlimited".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaxWallTime(pub(crate) Option<WallTime>);

impl From<MaxWallTime> for Option<WallTime> {
    fn from(time: MaxWallTime) -> Self {
        time.0
    }
}

impl<'de> Deserialize<'de> for MaxWallTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "unlimited" {
            return Ok(Self(None));
        }
        let time = WallTime::parse_in_full(&text);
        let time = time.map_err(|error| de::Error::custom(format!("{error}, or \"unlimited\"")))?;
        Ok(Self(Some(time)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_slurm_is_read() {
        for (text, minutes) in [
            ("30", 30),
            ("30:01", 31),
            ("4:00:00", 240),
            ("1-0", 1440),
            ("1-2:30", 1590),
            ("7-00:00:00", 10080),
        ] {
            let time = WallTime::parse(text).unwrap();
            assert_eq!(time.minutes(), minutes, "{text}");
            assert_eq!(WallTime::parse(&time.to_string()), Some(time), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_time_is_refused() {
        for text in [
            "",
            "0",
            "-1",
            "1-",
            "x",
            "4h",
            "1:2:3:4",
            "1-1-1",
            "99999999999",
            "+1",
            "4294967295",
        ] {
            assert_eq!(WallTime::parse(text), None, "{text}");
        }
    }
}
