//! What a decision is made from, and what it says.

use crate::decision::refusal::Refusal;
use crate::decision::submitter::Submitter;
use crate::node::limits::Limits;
use crate::node::tag::Tag;
use crate::slurm::gres::Prefix;
use crate::slurm::job_request::Request;

/// What a decision may depend on besides the request itself.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// How this Slurm marks a GRES, where that is known; otherwise the request's own way is kept.
    pub prefix: Option<Prefix>,
    /// Who asks, and where the job is to run.
    pub submitter: Submitter,
    /// The time, in seconds since 1970.
    pub now: i64,
    /// Whether the job is in Slurm already: then it keeps what it has of the host.
    pub is_change: bool,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing in it is softmig's: Slurm gets it byte for byte as it came.
    Unchanged {
        /// Whether the job may get whole GPUs.
        gpus: bool,
        /// What is said and set besides.
        terms: Terms,
    },
    /// A slice.
    Granted(Box<Grant>),
    /// No.
    Refused(Refusal),
}

/// A granted slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The slice as the user asked for it, without the Slurm version's prefix.
    pub asked: String,
    /// The request as Slurm shall see it. A field that was set and is now `None` is to be cleared.
    pub request: Request,
    /// What the job may take.
    pub limits: Limits,
    /// What is said and set besides.
    pub terms: Terms,
}

/// What is said to a job that passes, and set in its record, besides its GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The QOS that it is to have; `None` leaves what it has.
    pub qos: Option<String>,
    /// The partition that it is to have; `None` leaves what it has.
    pub partition: Option<String>,
    /// Nodes that it is to stay off, as slurm.conf names them.
    pub off_nodes: Option<String>,
    /// A line for its user.
    pub notice: Option<String>,
}

impl Verdict {
    /// What the job's record is to carry to the node.
    pub fn tag(&self) -> Option<Tag> {
        match self {
            Self::Granted(grant) => Some(Tag::Slice(grant.limits)),
            Self::Unchanged { gpus: true, .. } => Some(Tag::Whole),
            Self::Unchanged { gpus: false, .. } | Self::Refused(_) => None,
        }
    }

    /// What is said and set besides; nothing for a refusal.
    pub fn terms(&self) -> Option<&Terms> {
        match self {
            Self::Granted(grant) => Some(&grant.terms),
            Self::Unchanged { terms, .. } => Some(terms),
            Self::Refused(_) => None,
        }
    }
}
