//! The clock by which all parts of softmig tell whether a time has come.

use std::time::SystemTime;

/// The time for [`Context::now`](crate::Context::now).
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}
