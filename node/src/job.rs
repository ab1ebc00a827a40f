//! The job, as Slurm describes it in the environment of prolog and epilog.
//!
//! slurmd builds this environment itself; of the job's own variables only those that begin with `SPANK_` are in it. A
//! user can still choose the text of `extra` and `comment`. It is searched for the tag and for nothing else.

use softmig_policy::config::choices::TagField;
use softmig_policy::config::gpu_types::GpuType;
use softmig_policy::node::cgroup::is_sluid;
use softmig_policy::node::job_conf::Pack;
use softmig_policy::node::names::Names;
use softmig_policy::node::tag::{Tag, TagError};
use softmig_policy::slurm::gpu_list::GpuList;
use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroU32;

/// Slurm's number of a job. Every task of an array and every part of a heterogeneous job has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(NonZeroU32);

impl JobId {
    /// Reads a decimal number as Slurm writes it.
    pub fn parse(text: &str) -> Option<Self> {
        // One job must not have two names on disk: no sign, no leading zero.
        let plain = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse().ok()).flatten().map(Self)
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Slurm's other name of a job, which can be the name of its cgroup from 26.05 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sluid(String);

impl Sluid {
    /// A name that the hook takes for a SLUID in a control group's name.
    pub fn parse(text: &str) -> Option<Self> {
        is_sluid(text).then(|| Self(text.to_string()))
    }
}

impl fmt::Display for Sluid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A job about to start, or just ended.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// Its user.
    pub uid: u32,
    /// Its group; root's where Slurm does not say. 22.05.8 says it.
    pub gid: u32,
    /// Its GPUs here; `None` when it has none.
    pub gpus: Option<GpuList>,
    /// How often Slurm restarted it. Slurm knows this from the job's credential, and has none of that left in the
    /// epilog when slurmd was restarted in between.
    pub run: Option<u32>,
    /// When this run of it began, in seconds since 1970. Slurm says so from 23.02 on.
    pub start: Option<u32>,
    /// Its other name.
    pub sluid: Option<Sluid>,
    /// The user's name.
    pub user: Option<String>,
    /// The account.
    pub account: Option<String>,
    /// The partition.
    pub partition: Option<String>,
    /// The reservation that it runs in.
    pub reservation: Option<String>,
    /// This node's name in slurm.conf.
    pub node: String,
    /// Where this node's slurm.conf is.
    pub slurm_conf: Option<OsString>,
    /// The tags that it carries.
    pub tags: Tags,
}

/// The first tag in each of the fields that may carry one: job-submit leaves one, and reading on past one that cannot be
/// read would be guessing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tags {
    /// In `extra`.
    pub extra: Option<Result<Tag, TagError>>,
    /// In `comment`.
    pub comment: Option<Result<Tag, TagError>>,
}

impl Tags {
    /// The tag that counts, if `first` is the field that the policy names.
    pub fn by(self, first: TagField) -> Option<Result<Tag, TagError>> {
        match first {
            TagField::Comment => self.comment.or(self.extra),
            TagField::Extra | TagField::Auto => self.extra.or(self.comment),
        }
    }
}

/// Why an environment describes no job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{variable} is {value:?}: Slurm runs this program as Prolog or Epilog and sets it to a number"
)]
pub struct NoJob {
    variable: &'static str,
    value: String,
}

impl Job {
    /// Its user, account and group, as far as they can be written into a conf.
    pub fn names(&self) -> Names<'_> {
        // Root's group says that Slurm did not say.
        let group = Some(self.gid).filter(|&gid| gid != 0);
        Names::checked(self.user.as_deref(), self.account.as_deref(), group)
    }

    /// The pack that a slice of this type is in.
    pub fn pack_of(&self, gpu: &GpuType) -> Option<Pack> {
        let pack = gpu.pack_in(self.partition.as_deref());
        pack.of(self.account.as_deref(), self.reservation.as_deref())
    }

    /// Reads this process's environment.
    pub fn from_environment() -> Result<Self, NoJob> {
        Self::read(|name| std::env::var_os(name))
    }

    /// Reads an environment.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, NoJob> {
        // A comment may hold any bytes; a tag is ASCII.
        let text = |name: &str| variable(name).map(|text| text.to_string_lossy().into_owned());
        let needed = |variable: &'static str| {
            let value = text(variable).unwrap_or_default();
            (value.clone(), NoJob { variable, value })
        };
        let number = |name: &str| text(name).and_then(|text| text.parse::<u32>().ok());
        let (id, no_id) = needed("SLURM_JOB_ID");
        let (uid, no_uid) = needed("SLURM_JOB_UID");
        let tag = |name: &str| Tag::find(&text(name)?);
        Ok(Self {
            id: JobId::parse(&id).ok_or(no_id)?,
            uid: uid.parse().map_err(|_| no_uid)?,
            gid: number("SLURM_JOB_GID").unwrap_or(0),
            gpus: text("SLURM_JOB_GPUS")
                .filter(|list| !list.trim().is_empty())
                .map(|list| GpuList::parse(&list)),
            run: number("SLURM_JOB_RESTART_COUNT"),
            start: number("SLURM_JOB_START_TIME"),
            sluid: text("SLURM_JOB_SLUID").and_then(|text| Sluid::parse(&text)),
            user: text("SLURM_JOB_USER"),
            account: text("SLURM_JOB_ACCOUNT"),
            partition: text("SLURM_JOB_PARTITION"),
            reservation: text("SLURM_JOB_RESERVATION"),
            node: text("SLURMD_NODENAME").unwrap_or_default(),
            slurm_conf: variable("SLURM_CONF"),
            tags: Tags {
                extra: tag("SLURM_JOB_EXTRA"),
                comment: tag("SLURM_JOB_COMMENT"),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn read(pairs: &[(&str, &str)]) -> Result<Job, NoJob> {
        Job::read(|name| {
            let pair = pairs.iter().find(|(key, _)| *key == name)?;
            Some(pair.1.into())
        })
    }

    const NEEDED: [(&str, &str); 2] = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_UID", "2001")];

    fn with(more: &[(&str, &str)]) -> Job {
        read(&[&NEEDED, more].concat()).unwrap()
    }

    #[test]
    fn a_job_without_gpus_has_none() {
        assert_eq!(with(&[]).gpus, None);
        assert_eq!(with(&[("SLURM_JOB_GPUS", "")]).gpus, None);
        let some = with(&[("SLURM_JOB_GPUS", "0,2")]).gpus;
        assert_eq!(some, Some(GpuList::parse("0,2")));
    }

    #[test]
    fn the_tag_is_read_first_from_the_field_of_the_policy() {
        let whole = "my words softmig=1:whole";
        let slice = "softmig=1:l40s:1/4:11366:hard";
        let tag = |pairs: &[(&str, &str)], first| with(pairs).tags.by(first);
        for first in [TagField::Auto, TagField::Extra, TagField::Comment] {
            assert_eq!(tag(&[("SLURM_JOB_EXTRA", "x")], first), None);
            for field in ["SLURM_JOB_COMMENT", "SLURM_JOB_EXTRA"] {
                assert_eq!(tag(&[(field, whole)], first), Some(Ok(Tag::Whole)));
            }
        }
        let both = [("SLURM_JOB_COMMENT", whole), ("SLURM_JOB_EXTRA", slice)];
        for first in [TagField::Auto, TagField::Extra] {
            assert!(matches!(tag(&both, first), Some(Ok(Tag::Slice(_)))));
        }
        assert_eq!(tag(&both, TagField::Comment), Some(Ok(Tag::Whole)));
        let newer = [
            ("SLURM_JOB_COMMENT", whole),
            ("SLURM_JOB_EXTRA", "softmig=2:x"),
        ];
        assert_eq!(tag(&newer, TagField::Auto), Some(Err(TagError::Version)));
    }

    #[test]
    fn bytes_that_are_no_text_hide_no_tag() {
        let job = Job::read(|name| match name {
            "SLURM_JOB_ID" => Some("7".into()),
            "SLURM_JOB_UID" => Some("0".into()),
            "SLURM_JOB_COMMENT" => Some(OsString::from_vec(b"\xff\xfe softmig=1:whole".to_vec())),
            _ => None,
        });
        assert_eq!(job.unwrap().tags.comment, Some(Ok(Tag::Whole)));
    }

    #[test]
    fn without_a_job_there_is_nothing_to_do() {
        for pairs in [
            &[("SLURM_JOB_UID", "1")][..],
            &[("SLURM_JOB_ID", "7")],
            &[("SLURM_JOB_ID", "07"), ("SLURM_JOB_UID", "1")],
            &[("SLURM_JOB_ID", "0"), ("SLURM_JOB_UID", "1")],
            &[("SLURM_JOB_ID", "../7"), ("SLURM_JOB_UID", "1")],
            &[("SLURM_JOB_ID", "+7"), ("SLURM_JOB_UID", "1")],
        ] {
            assert!(read(pairs).is_err(), "{pairs:?}");
        }
    }

    #[test]
    fn an_alias_is_a_plain_word_and_never_a_number() {
        assert!(Sluid::parse("sEKNKTV3WPV500").is_some());
        for text in [
            "",
            "11",
            "../x",
            "a b",
            "a.conf",
            "a\n",
            "\u{e9}a",
            &"x".repeat(65),
        ] {
            assert_eq!(Sluid::parse(text), None, "{text:?}");
        }
    }
}
