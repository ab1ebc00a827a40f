//! Gates: requests that are only for jobs inside certain reservations.

use crate::config::classes::Classes;
use crate::config::error::{PolicyError, line_of};
use crate::config::gpu_types::GpuType;
use crate::config::name_check;
use crate::config::suggest::{meant, nearest};
use regex::bytes::{RegexSet, RegexSetBuilder, SetMatches};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use toml::Spanned;

/// A gate.
#[derive(Clone, Debug)]
pub struct Gate {
    what: GateSubject,
    /// The expressions as they are written.
    reservations: Vec<String>,
    accounts: Vec<String>,
    partitions: Vec<String>,
    exempt_classes: Vec<String>,
    /// Its line in policy.toml.
    line: Option<usize>,
}

/// The requests that a gate is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GateSubject {
    /// Part of a GPU, however it is asked for.
    Slice,
    /// Whole GPUs.
    Whole,
    /// MIG instances.
    Mig,
    /// Another GRES of exactly that name.
    Gres(String),
}

impl GateSubject {
    fn parse(text: &str) -> Self {
        match text {
            "slice" => Self::Slice,
            "whole" => Self::Whole,
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

/// The most that the compiled expressions may take.
const REGEX_BYTES: usize = 4 << 20;

impl GateTable {
    fn check(
        self,
        classes: &Classes,
        gpus: &BTreeMap<String, GpuType>,
        line: Option<usize>,
    ) -> Result<Gate, String> {
        check_what(&self.what, gpus)?;
        if self.reservation.is_empty() {
            return Err(
                "reservation is empty, so no job could pass; name at least one".to_string(),
            );
        }
        for expression in &self.reservation {
            // By itself: it must not reach out of the group that it is put into.
            check_syntax(expression)?;
        }
        for (what, list) in [("account", &self.accounts), ("partition", &self.partitions)] {
            if list.as_ref().is_some_and(Vec::is_empty) {
                return Err(format!(
                    "{what}s = [] matches no job; omit {what}s to match all"
                ));
            }
            list.iter()
                .flatten()
                .try_for_each(|name| name_check::check(what, name))?;
        }
        for class in &self.exempt_classes {
            if !classes.is_class(class) {
                let meant = meant(class, classes.class_names());
                return Err(format!(
                    "exempt_classes: class {class} does not exist; {meant}"
                ));
            }
        }
        let lower = |account: &String| account.to_lowercase();
        Ok(Gate {
            what: GateSubject::parse(&self.what),
            reservations: self.reservation,
            accounts: self
                .accounts
                .unwrap_or_default()
                .iter()
                .map(lower)
                .collect(),
            partitions: self.partitions.unwrap_or_default(),
            exempt_classes: self.exempt_classes,
            line,
        })
    }
}

fn wrong(line: Option<usize>, message: &str) -> PolicyError {
    PolicyError::new("[[gate]]", line, message)
}

/// Requests are searched for the exact name of another GRES, so a misspelt `slice` would be a gate without effect.
fn check_what(what: &str, gpus: &BTreeMap<String, GpuType>) -> Result<(), String> {
    const OURS: [&str; 3] = ["slice", "whole", "mig"];
    // Slurm's names for them, and what people call both.
    const NEITHER: [&str; 4] = ["gpu", "gpus", "shard", "shards"];
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if what.is_empty() || !what.bytes().all(known) {
        return Err(format!(
            "what = \"{what}\" is neither \"slice\" nor \"whole\" nor the name of a GRES"
        ));
    }
    if OURS.contains(&what) {
        return Ok(());
    }
    let lower = what.to_ascii_lowercase();
    if NEITHER.contains(&lower.as_str()) {
        return Err(format!(
            "what = \"{what}\" is ambiguous: write \"slice\" for parts of GPUs, \"whole\" for whole \
             ones, or a gate for each"
        ));
    }
    if gpus.contains_key(what) {
        return Err(format!(
            "what = \"{what}\" is a GPU type, but a gate applies to all types: write \"slice\" or \"whole\""
        ));
    }
    match nearest(&lower, OURS.into_iter()) {
        Some(meant) => Err(format!(
            "what = \"{what}\" is not valid; did you mean \"{meant}\"?"
        )),
        None => Ok(()),
    }
}

/// One expression for all of a gate's, anchored at both ends.
fn anchored(expressions: &[String]) -> String {
    let groups: Vec<String> = expressions
        .iter()
        .map(|expression| format!("(?:{expression})"))
        .collect();
    format!("^(?:{})$", groups.join("|"))
}

/// Cheaper than building it. A comment (`(?x)`) would swallow the group's end.
fn check_syntax(expression: &str) -> Result<(), String> {
    if expression.contains('#') {
        return Err(format!(
            "reservation = \"{expression}\" has a #, which names of reservations cannot have"
        ));
    }
    if let Some(at) = expression.find('*')
        && expression[..at]
            .ends_with(|last: char| last.is_ascii_alphanumeric() || "_-".contains(last))
    {
        let stem = &expression[..at];
        return Err(format!(
            "reservation = \"{expression}\" is read as a regular expression, in which * repeats the letter before it; \
             for any ending write \"{stem}.*\""
        ));
    }
    let parsed = regex_syntax::ParserBuilder::new()
        .unicode(false)
        .utf8(false)
        .build()
        .parse(expression);
    match parsed {
        Ok(_) => Ok(()),
        Err(error) => Err(no_expression(expression, &error.to_string())),
    }
}

/// The parser's words end with the reason.
fn no_expression(expression: &str, error: &str) -> String {
    let reason = error.lines().last().unwrap_or_default();
    let reason = reason.trim_start_matches("error: ");
    format!("reservation = \"{expression}\" is not a valid regular expression: {reason}")
}

fn check_expression(expression: &str) -> Result<(), String> {
    let built = RegexSetBuilder::new([expression])
        .unicode(false)
        .size_limit(REGEX_BYTES)
        .build();
    match built {
        Ok(_) => Ok(()),
        Err(regex::Error::CompiledTooBig(_)) => Err(no_expression(expression, "it is too large")),
        Err(other) => Err(no_expression(expression, &other.to_string())),
    }
}

/// All gates. Their expressions are one set, so that a name is looked at once however many there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gates {
    list: Vec<Gate>,
    /// Made when it is first looked at: that takes far longer than to read the whole file. `None` is too large a set, which
    /// no name opens.
    names: OnceLock<Option<RegexSet>>,
}

impl Gates {
    /// Checks the tables, but not yet the size of the expressions. `text` is the whole policy.toml.
    pub(crate) fn check(
        tables: Vec<Spanned<GateTable>>,
        classes: &Classes,
        gpus: &BTreeMap<String, GpuType>,
        text: &str,
    ) -> Result<Self, PolicyError> {
        let mut list = Vec::new();
        for table in tables {
            let line = line_of(text, &table.span());
            let gate = table.into_inner().check(classes, gpus, line);
            list.push(gate.map_err(|message| wrong(line, &message))?);
        }
        Ok(Self {
            list,
            names: OnceLock::new(),
        })
    }

    /// Where units of mps are slices, a gate about them would never be met.
    pub(crate) fn refuse_mps(&self) -> Result<(), PolicyError> {
        let mut gates = self.list.iter();
        match gates.find(|gate| gate.gres_name() == Some("mps")) {
            None => Ok(()),
            Some(gate) => Err(wrong(
                gate.line,
                "what = \"mps\" has no effect, because [legacy.mps] turns units of mps into slices; write \"slice\"",
            )),
        }
    }

    /// Makes the set now, and says which gate is at fault when that cannot be done.
    pub(crate) fn build(&self) -> Result<(), PolicyError> {
        if self.list.is_empty() || self.names().is_some() {
            return Ok(());
        }
        let mut expressions = self.list.iter().flat_map(|gate| {
            let own = gate.reservations.iter();
            own.map(move |expression| (expression, gate.line))
        });
        let at_fault = expressions
            .find_map(|(expression, line)| Some(wrong(line, &check_expression(expression).err()?)));
        Err(at_fault
            .unwrap_or_else(|| wrong(None, "the expressions of all gates together are too large")))
    }

    fn names(&self) -> Option<&RegexSet> {
        let build = || {
            let expressions = self.list.iter().map(|gate| anchored(&gate.reservations));
            RegexSetBuilder::new(expressions)
                .unicode(false)
                .size_limit(REGEX_BYTES)
                .build()
                .ok()
        };
        self.names.get_or_init(build).as_ref()
    }

    pub(crate) fn list(&self) -> &[Gate] {
        &self.list
    }

    /// True if a reservation of that name opens the gate.
    pub(crate) fn opens(&self, gate: usize, reservation: &str) -> bool {
        self.opened_by(reservation)
            .is_some_and(|gates| gates.matched(gate))
    }

    /// The gates that a reservation of that name opens, by their numbers.
    pub(crate) fn opened_by(&self, reservation: &str) -> Option<SetMatches> {
        Some(self.names()?.matches(reservation.as_bytes()))
    }
}

impl Gate {
    /// The requests that it is about, in the word of policy.toml.
    pub fn what(&self) -> &str {
        match &self.what {
            GateSubject::Slice => "slice",
            GateSubject::Whole => "whole",
            GateSubject::Mig => "mig",
            GateSubject::Gres(name) => name,
        }
    }

    /// The expressions for names of reservations, as policy.toml has them.
    pub fn reservations(&self) -> &[String] {
        &self.reservations
    }

    /// The partitions that it applies to; an empty list is all.
    pub fn partitions(&self) -> &[String] {
        &self.partitions
    }

    pub(crate) fn about(&self) -> &GateSubject {
        &self.what
    }

    /// The Slurm accounts that it applies to, in lower case; an empty list is all.
    pub fn accounts(&self) -> &[String] {
        &self.accounts
    }

    /// The classes whose members pass it in any case.
    pub(crate) fn exempt_classes(&self) -> &[String] {
        &self.exempt_classes
    }

    /// The GRES that it is about, where that is not GPUs.
    pub fn gres_name(&self) -> Option<&str> {
        match &self.what {
            GateSubject::Gres(name) => Some(name),
            GateSubject::Slice | GateSubject::Whole | GateSubject::Mig => None,
        }
    }
}
