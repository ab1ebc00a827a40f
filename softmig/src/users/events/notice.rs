//! Notices to jobs' users: slurmctld passes them on to the job's output.

use crate::ask::cluster::ask;
use crate::output::say;
use softmig_node::events::Event;
use softmig_node::node::Node;
use softmig_node::slurmctld::Commands;
use softmig_policy::config::report::Notice;
use softmig_usage::summary::Size;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A user is told of the same event of a job on a GPU no more often.
const SILENCE: Duration = Duration::from_secs(3600);

/// The job, the kind and the GPU.
type Key = (u32, Notice, String);

/// Tells users of events.
#[derive(Debug)]
pub(super) struct Notifier {
    node: Node,
    commands: Commands,
    told: BTreeMap<Key, Instant>,
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
        let Some((key, words)) = words(event) else {
            return;
        };
        self.told.retain(|_, at| at.elapsed() < SILENCE);
        let is_wanted = match self.node.policy() {
            Ok(policy) => policy.report.notices.contains(&key.1),
            Err(error) => {
                say::error_line(&format!("softmig events: no user is told: {error}"));
                false
            }
        };
        if !is_wanted || self.told.contains_key(&key) {
            return;
        }
        let id = key.0.to_string();
        match self.commands.answer("scontrol", &["notify", &id, &words]) {
            Ok(_) => drop(self.told.insert(key, Instant::now())),
            Err(error) => say::error_line(&format!(
                "softmig events: the user of job {id} is not told: scontrol notify: {error}"
            )),
        }
    }
}

/// A notice. Its words have the monitor's figures and the names of GPU and node, and no text of users.
fn words(event: &Event) -> Option<(Key, String)> {
    let (job, gpu, node) = (event.job?, event.gpu.clone()?, &event.node);
    let figure = |key: &str| event.details.get(key)?.as_f64();
    let bytes = |key: &str| event.details.get(key)?.as_u64().map(Size);
    Some(match event.event.as_str() {
        "idle" => {
            let minutes = (figure("idle_seconds")? / 60.0).floor();
            let words = format!(
                "softmig: this job has not used {gpu} on {node} for {minutes} min; end the job if it needs the GPU no more"
            );
            ((job, Notice::Idle, gpu), words)
        }
        "memory" => {
            let (held, limit) = (bytes("memory_bytes")?, bytes("limit_bytes")?);
            let words = format!(
                "softmig: this job holds {held} of the {limit} that it may have on {gpu} on {node}"
            );
            ((job, Notice::Memory, gpu), words)
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
                gpu: Some("GPU-1".into()),
                node: "gpu01".into(),
                ..event
            })
        };
        let idle = Event::new("idle").with("idle_seconds", 1815.2);
        let memory = Event::new("memory")
            .with("memory_bytes", 8_493_465_600_u64)
            .with("limit_bytes", 11_918_114_816_u64);
        let (key, text) = told(idle.clone()).unwrap();
        assert_eq!(key, (7, Notice::Idle, "GPU-1".into()));
        assert_eq!(
            text,
            "softmig: this job has not used GPU-1 on gpu01 for 30 min; end the job if it needs the GPU no more"
        );
        let (key, text) = told(memory).unwrap();
        assert_eq!(key.1, Notice::Memory);
        assert_eq!(
            text,
            "softmig: this job holds 7.9 GiB of the 11.1 GiB that it may have on GPU-1 on gpu01"
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
