//! Notices to jobs' users: slurmctld passes them on to the job's output.

use crate::cluster::ask;
use crate::say;
use softmig_node::events::Event;
use softmig_node::node::Node;
use softmig_node::slurmctld::Commands;
use softmig_policy::config::report::Notice;
use softmig_usage::summary::Size;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A user is told of the same event of a job no more often.
const SILENCE: Duration = Duration::from_secs(3600);

/// Tells users of events.
#[derive(Debug)]
pub(super) struct Notifier {
    node: Node,
    commands: Commands,
    told: BTreeMap<(u32, Notice), Instant>,
}

impl Notifier {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            node: Node::this_machine(),
            commands: ask::commands()?,
            told: BTreeMap::new(),
        })
    }

    /// Tells the job's user, if the policy wants it now.
    pub(super) fn tell(&mut self, event: &Event) {
        let Some((job, notice, words)) = words(event) else {
            return;
        };
        self.told.retain(|_, at| at.elapsed() < SILENCE);
        let is_wanted = match self.node.policy() {
            Ok(policy) => policy.report.notices.contains(&notice),
            Err(error) => {
                say::error_line(&format!("softmig events: no user is told: {error}"));
                false
            }
        };
        if !is_wanted || self.told.contains_key(&(job, notice)) {
            return;
        }
        self.told.insert((job, notice), Instant::now());
        let id = job.to_string();
        if let Err(error) = self.commands.answer("scontrol", &["notify", &id, &words]) {
            say::error_line(&format!(
                "softmig events: the user of job {job} is not told: scontrol notify: {error}"
            ));
        }
    }
}

/// The job, the kind of notice and its words. They have numbers of the monitor's and no text of users.
fn words(event: &Event) -> Option<(u32, Notice, String)> {
    let job = event.job?;
    let figure = |key: &str| event.details.get(key)?.as_f64();
    let bytes = |key: &str| event.details.get(key)?.as_u64().map(Size);
    Some(match event.event.as_str() {
        "idle" => {
            let minutes = (figure("idle_seconds")? / 60.0).floor();
            let words = format!(
                "softmig: this job has not used its GPU for {minutes} min; end it with 'scancel {job}' if it needs none"
            );
            (job, Notice::Idle, words)
        }
        "memory" => {
            let (held, limit) = (bytes("memory_bytes")?, bytes("limit_bytes")?);
            let words = format!(
                "softmig: this job holds {held} of the {limit} of its GPU memory; allocations beyond that are refused"
            );
            (job, Notice::Memory, words)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_says_the_fact_and_what_to_do() {
        let told = |event: Event| {
            words(&Event {
                job: Some(7),
                ..event
            })
        };
        let idle = Event::new("idle").with("idle_seconds", 1815.2);
        let memory = Event::new("memory").with("memory_bytes", 8_493_465_600_u64);
        let memory = memory.with("limit_bytes", 11_918_114_816_u64);
        let (_, kind, text) = told(idle.clone()).unwrap();
        assert_eq!(kind, Notice::Idle);
        assert_eq!(
            text,
            "softmig: this job has not used its GPU for 30 min; end it with 'scancel 7' if it needs none"
        );
        let (_, kind, text) = told(memory).unwrap();
        assert_eq!(kind, Notice::Memory);
        assert_eq!(
            text,
            "softmig: this job holds 7.9 GiB of the 11.1 GiB of its GPU memory; allocations beyond that are refused"
        );
        for other in [
            Event::new("start"),
            Event::new("idle"),
            Event::new("memory"),
        ] {
            assert_eq!(told(other), None);
        }
        assert_eq!(words(&idle), None);
    }
}
