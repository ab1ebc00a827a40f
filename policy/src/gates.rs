//! Gates: what may be asked for only inside certain reservations.

use crate::asker::Asker;
use crate::classes::{Classes, Unknown};
use crate::policy::{PolicyError, line_of, nearest};
use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use toml::Spanned;

/// A gate.
#[derive(Clone, Debug)]
pub struct Gate {
    what: What,
    /// The expressions as they are written.
    reservations: Vec<String>,
    names: Regex,
    accounts: Vec<String>,
    partitions: Vec<String>,
    exempt_classes: Vec<String>,
}

/// What a gate is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Part of a GPU, however it is asked for.
    Slice,
    /// Whole GPUs.
    Whole,
    /// MIG instances.
    Mig,
    /// Another GRES of exactly that name.
    Gres(String),
}

impl What {
    fn parse(text: &str) -> Self {
        match text {
            // What Slurm gets for a slice, and for a whole GPU.
            "slice" | "shard" => Self::Slice,
            "whole" | "gpu" => Self::Whole,
            "mig" => Self::Mig,
            other => Self::Gres(other.to_string()),
        }
    }
}

/// The table as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GateTable {
    what: String,
    reservation: Vec<String>,
    accounts: Option<Vec<String>>,
    partitions: Option<Vec<String>>,
    #[serde(default)]
    exempt_classes: Vec<String>,
}

/// The most that the compiled expressions of one gate may take.
const REGEX_BYTES: usize = 1 << 20;

impl GateTable {
    fn check(self, classes: &Classes) -> Result<Gate, String> {
        let name = |text: &str| {
            let known =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
            !text.is_empty() && text.bytes().all(known)
        };
        if !name(&self.what) {
            return Err(format!(
                "what = \"{}\" is neither \"slice\" nor \"whole\" nor the name of a GRES",
                self.what
            ));
        }
        if self.reservation.is_empty() {
            return Err(
                "reservation is empty, so nobody could ever pass; name at least one".to_string(),
            );
        }
        for expression in &self.reservation {
            // By itself first: the error is about this one, and none reaches out of its group below.
            build(expression).map_err(|error| {
                format!("reservation = \"{expression}\" is no regular expression: {error}")
            })?;
        }
        let names = compile(&self.reservation).map_err(|error| format!("reservation: {error}"))?;
        for (key, list) in [
            ("accounts", &self.accounts),
            ("partitions", &self.partitions),
        ] {
            if list.as_ref().is_some_and(Vec::is_empty) {
                return Err(format!(
                    "{key} = [] would make a gate for nobody; leave {key} out to have it for all"
                ));
            }
        }
        for class in &self.exempt_classes {
            if !classes.is_class(class) {
                return Err(match nearest(class, classes.class_names()) {
                    Some(meant) => format!("exempt_classes has {class}; did you mean {meant}?"),
                    None => {
                        format!("exempt_classes has {class}, and there is no [classes.{class}]")
                    }
                });
            }
        }
        let lower = |account: &String| account.to_lowercase();
        Ok(Gate {
            what: What::parse(&self.what),
            reservations: self.reservation,
            names,
            accounts: self
                .accounts
                .unwrap_or_default()
                .iter()
                .map(lower)
                .collect(),
            partitions: self.partitions.unwrap_or_default(),
            exempt_classes: self.exempt_classes,
        })
    }
}

/// One expression for all, anchored at both ends.
fn compile(expressions: &[String]) -> Result<Regex, String> {
    let groups: Vec<String> = expressions
        .iter()
        .map(|expression| format!("(?:{expression})"))
        .collect();
    build(&format!("^(?:{})$", groups.join("|")))
}

fn build(expression: &str) -> Result<Regex, String> {
    RegexBuilder::new(expression)
        .unicode(false)
        .size_limit(REGEX_BYTES)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "it is too large".to_string(),
            // The parser's words end with the reason.
            other => {
                let text = other.to_string();
                let reason = text.lines().last().unwrap_or_default();
                reason.trim_start_matches("error: ").to_string()
            }
        })
}

/// Checks all that stand in policy.toml, of which `text` is all.
pub(crate) fn check(
    tables: Vec<Spanned<GateTable>>,
    classes: &Classes,
    text: &str,
) -> Result<Vec<Gate>, PolicyError> {
    tables
        .into_iter()
        .map(|table| {
            let line = line_of(text, &table.span());
            table
                .into_inner()
                .check(classes)
                .map_err(|message| PolicyError {
                    line,
                    message: format!("[[gate]]: {message}"),
                })
        })
        .collect()
}

/// Why a gate is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// No reservation is named.
    NoReservation,
    /// One is named that does not open it.
    Reservation(String),
}

impl Gate {
    /// What it is about, as policy.toml says it.
    pub fn what(&self) -> &str {
        match &self.what {
            What::Slice => "slice",
            What::Whole => "whole",
            What::Mig => "mig",
            What::Gres(name) => name,
        }
    }

    /// The expressions for names of reservations, as policy.toml has them.
    pub fn reservations(&self) -> &[String] {
        &self.reservations
    }

    /// The partitions in which it stands; none is all.
    pub fn partitions(&self) -> &[String] {
        &self.partitions
    }

    pub(crate) fn names_accounts(&self) -> bool {
        !self.accounts.is_empty()
    }

    /// Whether a reservation of that name opens it.
    pub fn opens(&self, reservation: &str) -> bool {
        self.names.is_match(reservation.as_bytes())
    }

    /// The GRES that it is about, where that is not GPUs.
    pub(crate) fn gres_name(&self) -> Option<&str> {
        match &self.what {
            What::Gres(name) => Some(name),
            What::Slice | What::Whole | What::Mig => None,
        }
    }

    pub(crate) fn is_about(&self, what: &What) -> bool {
        self.what == *what
    }

    /// Whether somebody may pass; `None` when that hangs on what is not known here.
    pub(crate) fn closed(
        &self,
        asker: &Asker,
        class: Result<Option<&str>, Unknown>,
    ) -> Option<Closed> {
        if !self.partitions.is_empty() {
            let partitions = asker.partitions().ok()?;
            if !partitions.is_some_and(|list| {
                list.split(',')
                    .any(|name| self.partitions.iter().any(|own| own == name))
            }) {
                return None;
            }
        }
        if !self.accounts.is_empty() {
            let account = asker.account().ok()?;
            if !account.is_some_and(|name| {
                self.accounts
                    .iter()
                    .any(|own| own.eq_ignore_ascii_case(name))
            }) {
                return None;
            }
        }
        if !self.exempt_classes.is_empty()
            && class
                .ok()?
                .is_some_and(|class| self.exempt_classes.iter().any(|own| own == class))
        {
            return None;
        }
        let Some(reservations) = asker.reservations() else {
            return Some(Closed::NoReservation);
        };
        reservations
            .split(',')
            .find(|name| !self.opens(name))
            .map(|name| Closed::Reservation(name.to_string()))
    }
}
