//! The submitter of a job, and the place where the job will run.

use crate::config::classes::{ClassLimits, Unknown};
use crate::config::policy::Policy;
use crate::config::reservable::Holder;

/// A fact that may not be known here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MaybeKnown {
    /// Not known here. slurmctld knows it, and decides by the rules that depend on it.
    #[default]
    Unknown,
    /// The job or user has none.
    Missing,
    /// It is this.
    Is(String),
}

impl MaybeKnown {
    /// The fact for a caller that knows all facts: no text is [`Self::Missing`].
    pub fn known(text: Option<String>) -> Self {
        match text.filter(|text| !text.is_empty()) {
            Some(text) => Self::Is(text),
            None => Self::Missing,
        }
    }

    /// The fact for a caller that sees only what was typed: no text means that it is not known.
    pub fn typed(text: Option<String>) -> Self {
        match text.filter(|text| !text.is_empty()) {
            Some(text) => Self::Is(text),
            None => Self::Unknown,
        }
    }

    fn get(&self) -> Result<Option<&str>, Unknown> {
        match self {
            Self::Unknown => Err(Unknown),
            Self::Missing => Ok(None),
            Self::Is(text) => Ok(Some(text)),
        }
    }
}

/// The submitter of a job, and the place where the job will run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Submitter {
    /// The user's name.
    pub user: Option<String>,
    /// The number of the user's primary group.
    pub group: Option<u32>,
    /// The Slurm account that the job will be booked on.
    pub account: MaybeKnown,
    /// True if the user typed that account and it is not their default one: Slurm checks only later that it is theirs.
    pub is_account_unchecked: bool,
    /// The job's partition, or several with commas between.
    pub partition: MaybeKnown,
    /// True if the user named that partition; otherwise it is Slurm's default.
    pub named_partition: bool,
    /// The job's reservation, or several with commas between.
    pub reservation: Option<String>,
    /// The QOS that the user named.
    pub qos: Option<String>,
    /// The QOS that the job has already.
    pub qos_now: Option<String>,
    /// The job's time limit in minutes, where the user gave one.
    pub time_limit: Option<u32>,
    /// True if the job has a script; otherwise a user waits for it.
    pub batch: bool,
    /// True if no node of the job's partitions has GPUs, so that an exclusive job gets none.
    pub without_gpus: bool,
    /// True if no class or gate applies: an administrator changes the job of a user, or a step takes its part of a job that
    /// was decided on before.
    pub is_exempt: bool,
}

impl Submitter {
    /// Its class limits. `Err` if they depend on a fact that is not known here.
    pub(crate) fn standing<'p>(
        &self,
        policy: &'p Policy,
    ) -> Result<Option<&'p ClassLimits>, Unknown> {
        policy.standing(self.user.as_deref(), self.account(), self.group)
    }

    /// True if it is this holder of a GPU; `None` if that is not known here.
    pub fn is(&self, holder: &Holder) -> Option<bool> {
        match holder {
            Holder::User(name) => Some(self.user.as_ref() == Some(name)),
            Holder::Account(name) => {
                let account = self.account().ok()?;
                Some(account.is_some_and(|own| own.eq_ignore_ascii_case(name)))
            }
        }
    }

    pub(crate) fn account(&self) -> Result<Option<&str>, Unknown> {
        self.account.get()
    }

    pub(crate) fn partitions(&self) -> Result<Option<&str>, Unknown> {
        self.partition.get()
    }

    pub(crate) fn reservations(&self) -> Option<&str> {
        self.reservation
            .as_deref()
            .filter(|names| !names.is_empty())
    }
}
