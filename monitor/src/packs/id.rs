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

/// As the figures name it.
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

    /// The name of its servers' folders, without their number. The path of a socket there has 107 bytes at most, so it is short.
    pub fn folder(self) -> String {
        match self {
            Self::User(uid) => format!("uid-{uid}"),
            Self::Account(number) => format!("a-{number:016x}"),
            Self::Reservation(number) => format!("r-{number:016x}"),
        }
    }

    /// Whether jobs of several users may be in it.
    pub fn is_shared(self) -> bool {
        !matches!(self, Self::User(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_in_the_folder_of_a_server_have_room_for_their_path() {
        let gpu = "GPU-50f7316a-0001-4000-8000-0000000000ff";
        let most = u64::MAX;
        let packs = [
            PackId::User(u32::MAX),
            PackId::Account(most),
            PackId::Reservation(most),
        ];
        for pack in packs {
            // The longest name that NVIDIA's control program has there.
            let path = format!(
                "/var/run/softmig/packs/{gpu}/{}-99999/control_privileged",
                pack.folder()
            );
            assert!(path.len() <= 107, "{path}");
        }
    }
}
