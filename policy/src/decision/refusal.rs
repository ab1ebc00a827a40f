//! Refusals: what was asked, which rule says no, and what to type instead.

use crate::config::policy::Policy;
use crate::config::refusal_code::Code;
use crate::slurm::job_request::Request;
use crate::slurm::plain::is_plain;
use std::fmt;

/// A refusal as the user reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rule.
    pub code: Code,
    /// The request and the rule in a sentence.
    pub message: String,
    /// What to type instead.
    pub hint: String,
    /// What the site says besides.
    pub site: Option<String>,
}

impl Refusal {
    pub(crate) fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code,
            message: plain(message.into()),
            hint: plain(hint.into()),
            site: None,
        }
    }

    /// The same with the site's own line.
    pub fn at(mut self, policy: &Policy) -> Self {
        self.site = policy.message(self.code).map(str::to_string);
        self
    }

    /// Whether it is about who asks, or where the job is to run, and not about what is asked for.
    pub fn is_about_people(&self) -> bool {
        matches!(
            self.code,
            Code::GateNoReservation
                | Code::GateReservation
                | Code::LimitJob
                | Code::LimitQos
                | Code::WholeGpuClass
                | Code::Reserved
        )
    }

    /// The refusal of an edit of softmig's own mark.
    pub fn tag_edit() -> Self {
        Self::new(
            Code::TagEdit,
            "the word softmig=... in a job's comment or extra belongs to softmig and cannot be set or changed",
            "leave that word out; to change the slice itself: scontrol update jobid=JOB gres=gpu:TYPE.SIZE:1",
        )
    }

    /// The refusal of srun with a figure per GPU: the job could be given it, its step could not.
    ///
    /// `asked` is the slice as the user wrote it, `request` what it became.
    pub fn per_gpu_with_srun(asked: &str, request: &Request, option: &str) -> Self {
        let mut instead = Vec::new();
        if let Some(mib) = request.memory_per_node {
            instead.push(format!("--mem={mib}M"));
        }
        if let Some(tasks) = request.num_tasks {
            instead.push(format!("--ntasks={tasks}"));
        }
        if let Some(cpus) = request.cpus_per_task {
            instead.push(format!("--cpus-per-task={cpus}"));
        }
        Self::new(
            Code::SliceOption,
            format!("{asked}: srun cannot combine --{option} with a slice"),
            format!("use srun --gres={asked} {}", instead.join(" ")),
        )
    }

    /// The refusal of a step whose job's environment makes srun ask for a whole GPU.
    pub fn per_gpu_in_step(variable: &str) -> Self {
        Self::new(
            Code::SliceOption,
            format!(
                "{variable} in this job's environment makes srun ask for a whole GPU, and the job has a slice"
            ),
            format!(
                "put this line before srun: unset {variable}; or submit the job with --mem, --ntasks and --cpus-per-task"
            ),
        )
    }

    /// The refusal of a slice request that could not be looked at, because something in softmig itself failed.
    pub fn internal() -> Self {
        Self::new(
            Code::PolicyUnreadable,
            "softmig could not decide on this request for part of a GPU",
            "ask your administrator to look into slurmctld's log, or ask for a whole GPU, for example --gres=gpu:1",
        )
    }
}

/// Two lines: the refusal, and what to type instead; and the site's own, if it has one. The same everywhere a user can see one.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "softmig: {} [{}]\nsoftmig: {}",
            self.message,
            self.code.as_str(),
            self.hint
        )?;
        match &self.site {
            Some(site) => write!(f, "\nsoftmig: {site}"),
            None => Ok(()),
        }
    }
}

/// Plain ASCII on one line, of bearable length: part of it comes from the user and goes to terminals and logs.
fn plain(text: String) -> String {
    const LONGEST: usize = 500;
    if text.len() <= LONGEST && text.chars().all(is_plain) {
        return text;
    }
    let mut short: String = text
        .chars()
        .take(LONGEST)
        .map(|letter| if is_plain(letter) { letter } else { '?' })
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        short.push_str("...");
    }
    short
}
