//! The rules: what is wrong in an observation, and what is to be done about it once it was seen long enough.
//!
//! Nothing here reads a clock or a file, or sends a signal.

mod bounds;
#[cfg(test)]
mod honest_tests;
#[cfg(test)]
mod tests;
mod unseated_work;

use crate::enforce::observation::{Claim, Holder, Observation, ProcessId, Tenant};
pub use bounds::Bounds;
use softmig_policy::config::monitor::{End, Monitor, OutsideJobs};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use unseated_work::UnseatedWork;

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A job has more memory than its slice and a margin.
    Memory,
    /// Processes of a slice work on a GPU without a seat.
    Seat,
    /// A job is on a GPU that is not its own.
    OtherGpu,
    /// A job without a conf is on a GPU.
    NoConf,
    /// A user is on a GPU outside every job.
    OutsideJobs,
    /// Memory is in no process's figure, and processes of slices have the driver open without a context.
    NoFigure,
    /// A slice has more of a GPU's time than its share, by processes that cannot be held.
    Time,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Memory,
        Self::Seat,
        Self::OtherGpu,
        Self::NoConf,
        Self::OutsideJobs,
        Self::NoFigure,
        Self::Time,
    ];

    /// Its name in the log and in `softmig node`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Seat => "seat",
            Self::OtherGpu => "other-gpu",
            Self::NoConf => "no-conf",
            Self::OutsideJobs => "outside-jobs",
            Self::NoFigure => "no-figure",
            Self::Time => "time",
        }
    }

    /// Its finding, in words.
    pub fn what(self) -> &'static str {
        match self {
            Self::Memory => "more memory than its slice",
            Self::Seat => "work on a GPU without a seat at the monitor",
            Self::OtherGpu => "a GPU that is not the job's",
            Self::NoConf => "a job without limits of its own on a GPU",
            Self::OutsideJobs => "GPU use outside every job",
            Self::NoFigure => "memory that no process's figure shows; these processes may keep it",
            Self::Time => "more GPU time than its share, by processes that cannot be held",
        }
    }

    /// Its consequence under these settings.
    pub fn consequence(self, settings: &Monitor) -> Consequence {
        let least = match self {
            Self::Memory => End::Memory,
            Self::Seat | Self::OtherGpu | Self::NoConf | Self::Time => End::All,
            Self::OutsideJobs => match settings.outside_jobs {
                OutsideJobs::Allow => return Consequence::None,
                OutsideJobs::Report => return Consequence::Report,
                OutsideJobs::End => End::All,
            },
            Self::NoFigure => return Consequence::Report,
        };
        let is_ended = match settings.end {
            End::No => false,
            End::Memory => least == End::Memory,
            End::All => true,
        };
        if is_ended {
            Consequence::End
        } else {
            Consequence::WouldEnd
        }
    }
}

/// The consequence of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// It is not told.
    None,
    /// It is told.
    Report,
    /// It is told, with what would be ended if policy.toml said so.
    WouldEnd,
    /// Its processes are ended.
    End,
}

/// Something that is wrong, as it was seen long enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule that was broken.
    pub rule: Rule,
    /// The owner of the processes.
    pub holder: Holder,
    /// Their user.
    pub uid: Option<u32>,
    /// The GPU's UUID.
    pub gpu: String,
    /// Those whose end would put it right; none where all that could are exempt.
    pub processes: Vec<ProcessId>,
    /// All that are concerned.
    pub pids: Vec<u32>,
    /// The holder's memory there, in bytes.
    pub memory: Option<u64>,
    /// Its limit.
    pub limit: Option<u64>,
}

/// The findings of an observation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evaluation {
    /// Violations that were seen long enough, and are still there.
    pub violations: Vec<Violation>,
    /// Whether something was seen that is to be looked at again soon.
    pub is_in_doubt: bool,
}

type Key = (Rule, Holder, String);

#[derive(Clone, Debug)]
struct Pending {
    first: Duration,
    observations: u32,
    last: Duration,
    /// The processes that were there the last time.
    processes: BTreeSet<ProcessId>,
}

/// Decides, from one observation after the other.
#[derive(Debug, Default)]
pub struct Evaluator {
    bounds: Bounds,
    pending: BTreeMap<Key, Pending>,
    /// When the last observation was.
    last: Option<Duration>,
    unseated_work: UnseatedWork,
}

impl Evaluator {
    /// One with these bounds.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            ..Self::default()
        }
    }

    /// Takes an observation. A holder in `again` was ended before, and has no grace.
    pub fn evaluate(
        &mut self,
        observation: &Observation,
        settings: &Monitor,
        again: &BTreeSet<Holder>,
    ) -> Evaluation {
        self.unseated_work.note(observation, &self.bounds);
        let mut evaluation = Evaluation::default();
        let last = self.last.replace(observation.at);
        // No look comes later than after three times the interval.
        let remembered = self.bounds.remembered.max(3 * settings.interval);
        let mut before = std::mem::take(&mut self.pending);
        before.retain(|(rule, ..), entry| {
            let is_remembered = observation.at.saturating_sub(entry.last) <= remembered;
            Some(entry.last) == last || (*rule == Rule::Memory && is_remembered)
        });
        for violation in self.violations(observation) {
            if violation.rule.consequence(settings) == Consequence::None {
                continue;
            }
            let key = (
                violation.rule,
                violation.holder.clone(),
                violation.gpu.clone(),
            );
            let there = tenant_of(&violation, observation);
            let goes_on = |entry: &Pending| {
                let comes_again = || there.is_some_and(|it| self.has_come_again(it, entry));
                Some(entry.last) == last || comes_again()
            };
            let mut entry = before.remove(&key).filter(goes_on).unwrap_or(Pending {
                first: observation.at,
                observations: 0,
                last: observation.at,
                processes: BTreeSet::new(),
            });
            entry.observations += 1;
            entry.last = observation.at;
            entry.processes = there
                .into_iter()
                .flat_map(|it| it.processes.iter().map(|process| process.id))
                .collect();
            let grace = match violation.rule {
                Rule::Memory if !again.contains(&violation.holder) => settings.grace,
                _ => Duration::ZERO,
            };
            let patience = grace.max(self.bounds.seen_for);
            let seen_for = observation.at.saturating_sub(entry.first);
            let is_long_enough =
                entry.observations >= self.bounds.observations && seen_for >= patience;
            // For this rule `unseated_work` counts the observations.
            if violation.rule == Rule::Seat || is_long_enough {
                evaluation.violations.push(violation);
            } else {
                // Within a long grace the next observation is early enough.
                evaluation.is_in_doubt |= patience.saturating_sub(seen_for) <= settings.interval;
            }
            self.pending.insert(key, entry);
        }
        for (key, entry) in before {
            self.pending.entry(key).or_insert(entry);
        }
        let is_suspect = |tenant: &Tenant| {
            self.unseated_work.is_suspect(tenant) && !self.is_violated(Rule::Seat, tenant)
        };
        evaluation.is_in_doubt |= observation.tenants.iter().any(is_suspect);
        evaluation
    }

    /// Those processes of a violation that a later observation shows to be where they were, for the same reason. How busy they
    /// are does not count: a moment later nothing new is known of that.
    pub fn confirmed(&self, violation: &Violation, observation: &Observation) -> Vec<ProcessId> {
        let Some(tenant) = tenant_of(violation, observation) else {
            return Vec::new();
        };
        let there: BTreeSet<ProcessId> = match violation.rule {
            Rule::Seat => tenant.unseated().map(|process| process.id).collect(),
            Rule::Time => tenant.in_excess().map(|process| process.id).collect(),
            rule if self.is_violated(rule, tenant) => {
                tenant.processes.iter().map(|process| process.id).collect()
            }
            _ => return Vec::new(),
        };
        let processes = violation.processes.iter().copied();
        processes.filter(|id| there.contains(id)).collect()
    }

    /// Whether a job has too much memory again, after a pause. One whose processes follow each other can be seen with two of them,
    /// but not with the same two: so either these, or one process alone has too much.
    fn has_come_again(&self, tenant: &Tenant, before: &Pending) -> bool {
        let Claim::Slice { memory, .. } = tenant.claim else {
            return false;
        };
        let most = self.bounds.most(memory);
        let same = tenant.processes.iter();
        let same = same.filter(|it| before.processes.contains(&it.id));
        let of_same: u64 = same.filter_map(|it| it.memory).sum();
        let mut alone = tenant.processes.iter().filter_map(|it| it.memory);
        of_same > most || alone.any(|memory| memory > most)
    }

    /// All that is wrong in an observation.
    fn violations(&self, observation: &Observation) -> Vec<Violation> {
        let of_tenants = observation.tenants.iter().flat_map(|tenant| {
            Rule::ALL
                .into_iter()
                .filter(|&rule| self.is_violated(rule, tenant))
                .map(|rule| self.violation(rule, tenant))
        });
        let of_unattributed = observation.unattributed.iter().flat_map(|unattributed| {
            let holders: BTreeSet<&Holder> = unattributed
                .holders
                .iter()
                .map(|(holder, _)| holder)
                .collect();
            holders.into_iter().map(|holder| {
                let own = unattributed
                    .holders
                    .iter()
                    .filter(move |(other, _)| other == holder);
                Violation {
                    rule: Rule::NoFigure,
                    holder: holder.clone(),
                    uid: None,
                    gpu: unattributed.gpu.clone(),
                    processes: Vec::new(),
                    pids: own.map(|&(_, pid)| pid).collect(),
                    memory: Some(unattributed.bytes),
                    limit: None,
                }
            })
        });
        of_tenants.chain(of_unattributed).collect()
    }

    fn is_violated(&self, rule: Rule, tenant: &Tenant) -> bool {
        let is_there = !tenant.processes.is_empty();
        match (rule, tenant.claim) {
            (Rule::Memory, Claim::Slice { memory, .. }) => {
                tenant.is_assigned != Some(false)
                    && tenant
                        .memory
                        .is_some_and(|has| has > self.bounds.most(memory))
            }
            (Rule::Seat, Claim::Slice { .. }) => self.unseated(tenant).next().is_some(),
            (Rule::OtherGpu, Claim::Slice { .. } | Claim::Whole) => {
                is_there && tenant.is_assigned == Some(false)
            }
            (Rule::NoConf, Claim::NoConf) => is_there,
            (Rule::OutsideJobs, Claim::OutsideJobs) => {
                tenant.processes.iter().any(|it| it.exempt.is_none())
            }
            (
                Rule::Time,
                Claim::Slice {
                    has_seats: true, ..
                },
            ) => tenant.in_excess().next().is_some(),
            // Holders that may keep memory in no process's figure are not on the GPU.
            _ => false,
        }
    }

    fn unseated<'a>(
        &'a self,
        tenant: &'a Tenant,
    ) -> impl Iterator<Item = &'a crate::enforce::observation::Process> {
        let worked = self
            .unseated_work
            .has_worked_twice(tenant, self.bounds.seen_for);
        (tenant.unseated()).filter(move |it| worked && self.unseated_work.has_worked(tenant, it.id))
    }

    fn violation(&self, rule: Rule, tenant: &Tenant) -> Violation {
        let limit = match tenant.claim {
            Claim::Slice { memory, .. } => Some(memory),
            Claim::Whole | Claim::NoConf | Claim::OutsideJobs => None,
        };
        let concerned: Vec<_> = match rule {
            Rule::Seat => self.unseated(tenant).collect(),
            Rule::OutsideJobs => {
                let users = tenant.processes.iter().filter(|it| it.exempt.is_none());
                users.collect()
            }
            Rule::Time => tenant.in_excess().collect(),
            _ => tenant.processes.iter().collect(),
        };
        let processes = match rule {
            Rule::Memory => to_fit(tenant, limit.unwrap_or(0)),
            Rule::NoFigure => Vec::new(),
            Rule::Seat | Rule::OtherGpu | Rule::NoConf | Rule::OutsideJobs | Rule::Time => {
                // A desktop outside every job is left alone.
                let counts = |computes| computes || rule != Rule::OutsideJobs;
                concerned
                    .iter()
                    .filter(|it| it.exempt.is_none() && counts(it.computes))
                    .map(|it| it.id)
                    .collect()
            }
        };
        Violation {
            rule,
            holder: tenant.holder.clone(),
            uid: tenant.uid,
            gpu: tenant.gpu.clone(),
            processes,
            pids: concerned.iter().map(|it| it.id.pid).collect(),
            memory: tenant.memory,
            limit,
        }
    }
}

/// Whose violation it is, as a later observation has it.
fn tenant_of<'a>(violation: &Violation, observation: &'a Observation) -> Option<&'a Tenant> {
    let mut tenants = observation.tenants.iter();
    tenants.find(|tenant| tenant.holder == violation.holder && tenant.gpu == violation.gpu)
}

/// The processes without which the rest is within the limit: first those without a seat, each time the largest first. All
/// that may be ended, where those that are exempt have more than the limit by themselves: a user may have made one of these
/// hold the excess.
fn to_fit(tenant: &Tenant, limit: u64) -> Vec<ProcessId> {
    let unseated: BTreeSet<ProcessId> = tenant.unseated().map(|process| process.id).collect();
    let mortal = tenant.processes.iter().filter(|it| it.exempt.is_none());
    let mut order: Vec<_> = mortal.collect();
    order.sort_by_key(|it| {
        (
            !unseated.contains(&it.id),
            std::cmp::Reverse(it.memory),
            it.id,
        )
    });
    let mut rest = tenant.memory.unwrap_or(0);
    let mut chosen = Vec::new();
    for process in order {
        if rest <= limit {
            break;
        }
        rest = rest.saturating_sub(process.memory.unwrap_or(0));
        chosen.push(process.id);
    }
    chosen
}
