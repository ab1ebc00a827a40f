//! Which pack a job is in.

use softmig_policy::node::job_conf::{JobConf, Pack};
use std::fmt;

/// A pack on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PackId {
    /// The jobs of this user.
    User(u32),
    /// Those of this account, by [`Pack::number`].
    Account(u64),
    /// Those in this reservation.
    Reservation(u64),
}

/// As folders are named.
impl fmt::Display for PackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::User(uid) => write!(f, "uid-{uid}"),
            Self::Account(number) => write!(f, "{}", Pack::Account(number)),
            Self::Reservation(number) => write!(f, "{}", Pack::Reservation(number)),
        }
    }
}

impl PackId {
    /// That of a job with this conf; `None` for one without limits, too.
    pub fn of(conf: &JobConf) -> Option<Self> {
        conf.limits?;
        conf.pack.map(|pack| match pack {
            Pack::User => Self::User(conf.uid),
            Pack::Account(number) => Self::Account(number),
            Pack::Reservation(number) => Self::Reservation(number),
        })
    }

    /// Whether jobs of several users may be in it.
    pub fn is_shared(self) -> bool {
        !matches!(self, Self::User(_))
    }
}
