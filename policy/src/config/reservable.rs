//! GPUs that are reserved for a user or an account for some time.
//!
//! Unlike a Slurm reservation, this also keeps slices off the GPU. In Slurm that takes a type of its own without shards, so a
//! reserved GPU has one, and only its holder can ask for that type.

use crate::config::error::{PolicyError, line_of};
use crate::config::gpu_types::GpuType;
use crate::config::name_check;
use crate::config::suggest::meant;
use crate::slurm::plain::is_plain;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;
use toml::value::Datetime;

/// A reserved GPU.
#[derive(Clone, Debug)]
pub struct Reservable {
    kind: String,
    of: String,
    holder: Holder,
    start: Option<Timestamp>,
    end: Timestamp,
    zone: TimeZone,
    reason: String,
}

/// The user or account that a GPU is reserved for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// One person.
    User(String),
    /// All jobs of a Slurm account.
    Account(String),
}

impl Holder {
    /// "user alice", "account course".
    pub fn called(&self) -> String {
        match self {
            Self::User(name) => format!("user {name}"),
            Self::Account(name) => format!("account {name}"),
        }
    }
}

/// A time, relative to that of the reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Before the reservation.
    Ahead,
    /// In the reservation.
    Open,
    /// After the reservation.
    Over,
}

/// The table as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReservableTable {
    r#type: String,
    of: String,
    user: Option<String>,
    account: Option<String>,
    start: Option<Datetime>,
    end: Datetime,
    reason: String,
}

/// A user reads it in a terminal.
const LONGEST_REASON: usize = 200;

impl ReservableTable {
    fn check(
        self,
        gpus: &BTreeMap<String, GpuType>,
        zone: &TimeZone,
    ) -> Result<Reservable, String> {
        if gpus.contains_key(&self.r#type) {
            return Err(format!(
                "type = \"{kind}\" also has a table [gpu.{kind}]; a reserved GPU needs a type of its \
                 own without shards, such as \"{of}_r\"",
                kind = self.r#type,
                of = self.of
            ));
        }
        crate::node::limits::TypeName::new(&self.r#type).map_err(|_| {
            format!(
                "type = \"{}\" is not a valid name of a GPU type",
                self.r#type
            )
        })?;
        if !gpus.contains_key(&self.of) {
            return Err(format!(
                "of = \"{}\" has no [gpu.*] table; write the type that these GPUs have while they are not reserved; {}",
                self.of,
                meant(&self.of, gpus.keys().map(String::as_str))
            ));
        }
        let holder = match (self.user, self.account) {
            (Some(user), None) => {
                name_check::check("user", &user)?;
                Holder::User(user)
            }
            (None, Some(account)) => {
                name_check::check("account", &account)?;
                Holder::Account(account)
            }
            (Some(_), Some(_)) => {
                return Err("user and account are both set; write one".to_string());
            }
            _ => {
                return Err(
                    "the holder is missing; write user = \"NAME\" or account = \"NAME\""
                        .to_string(),
                );
            }
        };
        let start = self
            .start
            .as_ref()
            .map(|time| instant("start", time, zone))
            .transpose()?;
        let end = instant("end", &self.end, zone)?;
        if start.is_some_and(|start| start >= end) {
            return Err("start is not before end, so the GPU would never be reserved".to_string());
        }
        let plain = self.reason.chars().all(is_plain);
        if self.reason.trim().is_empty() || self.reason.len() > LONGEST_REASON || !plain {
            return Err(format!(
                "reason is not one line of plain ASCII with 1 to {LONGEST_REASON} characters"
            ));
        }
        Ok(Reservable {
            kind: self.r#type,
            of: self.of,
            holder,
            start,
            end,
            zone: zone.clone(),
            reason: self.reason,
        })
    }
}

/// A time of policy.toml; without an offset it is in the site's time zone.
fn instant(key: &str, time: &Datetime, zone: &TimeZone) -> Result<Timestamp, String> {
    let wrong = || {
        format!(
            "{key} = {time} is not a valid time; write for example 2027-01-31T08:00:00, or with +01:00 or Z at its end"
        )
    };
    let date = time.date.ok_or_else(wrong)?;
    let date = Date::new(
        i16::try_from(date.year).map_err(|_| wrong())?,
        i8::try_from(date.month).map_err(|_| wrong())?,
        i8::try_from(date.day).map_err(|_| wrong())?,
    )
    .map_err(|_| wrong())?;
    // A date alone begins at midnight.
    let clock = match time.time {
        Some(clock) => Time::new(
            i8::try_from(clock.hour).map_err(|_| wrong())?,
            i8::try_from(clock.minute).map_err(|_| wrong())?,
            // A leap second.
            i8::try_from(clock.second.unwrap_or(0).min(59)).map_err(|_| wrong())?,
            0,
        )
        .map_err(|_| wrong())?,
        None => Time::midnight(),
    };
    let local = DateTime::from_parts(date, clock);
    let zoned: Result<Zoned, _> = match time.offset {
        None => zone.to_zoned(local),
        Some(toml::value::Offset::Z) => TimeZone::UTC.to_zoned(local),
        Some(toml::value::Offset::Custom { minutes }) => {
            let offset = Offset::from_seconds(i32::from(minutes) * 60).map_err(|_| wrong())?;
            TimeZone::fixed(offset).to_zoned(local)
        }
    };
    Ok(zoned.map_err(|_| wrong())?.timestamp())
}

/// Checks the tables. `text` is the whole policy.toml; times without offset are in `zone`.
pub(crate) fn check(
    tables: Vec<Spanned<ReservableTable>>,
    gpus: &BTreeMap<String, GpuType>,
    zone: &TimeZone,
    text: &str,
) -> Result<Vec<Reservable>, PolicyError> {
    let mut checked: Vec<Reservable> = Vec::new();
    for table in tables {
        let line = line_of(text, &table.span());
        let wrong = |message| PolicyError::new("[[reservable]]", line, message);
        let new = table.into_inner().check(gpus, zone).map_err(wrong)?;
        if let Some(other) = checked.iter().find(|other| other.collides(&new)) {
            return Err(wrong(format!(
                "type {} is already reserved for {} until {}; a GPU can have one holder at a time",
                new.kind,
                other.holder.called(),
                other.end_local()
            )));
        }
        if let Some(other) = checked
            .iter()
            .find(|other| other.kind == new.kind && other.of != new.of)
        {
            return Err(wrong(format!(
                "type {} has of = \"{}\" above and of = \"{}\" here",
                new.kind, other.of, new.of
            )));
        }
        checked.push(new);
    }
    Ok(checked)
}

impl Reservable {
    /// The type that the GPU has while it is reserved.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The type that it is otherwise.
    pub fn base_type(&self) -> &str {
        &self.of
    }

    /// Its holder.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// The reason, which all users can read.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The name of Slurm's reservation for it. It is the same while its end is put off, so that a running one is changed and
    /// not made anew.
    pub fn reservation(&self) -> String {
        let start = self.start_local().unwrap_or_default();
        let start: String = start.chars().filter(char::is_ascii_digit).collect();
        format!("softmig_{}_{start}", self.kind)
    }

    /// When it begins, in seconds since 1970; `None` if it has no beginning.
    pub fn start(&self) -> Option<i64> {
        self.start.map(Timestamp::as_second)
    }

    /// When it ends, in seconds since 1970.
    pub fn end(&self) -> i64 {
        self.end.as_second()
    }

    /// The beginning in the site's time, as Slurm's commands take it.
    pub fn start_local(&self) -> Option<String> {
        self.start.map(|start| self.local(start))
    }

    /// The end in the site's time, as Slurm's commands take it.
    pub fn end_local(&self) -> String {
        self.local(self.end)
    }

    /// Both in UTC, for people to check.
    pub fn utc(&self) -> String {
        let utc = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        match self.start {
            Some(start) => format!("{} to {}", utc(start), utc(self.end)),
            None => format!("until {}", utc(self.end)),
        }
    }

    fn local(&self, time: Timestamp) -> String {
        let zoned = time.to_zoned(self.zone.clone());
        zoned.strftime("%Y-%m-%dT%H:%M:%S").to_string()
    }

    /// Where `now`, in seconds since 1970, is relative to the reservation.
    pub fn window(&self, now: i64) -> Window {
        if now >= self.end() {
            Window::Over
        } else if self.start().is_some_and(|start| now < start) {
            Window::Ahead
        } else {
            Window::Open
        }
    }

    fn collides(&self, other: &Self) -> bool {
        let begins_before = |one: &Self, two: &Self| one.start.is_none_or(|start| start < two.end);
        self.kind == other.kind && begins_before(self, other) && begins_before(other, self)
    }
}
