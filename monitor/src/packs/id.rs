//! Which pack a job is in.

use softmig_policy::node::job_conf::{JobConf, Pack};
use std::fmt;

/// A pack on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PackId {
    /// The jobs of this user.
    User(u32),
}

/// As folders are named.
impl fmt::Display for PackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "uid-{uid}"),
        }
    }
}

impl PackId {
    /// That of a job with this conf; `None` for one without limits, too.
    pub fn of(conf: &JobConf) -> Option<Self> {
        conf.limits?;
        conf.pack.map(|Pack::User| Self::User(conf.uid))
    }

    /// Reads that name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let uid = name.strip_prefix("uid-")?;
        let uid = uid.parse().ok().map(Self::User)?;
        (uid.to_string() == name).then_some(uid)
    }

    /// The user that reaches its server.
    pub(super) fn user(self) -> u32 {
        match self {
            Self::User(uid) => uid,
        }
    }
}
