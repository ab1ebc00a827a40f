//! The steps against violators, one after the other: a signal that asks them to end, one that does not, and all of the job
//! when another of its processes violates a rule after that.
//!
//! Nothing here reads a clock or sends a signal.

use crate::enforce::observation::{Holder, Observation, ProcessId};
use crate::enforce::rules::Violation;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

/// The time that a process has to end by itself.
pub const MOMENT: Duration = Duration::from_millis(250);

/// A process that was ended and is still there after this time does not end by that: a debugger or a device holds it.
const STUCK: Duration = Duration::from_secs(2);

/// How often one that is stuck is ended again.
const SELDOM: Duration = Duration::from_secs(60);

/// Findings within this time are one violation if their processes were there at its beginning: rules differ in when they see it.
const TOGETHER: Duration = Duration::from_secs(5);

/// A holder without a violation for this time begins anew.
const FORGIVEN: Duration = Duration::from_secs(3600);

/// The step to take now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask these to end (SIGTERM).
    Ask(Violation),
    /// End these (SIGKILL).
    End(Violation),
    /// End all processes of the job: it was asked before, or some do not end. One that traces them may be among the others.
    EndJob(Violation),
}

impl Step {
    /// The violation that it is about.
    pub fn violation(&self) -> &Violation {
        match self {
            Self::Ask(violation) | Self::End(violation) | Self::EndJob(violation) => violation,
        }
    }
}

/// The processes that were asked to end, and when.
#[derive(Debug, Default)]
pub struct Escalation {
    holders: BTreeMap<Holder, Record>,
}

#[derive(Debug)]
struct Record {
    /// The run of the job that it is about.
    since: Option<SystemTime>,
    /// When the first of its processes were asked to end, and which ones it had then.
    first: Duration,
    had: BTreeSet<ProcessId>,
    last: Duration,
    asked: Vec<AskedToEnd>,
}

/// Processes that were asked to end, and for what.
#[derive(Debug)]
struct AskedToEnd {
    /// When something was done last.
    at: Duration,
    /// When they were first ended.
    ended: Option<Duration>,
    is_stuck: bool,
    violation: Violation,
}

impl Escalation {
    /// Whose processes were asked to end before an observation. Jobs that Slurm has started anew since then are forgotten.
    pub fn repeated(&mut self, observation: &Observation) -> BTreeSet<Holder> {
        for tenant in observation.tenants.iter().filter(|it| it.since.is_some()) {
            let record = self.holders.get(&tenant.holder);
            if record.is_some_and(|record| record.since != tenant.since) {
                self.holders.remove(&tenant.holder);
            }
        }
        self.holders.keys().cloned().collect()
    }

    /// Whether there is any whose time to end by itself runs.
    pub fn is_waiting(&self) -> bool {
        let mut asked = self.holders.values().flat_map(|it| &it.asked);
        asked.any(|it| !it.is_stuck)
    }

    /// Takes the violations of an observation that are to have an end.
    pub fn escalate(&mut self, observation: &Observation, violations: &[Violation]) -> Vec<Step> {
        let now = observation.at;
        let there: BTreeSet<ProcessId> = (observation.tenants.iter())
            .flat_map(|tenant| tenant.processes.iter().map(|process| process.id))
            .collect();
        self.holders.retain(|_, record| {
            // One that is not there has ended, or is on no GPU any more.
            record.forget(|id| there.contains(&id));
            now.saturating_sub(record.last) < FORGIVEN
        });
        let records = self.holders.values_mut();
        let mut steps: Vec<Step> = records.flat_map(|record| record.due(now)).collect();
        for violation in violations {
            match self.holders.get_mut(&violation.holder) {
                None => {
                    let own = observation
                        .tenants
                        .iter()
                        .filter(|it| it.holder == violation.holder);
                    let mut record = Record {
                        since: own.clone().find_map(|tenant| tenant.since),
                        first: now,
                        had: own
                            .flat_map(|it| it.processes.iter().map(|process| process.id))
                            .collect(),
                        last: now,
                        asked: Vec::new(),
                    };
                    record.ask(now, violation.clone());
                    self.holders.insert(violation.holder.clone(), record);
                    steps.push(Step::Ask(violation.clone()));
                }
                Some(record) => steps.extend(record.escalate(now, violation)),
            }
        }
        steps
    }
}

impl Record {
    fn forget(&mut self, there: impl Fn(ProcessId) -> bool) {
        for asked in &mut self.asked {
            asked.violation.processes.retain(|&id| there(id));
        }
        self.asked
            .retain(|asked| !asked.violation.processes.is_empty());
    }

    fn ask(&mut self, at: Duration, violation: Violation) {
        self.asked.push(AskedToEnd {
            at,
            ended: None,
            is_stuck: false,
            violation,
        });
    }

    /// Those that had their moment.
    fn due(&mut self, now: Duration) -> Vec<Step> {
        let due = self.asked.iter_mut().filter(|asked| asked.is_due(now));
        due.map(|asked| asked.end(now)).collect()
    }

    /// A violation of a holder that was asked to end before.
    fn escalate(&mut self, now: Duration, violation: &Violation) -> Option<Step> {
        let asked: BTreeSet<_> = (self.asked.iter())
            .flat_map(|asked| asked.violation.processes.iter().copied())
            .collect();
        let new = violation.processes.iter().filter(|id| !asked.contains(id));
        let violation = Violation {
            processes: new.copied().collect(),
            ..violation.clone()
        };
        if violation.processes.is_empty() {
            return None;
        }
        let were_there = violation.processes.iter().all(|id| self.had.contains(id));
        let is_the_same = were_there && now.saturating_sub(self.first) < TOGETHER;
        self.last = now;
        self.ask(now, violation.clone());
        Some(match (&violation.holder, is_the_same) {
            (_, true) => Step::Ask(violation),
            // A user has no control group that could end as a whole.
            (Holder::User(_), false) => Step::End(violation),
            (Holder::Job(_) | Holder::Sluid(_), false) => Step::EndJob(violation),
        })
    }
}

impl AskedToEnd {
    fn is_due(&self, now: Duration) -> bool {
        let pause = if self.is_stuck { SELDOM } else { MOMENT };
        now.saturating_sub(self.at) >= pause
    }

    fn end(&mut self, now: Duration) -> Step {
        self.at = now;
        let ended = *self.ended.get_or_insert(now);
        let was_stuck = self.is_stuck;
        self.is_stuck = now.saturating_sub(ended) >= STUCK;
        let is_users = matches!(self.violation.holder, Holder::User(_));
        if self.is_stuck && !was_stuck && !is_users {
            Step::EndJob(self.violation.clone())
        } else {
            Step::End(self.violation.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enforce::observation::{Claim, Process, Seat, Tenant};
    use crate::enforce::rules::Rule;

    fn id(pid: u32) -> ProcessId {
        ProcessId { pid, began: 1 }
    }

    fn violation(holder: Holder, pids: &[u32]) -> Violation {
        Violation {
            rule: Rule::Seat,
            holder,
            uid: Some(2001),
            gpu: "GPU-0".into(),
            processes: pids.iter().map(|&pid| id(pid)).collect(),
            pids: pids.to_vec(),
            memory: None,
            limit: None,
        }
    }

    fn said(steps: &[Step]) -> Vec<String> {
        let said = |step: &Step| {
            let word = match step {
                Step::Ask(_) => "ask",
                Step::End(_) => "end",
                Step::EndJob(_) => "end job",
            };
            let processes = step.violation().processes.iter();
            let pids: Vec<u32> = processes.map(|it| it.pid).collect();
            format!("{word} {pids:?}")
        };
        steps.iter().map(said).collect()
    }

    /// A look at this millisecond, in which a holder has these processes.
    fn observation(millis: u64, holder: &Holder, pids: &[u32]) -> Observation {
        let process = |&pid: &u32| Process {
            id: id(pid),
            computes: true,
            memory: None,
            busy: 0,
            seat: Seat::None,
            is_excess: false,
            exempt: None,
        };
        let tenant = Tenant {
            holder: holder.clone(),
            since: None,
            uid: None,
            gpu: "GPU-0".into(),
            claim: Claim::Whole,
            is_assigned: None,
            memory: None,
            processes: pids.iter().map(process).collect(),
        };
        Observation {
            at: Duration::from_millis(millis),
            tenants: vec![tenant],
            unattributed: Vec::new(),
        }
    }

    #[test]
    fn who_does_not_end_when_asked_is_ended_a_moment_later() {
        let mut escalation = Escalation::default();
        let violations = [violation(Holder::Job(7), &[1, 2])];
        let mut escalate = |at: u64, there: &[u32]| {
            said(&escalation.escalate(&observation(at, &Holder::Job(7), there), &violations))
        };
        assert_eq!(escalate(0, &[1, 2]), ["ask [1, 2]"]);
        assert_eq!(escalate(100, &[1, 2]), [] as [&str; 0]);
        assert_eq!(escalate(250, &[1, 2]), ["end [1, 2]"]);
        // The kernel cannot end it now.
        assert_eq!(escalate(1000, &[1, 2]), ["end [1, 2]"]);
    }

    #[test]
    fn where_another_process_offends_after_that_the_job_ends() {
        let mut escalation = Escalation::default();
        let mut escalate = |at: u64, holder: Holder, pids: &[u32]| {
            let observation = observation(at, &holder, pids);
            said(&escalation.escalate(&observation, &[violation(holder, pids)]))
        };
        assert_eq!(escalate(0, Holder::Job(7), &[1]), ["ask [1]"]);
        assert_eq!(escalate(10, Holder::User(2002), &[5]), ["ask [5]"]);
        assert_eq!(escalate(2000, Holder::Job(7), &[2]), ["end job [2]"]);
        // Others have nothing to do with it.
        assert_eq!(escalate(2010, Holder::Job(8), &[3]), ["ask [3]"]);
        assert_eq!(escalate(2020, Holder::User(2002), &[6]), ["end [6]"]);
        let much_later = 2 * 3_600_000;
        assert_eq!(escalate(much_later, Holder::Job(7), &[4]), ["ask [4]"]);
    }

    #[test]
    fn a_job_that_slurm_starts_anew_begins_anew() {
        let mut escalation = Escalation::default();
        let job = Holder::Job(7);
        let mut escalate = |at: u64, since: u64, pid: u32| {
            let mut observation = observation(at, &job, &[pid]);
            observation.tenants[0].since =
                Some(SystemTime::UNIX_EPOCH + Duration::from_secs(since));
            let again = escalation.repeated(&observation);
            let steps = said(&escalation.escalate(&observation, &[violation(job.clone(), &[pid])]));
            (again.len(), steps)
        };
        let asks = |pid: u32| vec![format!("ask [{pid}]")];
        assert_eq!(escalate(0, 1000, 1), (0, asks(1)));
        assert_eq!(escalate(60_000, 1060, 2), (0, asks(2)));
        assert_eq!(
            escalate(120_000, 1060, 3),
            (1, vec!["end job [3]".to_owned()])
        );
    }

    #[test]
    fn later_findings_of_the_same_processes_are_one_violation() {
        let mut escalation = Escalation::default();
        let job = Holder::Job(7);
        let mut escalate = |at: u64, pids: &[u32]| {
            let there: &[u32] = if at < 1000 { &[1, 2, 3, 4] } else { &[4] };
            let observation = observation(at, &job, there);
            let violations: Vec<_> = pids
                .iter()
                .map(|&pid| violation(job.clone(), &[pid]))
                .collect();
            let steps = escalation.escalate(&observation, &violations);
            let new = steps.into_iter().filter(|it| !matches!(it, Step::End(_)));
            said(&new.collect::<Vec<_>>())
        };
        assert_eq!(escalate(1, &[1, 2]), ["ask [1]", "ask [2]"]);
        assert_eq!(escalate(501, &[1, 3]), ["ask [3]"]);
        // They were there, and behaved themselves meanwhile.
        assert_eq!(escalate(6000, &[4]), ["end job [4]"]);
    }

    #[test]
    fn who_has_ended_is_not_waited_for() {
        let mut escalation = Escalation::default();
        let job = Holder::Job(7);
        escalation.escalate(&observation(0, &job, &[1]), &[violation(job.clone(), &[1])]);
        assert!(escalation.is_waiting());
        assert_eq!(escalation.escalate(&observation(250, &job, &[]), &[]), []);
        assert!(!escalation.is_waiting());
    }

    #[test]
    fn if_a_process_does_not_end_its_job_is_ended() {
        for (holder, last) in [
            (Holder::Job(7), "end job [1]"),
            (Holder::User(2001), "end [1]"),
        ] {
            let mut escalation = Escalation::default();
            let violations = [violation(holder.clone(), &[1])];
            let mut steps = Vec::new();
            // Two minutes, as long as it is there.
            for at in (0..=120_000).step_by(250) {
                let new = said(&escalation.escalate(&observation(at, &holder, &[1]), &violations));
                steps.extend(new.into_iter().map(|step| (at, step)));
                assert_eq!(escalation.is_waiting(), at < 2250, "{at}");
            }
            let often = steps.iter().filter(|(at, _)| *at < 2250).count();
            assert_eq!(often, 9, "{steps:?}");
            let seldom: Vec<_> = steps[9..]
                .iter()
                .map(|(at, it)| (*at, it.as_str()))
                .collect();
            assert_eq!(seldom, [(2250, last), (62_250, "end [1]")]);
        }
    }
}
