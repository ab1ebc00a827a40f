//! Facts that may not have been looked at.

/// Something that was looked at, or why it could not be.
pub(crate) type Seen<T> = Result<T, String>;
