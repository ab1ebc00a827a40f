//! Names of people and of their accounts, as an administrator writes them.

/// Refuses a name that cannot be a login or a Slurm account, such as a full name or a list. Names also go into commands that
/// `softmig config` prints.
pub(crate) fn check(what: &str, name: &str) -> Result<(), String> {
    let is_known = |letter: char| {
        letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-' | '@' | '+' | '\\')
    };
    if !name.is_empty() && !name.starts_with('-') && name.chars().all(is_known) {
        return Ok(());
    }
    let remedy = match what {
        "user" => "write the login name, as 'id -un' shows it",
        "account" => "write one account, as 'sacctmgr show account' lists it",
        _ => "write one name, as Slurm has it",
    };
    Err(format!("{what} = {name:?} is not a valid name; {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_single_words_without_meaning_to_a_shell() {
        for name in [
            "kim",
            "k.im-2",
            "prof_kim",
            "kim@example.org",
            "DOM\\kim",
            "7",
        ] {
            assert_eq!(check("user", name), Ok(()), "{name}");
        }
        for name in [
            "",
            "Prof. Kim",
            "kim,bob",
            "kim; touch x",
            "k'im",
            "$(x)",
            "-kim",
            "Zo\u{eb}",
            "kim\n",
        ] {
            assert!(check("user", name).is_err(), "{name}");
        }
    }
}
