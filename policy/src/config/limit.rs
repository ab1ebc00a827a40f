//! A number of policy.toml that may also be "unlimited".

use serde::de::{self, Deserialize, Deserializer, Visitor};
use std::fmt;

/// A number, or no limit.
///
/// "unlimited" has to be written: a key that is missing never means it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) Option<u64>);

impl From<Limit> for Option<u64> {
    fn from(limit: Limit) -> Self {
        limit.0
    }
}

const UNLIMITED: &str = "unlimited";

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Limit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a number from 0 up, or \"{UNLIMITED}\"")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Limit, E> {
                let number = u64::try_from(value);
                let number =
                    number.map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self));
                Ok(Limit(Some(number?)))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Limit, E> {
                match value {
                    UNLIMITED => Ok(Limit(None)),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(Number)
    }
}
