//! The clock by which all parts of softmig tell whether a time has come.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::time::SystemTime;

/// The time for [`Context::now`](crate::Context::now).
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

/// Reads a time as policy.toml has them; without an offset it is this machine's.
pub fn at(text: &str) -> Result<i64, String> {
    let local = |time: DateTime| TimeZone::system().to_timestamp(time);
    let time = text
        .parse::<Timestamp>()
        .or_else(|_| text.parse::<DateTime>().and_then(local));
    let time = time.map_err(|_| {
        "write for example 2027-01-31T08:00:00, or with +01:00 or Z behind it".to_string()
    })?;
    Ok(time.as_second())
}
