//! A job's user, account and group, in its conf beside the lines that the library reads.

use core::fmt;

use super::job_conf::Lines;

const USER: &str = "SOFTMIG_USER";
const ACCOUNT: &str = "SOFTMIG_ACCOUNT";
const GROUP: &str = "SOFTMIG_GID";

/// The part of a conf that is for people. The library does not read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names<'a> {
    /// The user's name, as Slurm said it.
    pub user: Option<&'a str>,
    /// The account, as Slurm said it.
    pub account: Option<&'a str>,
    /// The number of the user's primary group, as Slurm said it.
    pub group: Option<u32>,
}

impl<'a> Names<'a> {
    /// The names that can be written: others would be taken for something else in a conf, or in what it is shown in.
    pub fn checked(user: Option<&'a str>, account: Option<&'a str>, group: Option<u32>) -> Self {
        const LONGEST: usize = 64;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+@$".contains(&byte);
        let is_plain = |name: &&str| (1..=LONGEST).contains(&name.len()) && name.bytes().all(plain);
        Self {
            user: user.filter(is_plain),
            account: account.filter(is_plain),
            group,
        }
    }

    /// Reads a conf's text. A conf with neither name has none, and so has one that cannot be read.
    pub fn read(text: &'a [u8]) -> Self {
        let lines = core::str::from_utf8(text)
            .ok()
            .and_then(|text| Lines::read(text).ok());
        let value = |key| lines.as_ref()?.value(key).ok()?;
        let group = value(GROUP).and_then(|text| text.parse().ok());
        Self::checked(value(USER), value(ACCOUNT), group)
    }
}

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = [(USER, self.user), (ACCOUNT, self.account)];
        let mut known = lines.iter().filter_map(|(key, name)| Some((key, (*name)?)));
        known.try_for_each(|(key, name)| writeln!(f, "{key}={name}"))?;
        self.group
            .map_or(Ok(()), |group| writeln!(f, "{GROUP}={group}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::job_conf::JobConf;

    const CONF: &str = "SOFTMIG_JOB=8\nSOFTMIG_UID=2001\nSOFTMIG_MODE=whole\nSOFTMIG_GPUS=\n";

    #[test]
    fn names_are_written_beside_the_limits_and_add_no_line() {
        let names = Names::checked(Some("alice"), Some("phys-1"), Some(3001));
        let text = format!("{CONF}{names}");
        assert_eq!(
            JobConf::parse(text.as_bytes()),
            JobConf::parse(CONF.as_bytes())
        );
        assert!(JobConf::parse(CONF.as_bytes()).is_ok());
        assert_eq!(Names::read(text.as_bytes()), names);
        assert_eq!(Names::read(CONF.as_bytes()), Names::default());
        assert_eq!(Names::read(b"garbage"), Names::default());
        for bad in [
            "",
            "a b",
            "a\nSOFTMIG_MODE=whole",
            "a=b",
            "\u{e9}",
            "a\"b",
            &"x".repeat(65),
        ] {
            let names = Names::checked(Some(bad), Some("ok"), None);
            assert_eq!(names.to_string(), "SOFTMIG_ACCOUNT=ok\n", "{bad:?}");
        }
    }
}
