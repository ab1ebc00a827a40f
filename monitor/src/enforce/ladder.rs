//! The steps against offenders, one after the other: a signal that asks them to end, one that does not, and all of the job
//! when another of its processes offends after that.
//!
//! Nothing here reads a clock or sends a signal.

use crate::enforce::look::{Holder, Look, ProcessId};
use crate::enforce::rules::Offence;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

/// The time that a process has to end by itself.
pub const MOMENT: Duration = Duration::from_millis(250);

/// A process that was ended and is still there after this time does not end by that: a debugger or a device holds it.
const STUCK: Duration = Duration::from_secs(2);

/// How often one that is stuck is ended again.
const SELDOM: Duration = Duration::from_secs(60);

/// Findings within this time are one offence if their processes were there at its beginning: rules differ in when they see it.
const TOGETHER: Duration = Duration::from_secs(5);

/// A holder without an offence for this time begins anew.
const FORGIVEN: Duration = Duration::from_secs(3600);

/// The step to take now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask these to end (SIGTERM).
    Ask(Offence),
    /// End these (SIGKILL).
    End(Offence),
    /// End all processes of the job: it was asked before, or some do not end. One that traces them may be among the others.
    EndJob(Offence),
}

impl Step {
    /// The offence that it is about.
    pub fn offence(&self) -> &Offence {
        match self {
            Self::Ask(offence) | Self::End(offence) | Self::EndJob(offence) => offence,
        }
    }
}

/// The processes that were asked to end, and when.
#[derive(Debug, Default)]
pub struct Ladder {
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
    offence: Offence,
}

impl Ladder {
    /// Whose processes were asked to end before a look. Jobs that Slurm has started anew since then are forgotten.
    pub fn repeated(&mut self, look: &Look) -> BTreeSet<Holder> {
        for tenant in look.tenants.iter().filter(|it| it.since.is_some()) {
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

    /// Takes the offences of a look that are to have an end.
    pub fn climb(&mut self, look: &Look, offences: &[Offence]) -> Vec<Step> {
        let now = look.at;
        let there: BTreeSet<ProcessId> = (look.tenants.iter())
            .flat_map(|tenant| tenant.processes.iter().map(|process| process.id))
            .collect();
        self.holders.retain(|_, record| {
            // One that is not there has ended, or is on no GPU any more.
            record.forget(|id| there.contains(&id));
            now.saturating_sub(record.last) < FORGIVEN
        });
        let records = self.holders.values_mut();
        let mut steps: Vec<Step> = records.flat_map(|record| record.due(now)).collect();
        for offence in offences {
            match self.holders.get_mut(&offence.holder) {
                None => {
                    let own = look.tenants.iter().filter(|it| it.holder == offence.holder);
                    let mut record = Record {
                        since: own.clone().find_map(|tenant| tenant.since),
                        first: now,
                        had: own
                            .flat_map(|it| it.processes.iter().map(|process| process.id))
                            .collect(),
                        last: now,
                        asked: Vec::new(),
                    };
                    record.ask(now, offence.clone());
                    self.holders.insert(offence.holder.clone(), record);
                    steps.push(Step::Ask(offence.clone()));
                }
                Some(record) => steps.extend(record.climb(now, offence)),
            }
        }
        steps
    }
}

impl Record {
    fn forget(&mut self, there: impl Fn(ProcessId) -> bool) {
        for asked in &mut self.asked {
            asked.offence.processes.retain(|&id| there(id));
        }
        self.asked
            .retain(|asked| !asked.offence.processes.is_empty());
    }

    fn ask(&mut self, at: Duration, offence: Offence) {
        self.asked.push(AskedToEnd {
            at,
            ended: None,
            is_stuck: false,
            offence,
        });
    }

    /// Those that had their moment.
    fn due(&mut self, now: Duration) -> Vec<Step> {
        let due = self.asked.iter_mut().filter(|asked| asked.is_due(now));
        due.map(|asked| asked.end(now)).collect()
    }

    /// An offence of a holder that was asked to end before.
    fn climb(&mut self, now: Duration, offence: &Offence) -> Option<Step> {
        let asked: BTreeSet<_> = (self.asked.iter())
            .flat_map(|asked| asked.offence.processes.iter().copied())
            .collect();
        let new = offence.processes.iter().filter(|id| !asked.contains(id));
        let offence = Offence {
            processes: new.copied().collect(),
            ..offence.clone()
        };
        if offence.processes.is_empty() {
            return None;
        }
        let were_there = offence.processes.iter().all(|id| self.had.contains(id));
        let is_the_same = were_there && now.saturating_sub(self.first) < TOGETHER;
        self.last = now;
        self.ask(now, offence.clone());
        Some(match (&offence.holder, is_the_same) {
            (_, true) => Step::Ask(offence),
            // A user has no control group that could end as a whole.
            (Holder::User(_), false) => Step::End(offence),
            (Holder::Job(_) | Holder::Sluid(_), false) => Step::EndJob(offence),
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
        let is_users = matches!(self.offence.holder, Holder::User(_));
        if self.is_stuck && !was_stuck && !is_users {
            Step::EndJob(self.offence.clone())
        } else {
            Step::End(self.offence.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enforce::look::{Claim, Process, Seat, Tenant};
    use crate::enforce::rules::Rule;

    fn id(pid: u32) -> ProcessId {
        ProcessId { pid, began: 1 }
    }

    fn offence(holder: Holder, pids: &[u32]) -> Offence {
        Offence {
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
            let processes = step.offence().processes.iter();
            let pids: Vec<u32> = processes.map(|it| it.pid).collect();
            format!("{word} {pids:?}")
        };
        steps.iter().map(said).collect()
    }

    /// A look at this millisecond, in which a holder has these processes.
    fn look(millis: u64, holder: &Holder, pids: &[u32]) -> Look {
        let process = |&pid: &u32| Process {
            id: id(pid),
            computes: true,
            memory: None,
            busy: 0,
            seat: Seat::None,
            spared: None,
        };
        let tenant = Tenant {
            holder: holder.clone(),
            since: None,
            uid: None,
            gpu: "GPU-0".into(),
            claim: Claim::Whole,
            is_assigned: None,
            memory: None,
            charged: None,
            processes: pids.iter().map(process).collect(),
        };
        Look {
            at: Duration::from_millis(millis),
            tenants: vec![tenant],
            strays: Vec::new(),
        }
    }

    #[test]
    fn who_does_not_end_when_asked_is_ended_a_moment_later() {
        let mut ladder = Ladder::default();
        let offences = [offence(Holder::Job(7), &[1, 2])];
        let mut climb = |at: u64, there: &[u32]| {
            said(&ladder.climb(&look(at, &Holder::Job(7), there), &offences))
        };
        assert_eq!(climb(0, &[1, 2]), ["ask [1, 2]"]);
        assert_eq!(climb(100, &[1, 2]), [] as [&str; 0]);
        assert_eq!(climb(250, &[1, 2]), ["end [1, 2]"]);
        // The kernel cannot end it now.
        assert_eq!(climb(1000, &[1, 2]), ["end [1, 2]"]);
    }

    #[test]
    fn where_another_process_offends_after_that_the_job_ends() {
        let mut ladder = Ladder::default();
        let mut climb = |at: u64, holder: Holder, pids: &[u32]| {
            let look = look(at, &holder, pids);
            said(&ladder.climb(&look, &[offence(holder, pids)]))
        };
        assert_eq!(climb(0, Holder::Job(7), &[1]), ["ask [1]"]);
        assert_eq!(climb(10, Holder::User(2002), &[5]), ["ask [5]"]);
        assert_eq!(climb(2000, Holder::Job(7), &[2]), ["end job [2]"]);
        // Others have nothing to do with it.
        assert_eq!(climb(2010, Holder::Job(8), &[3]), ["ask [3]"]);
        assert_eq!(climb(2020, Holder::User(2002), &[6]), ["end [6]"]);
        let much_later = 2 * 3_600_000;
        assert_eq!(climb(much_later, Holder::Job(7), &[4]), ["ask [4]"]);
    }

    #[test]
    fn a_job_that_slurm_starts_anew_begins_anew() {
        let mut ladder = Ladder::default();
        let job = Holder::Job(7);
        let mut climb = |at: u64, since: u64, pid: u32| {
            let mut look = look(at, &job, &[pid]);
            look.tenants[0].since = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(since));
            let again = ladder.repeated(&look);
            let steps = said(&ladder.climb(&look, &[offence(job.clone(), &[pid])]));
            (again.len(), steps)
        };
        let asks = |pid: u32| vec![format!("ask [{pid}]")];
        assert_eq!(climb(0, 1000, 1), (0, asks(1)));
        assert_eq!(climb(60_000, 1060, 2), (0, asks(2)));
        assert_eq!(climb(120_000, 1060, 3), (1, vec!["end job [3]".to_owned()]));
    }

    #[test]
    fn what_is_found_soon_after_of_processes_that_were_there_is_the_same_offence() {
        let mut ladder = Ladder::default();
        let job = Holder::Job(7);
        let mut climb = |at: u64, pids: &[u32]| {
            let there: &[u32] = if at < 1000 { &[1, 2, 3, 4] } else { &[4] };
            let look = look(at, &job, there);
            let offences: Vec<_> = pids
                .iter()
                .map(|&pid| offence(job.clone(), &[pid]))
                .collect();
            let steps = ladder.climb(&look, &offences);
            let new = steps.into_iter().filter(|it| !matches!(it, Step::End(_)));
            said(&new.collect::<Vec<_>>())
        };
        assert_eq!(climb(1, &[1, 2]), ["ask [1]", "ask [2]"]);
        assert_eq!(climb(501, &[1, 3]), ["ask [3]"]);
        // They were there, and behaved themselves meanwhile.
        assert_eq!(climb(6000, &[4]), ["end job [4]"]);
    }

    #[test]
    fn who_has_ended_is_not_waited_for() {
        let mut ladder = Ladder::default();
        let job = Holder::Job(7);
        ladder.climb(&look(0, &job, &[1]), &[offence(job.clone(), &[1])]);
        assert!(ladder.is_waiting());
        assert_eq!(ladder.climb(&look(250, &job, &[]), &[]), []);
        assert!(!ladder.is_waiting());
    }

    #[test]
    fn where_one_does_not_end_the_job_ends_and_it_is_then_ended_seldom() {
        for (holder, last) in [
            (Holder::Job(7), "end job [1]"),
            (Holder::User(2001), "end [1]"),
        ] {
            let mut ladder = Ladder::default();
            let offences = [offence(holder.clone(), &[1])];
            let mut steps = Vec::new();
            // Two minutes, as long as it is there.
            for at in (0..=120_000).step_by(250) {
                let new = said(&ladder.climb(&look(at, &holder, &[1]), &offences));
                steps.extend(new.into_iter().map(|step| (at, step)));
                assert_eq!(ladder.is_waiting(), at < 2250, "{at}");
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
