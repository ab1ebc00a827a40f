//! The settings of slurm.conf that submission looks at: where a tag can travel, and where slurmctld keeps its state.

/// Whether `SchedulerParameters` has `extra_constraints`: then Slurm reads a job's `extra` as an expression, and it
/// cannot carry text.
///
/// Looks at this file alone, not at those that it includes; `[tag] field` in policy.toml says it for those.
///
/// ```
/// use softmig_policy::slurm::conf::parses_extra;
/// assert!(parses_extra("SchedulerParameters=bf_interval=1,extra_constraints\n"));
/// ```
pub fn parses_extra(slurm_conf: &str) -> bool {
    values(slurm_conf, "SchedulerParameters")
        .iter()
        .flat_map(|value| value.split(','))
        .any(|word| word.trim().eq_ignore_ascii_case("extra_constraints"))
}

/// The folder in which slurmctld keeps what it has to know after a restart, where this file says it.
///
/// ```
/// use softmig_policy::slurm::conf::state_save_location;
/// let text = "StateSaveLocation=/var/spool/slurmctld # shared\n";
/// assert_eq!(state_save_location(text).as_deref(), Some("/var/spool/slurmctld"));
/// ```
pub fn state_save_location(slurm_conf: &str) -> Option<String> {
    let folder = values(slurm_conf, "StateSaveLocation").pop()?;
    folder.starts_with('/').then_some(folder)
}

/// What stands behind each `key=`; the same key twice is for Slurm to judge.
fn values(slurm_conf: &str, key: &str) -> Vec<String> {
    slurm_conf
        .replace("\\\n", "")
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case(key))
        .map(|(_, value)| value.trim().to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_found_however_it_is_written() {
        for text in [
            "SchedulerParameters=extra_constraints",
            "schedulerparameters = a=1, EXTRA_CONSTRAINTS # why",
            "SchedulerParameters=a,\\\n  extra_constraints\n",
        ] {
            assert!(parses_extra(text), "{text}");
        }
        for text in [
            "",
            "#SchedulerParameters=extra_constraints",
            "SchedulerParameters=no_extra_constraints",
            "PrologFlags=extra_constraints",
        ] {
            assert!(!parses_extra(text), "{text}");
        }
        let folder = |text| state_save_location(text);
        assert_eq!(folder("a=b\nstatesavelocation = /s\n"), Some("/s".into()));
        for text in [
            "",
            "#StateSaveLocation=/s",
            "StateSaveLocation=s",
            "StateSaveLocation=",
        ] {
            assert_eq!(folder(text), None, "{text}");
        }
    }
}
