//! Whose jobs a command lists: one's own, or for root those of all users, unless the options say otherwise.

use clap::Args;

#[derive(Args, Default)]
pub(crate) struct Whose {
    /// The jobs of this user, instead of your own
    #[arg(long, short = 'u', value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// The jobs of all users
    #[arg(long, short = 'a', conflicts_with = "user")]
    all: bool,
}

impl Whose {
    /// The user whose jobs are listed to the user who types the command; `None` for those of all users.
    pub(crate) fn listed(&self, uid: u32, own: Option<String>) -> Option<String> {
        match (&self.user, self.all || uid == 0) {
            (Some(user), _) => Some(user.clone()),
            (None, true) => None,
            (None, false) => own,
        }
    }
}

/// The name of the user with this number.
pub(crate) fn name(uid: u32) -> Option<String> {
    let user = uzers::get_user_by_uid(uid)?;
    user.name().to_str().map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_see_their_own_jobs_and_root_sees_all() {
        let bobs = Whose {
            user: Some("bob".into()),
            all: false,
        };
        let all = Whose {
            user: None,
            all: true,
        };
        let listed = |whose: &Whose, uid: u32, own: &str| whose.listed(uid, Some(own.into()));
        assert_eq!(
            listed(&Whose::default(), 1000, "alice").as_deref(),
            Some("alice")
        );
        assert_eq!(listed(&all, 1000, "alice"), None);
        assert_eq!(listed(&bobs, 1000, "alice").as_deref(), Some("bob"));
        assert_eq!(listed(&Whose::default(), 0, "root"), None);
        assert_eq!(listed(&bobs, 0, "root").as_deref(), Some("bob"));
    }
}
