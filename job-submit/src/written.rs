//! The fields of a job that are written, and the form in which a field of each kind is: the functions have the names of the
//! kinds. `None` leaves a field as it is.

use crate::slurm::{NO_VAL, NO_VAL16};
use mlua::Either;

pub(crate) type Written<'a> = Either<&'a str, u64>;

/// The fields to write, each as its place in `job_description::NAMES` and its value.
#[derive(Default)]
pub(crate) struct Changes<'a> {
    at: u64,
    pub(crate) list: Vec<Written<'a>>,
}

impl<'a> Changes<'a> {
    pub(crate) fn add<T: PartialEq>(
        &mut self,
        came: &T,
        now: &'a T,
        written: fn(&'a T) -> Option<Written<'a>>,
    ) {
        self.at += 1;
        if let Some(value) = written(now).filter(|_| came != now) {
            self.list.extend([Either::Right(self.at), value]);
        }
    }
}

/// The empty text clears a field.
pub(crate) fn text(text: &Option<String>) -> Option<Written<'_>> {
    text.as_deref().map(Either::Left)
}

pub(crate) fn number(number: &Option<u32>) -> Option<Written<'_>> {
    Some(Either::Right(number.unwrap_or(NO_VAL).into()))
}

pub(crate) use number as id;
pub(crate) use number as time_limit;

pub(crate) fn short(number: &Option<u32>) -> Option<Written<'_>> {
    Some(Either::Right(number.unwrap_or(NO_VAL16).into()))
}

pub(crate) fn memory(mib: &Option<u64>) -> Option<Written<'_>> {
    mib.map(Either::Right)
}

/// No decision changes `--exclusive`.
pub(crate) fn exclusive(_: &bool) -> Option<Written<'_>> {
    None
}
