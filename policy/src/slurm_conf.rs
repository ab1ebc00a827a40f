//! The one setting of slurm.conf that decides where a tag can travel.

/// Whether `SchedulerParameters` has `extra_constraints`: then Slurm reads a job's `extra` as an expression, and it
/// cannot carry text.
///
/// Looks at this file alone, not at those that it includes; `[tag] field` in policy.toml says it for those.
///
/// ```
/// use softmig_policy::slurm_conf::parses_extra;
/// assert!(parses_extra("SchedulerParameters=bf_interval=1,extra_constraints\n"));
/// ```
pub fn parses_extra(slurm_conf: &str) -> bool {
    slurm_conf
        .replace("\\\n", "")
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter_map(|line| line.split_once('='))
        .filter(|(key, _)| key.trim().eq_ignore_ascii_case("SchedulerParameters"))
        .flat_map(|(_, value)| value.split(','))
        .any(|word| word.trim().eq_ignore_ascii_case("extra_constraints"))
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
    }
}
