//! From a request and a policy to a verdict.

pub(crate) mod asked;
pub(crate) mod asker;
pub(crate) mod ceilings;
pub(crate) mod convert;
pub(crate) mod decide;
pub(crate) mod entitlement;
pub(crate) mod host;
pub(crate) mod offers;
pub(crate) mod refusal;
pub(crate) mod wanted;
