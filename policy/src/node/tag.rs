//! The tag: one word in the job's record that carries its limits from submission to the node.
//!
//! `softmig=1:l40s:1/4:11366:hard`, `softmig=1:whole`, `softmig=1:mixed` or `softmig=1:ask`. The leading number is the form's
//! version, so that during an upgrade an older prolog knows that it cannot read a newer tag.

use crate::node::limits::{Limits, LimitsError, Mode, Share, TypeName, decimal};
use core::fmt;

/// The beginning of every tag.
const KEY: &str = "softmig=";
/// The version written, and the only one read.
const VERSION: &str = "1";

/// The prolog's task for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// The job has whole GPUs: no limits.
    Whole,
    /// The same, and they may be of several types: Slurm names its prolog the GPUs of one type only.
    Mixed,
    /// The job has a slice.
    Slice(Limits),
    /// The job was changed after its submission: slurmctld knows what it got.
    ///
    /// Slurm applies a change field by field, and may refuse it after the field that carries the tag and before the
    /// GPUs; so a change never writes limits here.
    Ask,
}

/// Why a tag cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagError {
    /// Another version of softmig wrote it.
    Version,
    /// Not one of the forms.
    Form,
    /// The figures in it are not valid limits.
    Limits(LimitsError),
}

impl fmt::Display for TagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => f.write_str("the tag is of another softmig version"),
            Self::Form => f.write_str("the tag has not the form softmig=1:..."),
            Self::Limits(error) => write!(f, "the tag's limits are wrong: {error}"),
        }
    }
}

impl From<LimitsError> for TagError {
    fn from(error: LimitsError) -> Self {
        Self::Limits(error)
    }
}

impl Tag {
    /// The tag in a job's `extra` or `comment`; `None` without one.
    ///
    /// ```
    /// use softmig_policy::node::tag::Tag;
    /// let tag = Tag::find("my first run softmig=1:l40s:1/4:11366:hard");
    /// let Some(Ok(Tag::Slice(limits))) = tag else { panic!() };
    /// assert_eq!(limits.memory_mib(), 11366);
    /// ```
    pub fn find(text: &str) -> Option<Result<Self, TagError>> {
        tokens(text).next().map(Self::parse)
    }

    /// Reads one token.
    pub fn parse(token: &str) -> Result<Self, TagError> {
        let body = token.strip_prefix(KEY).ok_or(TagError::Form)?;
        let (version, body) = body.split_once(':').ok_or(TagError::Form)?;
        if version != VERSION {
            return Err(TagError::Version);
        }
        if body == "whole" {
            return Ok(Self::Whole);
        }
        if body == "mixed" {
            return Ok(Self::Mixed);
        }
        if body == "ask" {
            return Ok(Self::Ask);
        }
        let mut fields = body.split(':');
        let mut field = || fields.next().ok_or(TagError::Form);
        let gpu_type = TypeName::new(field()?)?;
        let share = Share::parse(field()?)?;
        let memory = decimal(field()?).ok_or(LimitsError::Memory)?;
        let mode = Mode::parse(field()?)?;
        match fields.next() {
            None => Ok(Self::Slice(Limits::new(
                gpu_type,
                share,
                u64::from(memory),
                mode,
            )?)),
            Some(_) => Err(TagError::Form),
        }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => write!(f, "{KEY}{VERSION}:whole"),
            Self::Mixed => write!(f, "{KEY}{VERSION}:mixed"),
            Self::Ask => write!(f, "{KEY}{VERSION}:ask"),
            Self::Slice(limits) => write!(
                f,
                "{KEY}{VERSION}:{}:{}:{}:{}",
                limits.gpu_type(),
                limits.share(),
                limits.memory_mib(),
                limits.mode()
            ),
        }
    }
}

/// The words of `text` that are tags, readable or not.
pub fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split_ascii_whitespace()
        .filter(|word| word.starts_with(KEY))
}

#[cfg(feature = "std")]
mod text {
    use super::{Tag, tokens};

    /// The most that Slurm keeps in `comment` and `extra`, in bytes.
    pub const FIELD_MAX: usize = 1024;

    /// `text` without any tag, otherwise as the user wrote it.
    pub fn strip(text: &str) -> String {
        let mut kept = String::with_capacity(text.len());
        let mut rest = text;
        // Found by position, so that the user's own spacing stays.
        while let Some(token) = tokens(rest).next() {
            let at = token.as_ptr() as usize - rest.as_ptr() as usize;
            kept.push_str(&rest[..at]);
            rest = &rest[at + token.len()..];
            // The token goes with one of the spaces around it.
            if kept.is_empty() {
                rest = rest.strip_prefix(' ').unwrap_or(rest);
            } else if kept.ends_with(' ') {
                kept.pop();
            }
        }
        kept.push_str(rest);
        kept
    }

    /// The beginning of the word that a client adds to a request that it translated: the request as it was typed
    /// follows. job_submit takes it away like a tag.
    const TYPED: &str = "softmig=typed:";

    /// `text` with the request as it was typed, and without any tag; `text` alone if the request is not one word.
    pub fn put_typed(text: &str, typed: &str) -> String {
        let mut text = strip(text);
        if typed.is_empty() || typed.contains(|letter: char| letter.is_ascii_whitespace()) {
            return text;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text + TYPED + typed
    }

    /// The request as it was typed, where a client says that.
    pub fn typed(text: &str) -> Option<&str> {
        tokens(text).find_map(|token| token.strip_prefix(TYPED))
    }

    impl Tag {
        /// `text` with this tag as its only one, the user's own words shortened where Slurm's field would not hold both.
        ///
        /// ```
        /// use softmig_policy::node::tag::Tag;
        /// assert_eq!(Tag::Whole.put("softmig=1:fake my run"), "my run softmig=1:whole");
        /// ```
        pub fn put(&self, text: &str) -> String {
            let token = self.to_string();
            let mut text = strip(text);
            let room = FIELD_MAX - token.len() - 1;
            if text.len() > room {
                let end = (0..=room).rev().find(|&end| text.is_char_boundary(end));
                text.truncate(end.unwrap_or(0));
            }
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(&token);
            text
        }
    }
}
#[cfg(feature = "std")]
pub use text::{FIELD_MAX, put_typed, strip, typed};

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_are_tags() {
        assert_eq!(Tag::find("xsoftmig=1:whole"), None);
        assert_eq!(Tag::find("a,softmig=1:whole"), None);
        assert_eq!(Tag::find("a\tsoftmig=1:whole"), Some(Ok(Tag::Whole)));
        assert_eq!(Tag::find("softmig=2:whole"), Some(Err(TagError::Version)));
        assert_eq!(Tag::find("softmig="), Some(Err(TagError::Form)));
    }

    #[test]
    fn what_was_typed_travels_in_a_word() {
        let text = put_typed("my run softmig=1:whole", "gpu:l40s.4:1");
        assert_eq!(text, "my run softmig=typed:gpu:l40s.4:1");
        assert_eq!(typed(&text), Some("gpu:l40s.4:1"));
        assert_eq!(strip(&text), "my run");
        assert_eq!(put_typed("", "a b"), "");
        assert_eq!(typed("softmig=1:typed:x"), None);
    }

    #[test]
    fn what_is_no_tag_is_refused() {
        for token in [
            "softmig=1",
            "softmig=1:",
            "softmig=1:WHOLE",
            "softmig=1:l40s:1/4:11366",
            "softmig=1:l40s:1/4:11366:hard:more",
            "softmig=1:l40s:1/4:011366:hard",
            "softmig=1:l40s:1/4:0:hard",
            "softmig=1:l40s:1/4:99999999999:hard",
            "softmig=1:l40s:0/4:11366:hard",
            "softmig=1:4:1/4:11366:hard",
            "softmig=1:l40s:1/4:11366:whole",
        ] {
            assert!(Tag::parse(token).is_err(), "{token}");
        }
    }

    #[test]
    fn the_users_words_stay_as_they_are() {
        assert_eq!(strip("a  b softmig=1:whole c"), "a  b c");
        assert_eq!(strip("softmig=1:whole c"), "c");
        assert_eq!(strip("c softmig=x softmig=y"), "c");
        assert_eq!(strip("softmig=x softmig=y"), "");
        assert_eq!(strip("a\nsoftmig=x\nb"), "a\n\nb");
        assert_eq!(strip("nothing here"), "nothing here");
    }

    #[test]
    fn a_full_field_keeps_the_tag_and_loses_words() {
        let text = "\u{e9}".repeat(FIELD_MAX);
        let put = Tag::Whole.put(&text);
        assert!(put.len() <= FIELD_MAX);
        assert_eq!(Tag::find(&put), Some(Ok(Tag::Whole)));
        assert!(put.starts_with('\u{e9}'));
    }
}
