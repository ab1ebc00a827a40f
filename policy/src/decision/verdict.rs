//! The input of a decision besides the request, and its result.

use crate::decision::refusal::Refusal;
use crate::decision::submitter::Submitter;
use crate::node::limits::Limits;
use crate::node::size::Bytes;
use crate::node::tag::Tag;
use crate::slurm::gres::Prefix;
use crate::slurm::job_request::Request;

/// The facts that a decision may depend on besides the request.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The prefix of a GRES in this Slurm; `None` keeps the request's own.
    pub prefix: Option<Prefix>,
    /// The submitter, and the place where the job will run.
    pub submitter: Submitter,
    /// The time, in seconds since 1970.
    pub now: i64,
    /// True if Slurm has the job already: then it keeps its CPUs and memory.
    pub is_change: bool,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request has no slice: Slurm gets it byte for byte as it came.
    Unchanged {
        /// The tag of a job that may get whole GPUs.
        tag: Option<Tag>,
        /// The terms of the job.
        terms: Terms,
    },
    /// A slice.
    Granted(Box<Grant>),
    /// A refusal.
    Refused(Refusal),
}

/// A granted slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The slice as the user asked for it, without the Slurm version's prefix.
    pub asked: String,
    /// The least memory, where the user asked by memory.
    pub memory: Option<Bytes>,
    /// The request for Slurm. A field that was set and is now `None` is to be cleared.
    pub request: Request,
    /// The limits of the job.
    pub limits: Limits,
    /// The terms of the job.
    pub terms: Terms,
}

/// The terms of a job that passes: a notice for its user, and fields of its record besides its GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The QOS to set; `None` leaves it as it is.
    pub qos: Option<String>,
    /// The partition to set; `None` leaves it as it is.
    pub partition: Option<String>,
    /// Nodes to exclude, as slurm.conf names them.
    pub off_nodes: Option<String>,
    /// A line for its user.
    pub notice: Option<String>,
}

impl Verdict {
    /// The tag that the job's record carries to the node.
    pub fn tag(&self) -> Option<Tag> {
        match self {
            Self::Granted(grant) => Some(Tag::Slice(grant.limits)),
            Self::Unchanged { tag, .. } => *tag,
            Self::Refused(_) => None,
        }
    }

    /// The terms of the job; `None` for a refusal.
    pub fn terms(&self) -> Option<&Terms> {
        match self {
            Self::Granted(grant) => Some(&grant.terms),
            Self::Unchanged { terms, .. } => Some(terms),
            Self::Refused(_) => None,
        }
    }
}
