//! Where the hook's messages go: to the job's log, else to the system's; from level 3 on also to standard
//! error. The first refusal of its kind in the job always goes there too. If the user's own limits hold, the log is the user's
//! `SOFTMIG_LOG_FILE`, or that of their `softmig run`.
//!
//! A process without a message opens no log. A set-uid program writes no message at all.

use softmig_policy::node::fixed_str::{Text, text};
use softmig_policy::node::identity::{Finding, ProcessRules, job_file};

use super::message::{Level, Line, Message};
use crate::os::{self, Error, File, Scratch};

/// From this level on everything also goes to standard error.
const ON_STDERR: u8 = 3;

/// Says one sentence about this process.
pub(crate) fn say(finding: &Finding, message: &Message<'_>) {
    write(finding, message, false);
}

/// Says an error on standard error too, unless the user wants to hear nothing, or it may not be what it was.
pub(crate) fn tell_user(finding: &Finding, message: &Message<'_>) {
    write(finding, message, os::is_stderr_for_words());
}

fn write(finding: &Finding, message: &Message<'_>, to_user: bool) {
    let wanted = wanted_level(finding);
    let level = message.level();
    if level as u8 > wanted || os::is_secure() {
        return;
    }
    let mut line = stamp(os::now());
    line.push(b" softmig[");
    line.push_number(os::process_id().into(), 1);
    line.push(b"] ");
    if let Some(job) = finding.job {
        line.push(b"job ");
        line.push_number(job.into(), 1);
        line.push(b": ");
    }
    message.write(&mut line, finding.observe);
    line.push(b"\n");
    // Writing beyond a limit on file sizes would end the program, and standard error may be a file.
    let may_write = os::may_write_files();
    if (to_user || wanted >= ON_STDERR) && may_write {
        os::write_to_stderr(line.as_bytes());
    }
    let logged = may_write && write_to_log(finding, &line).is_ok();
    if !logged && level == Level::Error {
        write_to_syslog(&line);
    }
}

/// Does so if it is the first time in a job: `words` are those by which its log shows another time.
pub(crate) fn tell_user_once(finding: &Finding, message: &Message<'_>, words: &[u8]) {
    if finding.in_job && !finding.observe && !has(finding, words) {
        tell_user(finding, message);
    } else {
        say(finding, message);
    }
}

/// Whether the job's log has these words near its beginning.
fn has(finding: &Finding, words: &[u8]) -> bool {
    let find = |job| {
        let path = job_file(job, b"log");
        let log = File::open(path.as_path()?, libc::O_RDONLY).ok()?;
        let mut scratch = Scratch::new().ok()?;
        let count = log.read(scratch.bytes()).ok()?;
        let mut parts = scratch.bytes().get(..count)?.windows(words.len());
        Some(parts.any(|part| part == words))
    };
    finding.job.and_then(find).unwrap_or(false)
}

/// 1, 10, 100, ...: after these many times something is said again.
pub(crate) fn is_round(count: u32) -> bool {
    core::iter::successors(Some(1_u32), |power| power.checked_mul(10)).any(|power| power == count)
}

/// Outside jobs the C library's variable counts too.
fn wanted_level(finding: &Finding) -> u8 {
    let other = if finding.job.is_none() {
        os::variable(c"LIBCUDA_LOG_LEVEL")
    } else {
        None
    };
    match os::variable(c"SOFTMIG_LOG_LEVEL").or(other) {
        Some([digit @ b'0'..=b'4']) => digit.wrapping_sub(b'0'),
        _ => Level::Error as u8,
    }
}

/// Writes to the job's log, or to the user's own.
fn write_to_log(finding: &Finding, line: &Line) -> Result<(), Error> {
    match (finding.job, &finding.standing) {
        (Some(job), _) => append(&job_file(job, b"log"), 0, line),
        (None, ProcessRules::Own(_)) => {
            let path = os::variable(c"SOFTMIG_LOG_FILE").filter(|path| !path.is_empty());
            let written = path.map(|path| append(&text(&[path]), libc::O_CREAT, line));
            match written {
                Some(Ok(())) => Ok(()),
                _ => append(&log_of_run()?, 0, line),
            }
        }
        (None, _) => Err(Error::MISSING),
    }
}

/// The longest path of a log.
type Path = Text<256>;

/// `log` beside the ledger of a `softmig run`.
fn log_of_run() -> Result<Path, Error> {
    let ledger = os::variable(c"SOFTMIG_RUN").ok_or(Error::MISSING)?;
    let slash = ledger.iter().rposition(|&byte| byte == b'/');
    let folder = ledger.get(..=slash.ok_or(Error::MISSING)?);
    Ok(text(&[folder.unwrap_or_default(), b"log"]))
}

/// Writes only to a plain file of the user's own, since the user may replace the log by anything.
fn append(path: &Path, flags: core::ffi::c_int, line: &Line) -> Result<(), Error> {
    let path = path.as_path().ok_or(Error::TOO_LONG)?;
    let log = File::open(path, libc::O_WRONLY | libc::O_APPEND | flags)?;
    let status = log.status()?;
    if !status.is_plain() || status.owner != os::real_uid() {
        return Err(Error(libc::EPERM));
    }
    log.write(line.as_bytes())
}

/// `<priority>program[pid]: text`: facility user (1), severity warning (4). The rest of the stamp is the daemon's.
fn write_to_syslog(line: &Line) {
    let after_stamp = line
        .as_bytes()
        .get(STAMP.saturating_add(1)..)
        .unwrap_or_default();
    let sentence = after_stamp.strip_suffix(b"\n").unwrap_or(after_stamp);
    let mut message = Line::new();
    message.push(b"<12>");
    // `softmig[PID]: ...`
    let mut parts = sentence.splitn(2, |&byte| byte == b' ');
    message.push(parts.next().unwrap_or_default());
    message.push(b": ");
    message.push(parts.next().unwrap_or_default());
    os::write_to_syslog(message.as_bytes());
}

/// How long a stamp is.
const STAMP: usize = 20;

/// `2026-11-21T06:45:40Z`.
fn stamp(seconds: u64) -> Line {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days to a date: https://howardhinnant.github.io/date_algorithms.html#civil_from_days, for dates after 1970.
    let shifted = days.wrapping_add(719_468);
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let leap_days = (day_of_era / 1_460)
        .wrapping_sub(day_of_era / 36_524)
        .wrapping_add(day_of_era / 146_096);
    let year_of_era = day_of_era.wrapping_sub(leap_days) / 365;
    let days_before = year_of_era
        .wrapping_mul(365)
        .wrapping_add(year_of_era / 4)
        .wrapping_sub(year_of_era / 100);
    let day_of_year = day_of_era.wrapping_sub(days_before);
    let month_from_march = day_of_year.wrapping_mul(5).wrapping_add(2) / 153;
    let before_month = month_from_march.wrapping_mul(153).wrapping_add(2) / 5;
    let day = day_of_year.wrapping_sub(before_month).wrapping_add(1);
    let month = if month_from_march < 10 {
        month_from_march.wrapping_add(3)
    } else {
        month_from_march.wrapping_sub(9)
    };
    let year = year_of_era
        .wrapping_add(era.wrapping_mul(400))
        .wrapping_add(u64::from(month <= 2));
    let mut line = Line::new();
    line.push_number(year, 4);
    for (mark, number) in [
        (b"-", month),
        (b"-", day),
        (b"T", rest / 3600),
        (b":", rest / 60 % 60),
        (b":", rest % 60),
    ] {
        line.push(mark);
        line.push_number(number, 2);
    }
    line.push(b"Z");
    line
}

/// Says what holds for a process, once it is known; at the usual level nothing.
pub(crate) fn say_standing(finding: &Finding) {
    let message = match &finding.standing {
        // Byte for byte as without the library.
        ProcessRules::Passive | ProcessRules::Denied(_) => return,
        ProcessRules::Job(conf) => match conf.limits.as_ref() {
            Some(limits) => Message::Limited(limits),
            None => return,
        },
        ProcessRules::Neighbours => Message::LimitedAsNeighbours,
        ProcessRules::Own(_) => Message::LimitedByVariables,
    };
    say(finding, &message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_the_time_in_utc() {
        for (seconds, written) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_243_540, "2026-11-21T06:45:40Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(
                core::str::from_utf8(stamp(seconds).as_bytes()).unwrap(),
                written
            );
            assert_eq!(written.len(), STAMP);
        }
    }
}
