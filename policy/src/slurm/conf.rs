//! slurm.conf, the files like it, and the lines that scontrol prints.

/// Whether `SchedulerParameters` has `extra_constraints`. With it, Slurm reads a job's `extra` as an expression, so
/// `extra` cannot carry a tag.
///
/// Only this file is read, and not the files that it includes. For settings there, policy.toml has `[tag] field`.
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

/// The folder in which slurmctld keeps its state; `None` if this file does not name it.
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

/// The values of a key, of which there are several if the file has it more than once.
fn values(slurm_conf: &str, key: &str) -> Vec<String> {
    let mut all = settings(slurm_conf);
    all.retain(|(name, _)| name.eq_ignore_ascii_case(key));
    all.into_iter().map(|(_, value)| value).collect()
}

/// The `KEY=VALUE` pairs of a configuration file.
pub fn settings(text: &str) -> Vec<(String, String)> {
    let lines = lines(text).into_iter();
    lines.flat_map(|(_, line)| pairs(&line)).collect()
}

/// The lines of a configuration file, each with its number in the file: without comments and blank lines, and with lines
/// that end with a backslash joined to the next one.
pub fn lines(text: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.replace('\r', "");
        let begun = line.strip_suffix('\\');
        let own = begun.unwrap_or(&line);
        match all.last_mut().filter(|_| goes_on) {
            Some((_, whole)) => whole.push_str(own),
            None => all.push((number, own.to_string())),
        }
        goes_on = begun.is_some();
    }
    all.into_iter()
        .map(|(number, line)| (number, without_comment(&line).trim().to_string()))
        .filter(|(_, line)| !line.is_empty())
        .collect()
}

fn without_comment(line: &str) -> &str {
    let mut escaped = false;
    let comment = line.char_indices().find(|(_, letter)| {
        let is_comment = *letter == '#' && !escaped;
        escaped = *letter == '\\';
        is_comment
    });
    comment.map_or(line, |(at, _)| line.get(..at).unwrap_or(line))
}

/// The words of a line of a configuration file, such as `CPUs=64`. A value in quotes may have blanks, and blanks may be
/// around the equals sign.
pub fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let Some(word) = words.last_mut() else { break };
        match letter {
            '"' => quoted = !quoted,
            blank if blank.is_whitespace() && !quoted => {
                while letters.next_if(|next| next.is_whitespace()).is_some() {}
                let joins = word.ends_with('=') || letters.peek() == Some(&'=');
                if !joins {
                    words.push(String::new());
                }
            }
            other => word.push(other),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The `KEY=VALUE` pairs of such a line.
pub fn pairs(line: &str) -> Vec<(String, String)> {
    let words = words(line);
    let pairs = words.iter().filter_map(|word| word.split_once('='));
    pairs
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

/// The value of the first such pair with this key. Slurm takes keys in upper and lower case.
pub fn value<'a>(pairs: &'a [(String, String)], key: &str) -> Option<&'a str> {
    pairs
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(key))
        .map(|(_, value)| value.as_str())
}

/// The `KEY=VALUE` pairs of a line that scontrol prints. A value with a blank is cut off there.
pub fn printed_pairs(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split_ascii_whitespace()
        .filter_map(|word| word.split_once('='))
}

/// The `Nodes=... GRES=...` groups of a job's line of `scontrol -d -o show job`: nodes with equal parts, and the GRES of each.
/// The line also has words that the job's user chose, and these may look like a group.
pub(crate) fn printed_groups(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut nodes = "";
    printed_pairs(line).filter_map(move |(key, value)| match key {
        "Nodes" => {
            nodes = value;
            None
        }
        "GRES" => Some((nodes, value)),
        _ => None,
    })
}

/// The value of one key in such a line; empty if scontrol prints that the key has no value.
pub fn printed_value<'a>(line: &'a str, key: &str) -> &'a str {
    let mut pairs = printed_pairs(line);
    let value = pairs.find(|(name, _)| *name == key);
    match value {
        Some((_, "(null)" | "N/A")) | None => "",
        Some((_, value)) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_found_however_it_is_written() {
        for text in [
            "SchedulerParameters=extra_constraints",
            "schedulerparameters = a=1,EXTRA_CONSTRAINTS # why",
            "SelectType=x SchedulerParameters=a,\\\nextra_constraints\n",
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

    #[test]
    fn a_line_of_scontrol_is_pairs() {
        let line = "NodeName=n1 Gres=gpu:l40s:4 OS=Linux 6.1 #1 Comment=(null) TRES=cpu=1,mem=2M";
        assert_eq!(printed_value(line, "Gres"), "gpu:l40s:4");
        assert_eq!(printed_value(line, "TRES"), "cpu=1,mem=2M");
        assert_eq!(printed_value(line, "Comment"), "");
        assert_eq!(printed_value(line, "Absent"), "");
    }

    #[test]
    fn a_file_is_read_as_slurm_reads_it() {
        let text = "# a comment\nA=1 # another\n\nB=x,\\\ny\nC=\\#1\n";
        let owned = |lines: &[(usize, &str)]| -> Vec<_> {
            lines
                .iter()
                .map(|(at, line)| (*at, line.to_string()))
                .collect()
        };
        assert_eq!(
            lines(text),
            owned(&[(2, "A=1"), (4, "B=x,y"), (6, "C=\\#1")])
        );
        assert_eq!(
            lines("A=1,\\\r\n2\r\nB=\\"),
            owned(&[(1, "A=1,2"), (3, "B=")])
        );
        let pairs = pairs("NodeName = n1  Gres=gpu:1 Reason=\"a = b\" X=\"\"");
        let pairs: Vec<(&str, &str)> = pairs
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            pairs,
            [
                ("NodeName", "n1"),
                ("Gres", "gpu:1"),
                ("Reason", "a = b"),
                ("X", "")
            ]
        );
    }
}
