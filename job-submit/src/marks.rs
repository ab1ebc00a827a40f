//! The tag in a job's `extra` or `comment`, which softmig alone writes.

use crate::job_description::JobDescription;
use crate::slurm::Slurm;
use crate::store;
use softmig_policy::config::choices::TagField;
use softmig_policy::node::tag::{self, Tag};

/// A field that the prolog looks into.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    Extra,
    Comment,
}

impl Field {
    pub(crate) const ALL: [Self; 2] = [Self::Extra, Self::Comment];

    /// The field that carries the tag.
    pub(crate) fn chosen(slurm: &Slurm, choice: TagField) -> Self {
        match choice {
            TagField::Extra => Self::Extra,
            TagField::Comment => Self::Comment,
            TagField::Auto if slurm.passes_extra_to_prolog => {
                let (parses_extra, complaint) = store::slurm_parses_extra();
                if let Some(complaint) = complaint {
                    slurm.log_error(&complaint);
                }
                if parses_extra {
                    Self::Comment
                } else {
                    Self::Extra
                }
            }
            TagField::Auto => Self::Comment,
        }
    }

    pub(crate) fn of(self, job: &JobDescription) -> Option<&str> {
        match self {
            Self::Extra => job.extra.as_deref(),
            Self::Comment => job.comment.as_deref(),
        }
    }

    pub(crate) fn set(self, job: &mut JobDescription, text: String) {
        match self {
            Self::Extra => job.extra = Some(text),
            Self::Comment => job.comment = Some(text),
        }
    }
}

/// Whether `text` holds anything that looks like a tag.
pub(crate) fn is_marked(text: &str) -> bool {
    tag::tokens(text).next().is_some()
}

/// Leaves `tag` as the job's only tag, whatever the user wrote.
pub(crate) fn put(job: &mut JobDescription, field: Field, tag: Tag) {
    strip(job);
    let text = tag.put(field.of(job).unwrap_or_default());
    field.set(job, text);
}

/// The request as its user typed it, where the client says that.
pub(crate) fn typed(job: &JobDescription) -> Option<&str> {
    tag::typed(job.comment.as_deref()?)
}

/// Takes away every tag that the user wrote.
pub(crate) fn strip(job: &mut JobDescription) {
    for field in Field::ALL {
        if let Some(text) = field.of(job).filter(|text| is_marked(text)) {
            let text = tag::strip(text);
            field.set(job, text);
        }
    }
}
