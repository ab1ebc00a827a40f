//! A refusal: what was asked, which rule says no, and what to type instead.

use crate::config::policy::Policy;
use crate::config::refusal_code::Code;
use crate::decision::gpu_request::Wanted;
use crate::decision::reason::{May, Reason};
use crate::decision::wording::{self, Words};
use crate::slurm::job_request::Request;
use crate::slurm::plain::is_plain;
use std::fmt;

/// A refusal. It displays as the user reads it.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The request, as the user wrote it; empty where the refusal is about something else.
    asked: String,
    reason: Box<Reason>,
    may: Box<May>,
    site: Option<String>,
}

impl Refusal {
    pub(crate) fn new(asked: impl Into<String>, reason: Reason) -> Self {
        Self {
            asked: asked.into(),
            reason: Box::new(reason),
            may: Box::default(),
            site: None,
        }
    }

    /// Fits the hint to its reader.
    pub(crate) fn fit(mut self, fit: impl FnOnce(&mut Reason) -> May) -> Self {
        *self.may = fit(&mut self.reason);
        self
    }

    /// Adds the line that the site has for this refusal.
    pub fn at(mut self, policy: &Policy) -> Self {
        self.site = policy.message(self.code()).map(str::to_string);
        self
    }

    /// The rule.
    pub fn code(&self) -> Code {
        self.reason.code()
    }

    /// The request and the rule in a sentence.
    pub fn message(&self) -> String {
        self.words().message
    }

    /// The request to type instead.
    pub fn hint(&self) -> String {
        self.words().hint
    }

    fn words(&self) -> Words {
        let Words { message, hint } = wording::explain(&self.reason, &self.asked, &self.may);
        let message = match self.asked.as_str() {
            "" => message,
            asked => format!("{asked}: {message}"),
        };
        Words {
            message: plain(message),
            hint: plain(hint),
        }
    }

    /// The line of the site.
    pub fn site(&self) -> Option<&str> {
        self.site.as_deref()
    }

    /// True if it is about the submitter or the place of the job, and not about the request.
    pub fn is_about_people(&self) -> bool {
        matches!(
            self.code(),
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
        Self::new("", Reason::TagEdit)
    }

    /// The refusal of srun with a figure per GPU: the job could be given it, its step could not.
    ///
    /// `asked` is the slice as the user wrote it, `request` what it became.
    pub fn per_gpu_with_srun(asked: &str, request: &Request, option: &str) -> Self {
        let reason = Reason::PerGpuWithSrun {
            option: option.to_string(),
            mib: request.memory_per_node,
            tasks: request.num_tasks,
            cpus_per_task: request.cpus_per_task,
        };
        Self::new(asked, reason)
    }

    /// The refusal of a step of a slice with an option that makes srun ask for a whole GPU: typed, or set by a variable that sbatch
    /// left in the job's environment.
    pub fn per_gpu_in_step(option: &str, variable: Option<&str>) -> Self {
        let option = option.to_string();
        let variable = variable.map(ToString::to_string);
        Self::new("", Reason::PerGpuInStep { option, variable })
    }

    /// The refusal of a step that asks for something else than its job's slice.
    pub fn step_in_slice(policy: &Policy, request: &Request, shards: u64) -> Self {
        let wanted = Wanted::read(request, Some(policy));
        let asked = wanted.first();
        let kind = asked.as_ref().and_then(|gres| gres.kind);
        let name = kind.map(|kind| kind.rsplit_once('.').map_or(kind, |(name, _)| name));
        let gpu = name.and_then(|name| policy.gpu(name)).or_else(|| {
            let mut all = policy.gpus();
            all.next().filter(|_| all.next().is_none())
        });
        let slice = gpu.and_then(|gpu| gpu.slice(gpu.slice_of_shards(shards)?));
        let slice = slice.map(|slice| slice.slice_request().to_string());
        let asked = asked.map_or_else(String::new, |gres| gres.to_string());
        Self::new(asked, Reason::StepInSlice { shards, slice })
    }

    /// The refusal of a slice request on which softmig failed to decide.
    pub fn internal() -> Self {
        Self::new("", Reason::Failure)
    }
}

/// Refusals are equal if their texts are.
impl PartialEq for Refusal {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Refusal {}

/// Two lines: the refusal, and what to type instead; and the site's own, if it has one.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Words { message, hint } = self.words();
        let code = self.code().as_str();
        write!(f, "softmig: {message} [{code}]\nsoftmig: {hint}")?;
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
