//! The options in a job script and in a line that was typed for sbatch, srun or salloc.
//!
//! Only options that an answer depends on are kept, so that nothing has to be left out by hand.

use std::path::Path;

/// Options with a value, as they are written long and short.
const WITH_VALUE: [(&str, Option<char>); 24] = [
    ("gres", None),
    ("gpus", Some('G')),
    ("gpus-per-node", None),
    ("gpus-per-task", None),
    ("gpus-per-socket", None),
    ("tres-per-task", None),
    ("nodes", Some('N')),
    ("nodelist", Some('w')),
    ("ntasks", Some('n')),
    ("ntasks-per-node", None),
    ("cpus-per-task", Some('c')),
    ("sockets-per-node", None),
    ("mem-per-gpu", None),
    ("cpus-per-gpu", None),
    ("ntasks-per-gpu", None),
    ("gpu-freq", None),
    ("mem", None),
    ("mem-per-cpu", None),
    ("reservation", None),
    ("partition", Some('p')),
    ("account", Some('A')),
    ("qos", Some('q')),
    ("time", Some('t')),
    ("exclusive", None),
];

/// The options that Slurm's clients take without a value, or with one behind `=` only.
const FLAGS: [&str; 44] = [
    "contiguous",
    "disable-status",
    "exact",
    "exclusive",
    "external-launcher",
    "get-user-env",
    "help",
    "hold",
    "ignore-pbs",
    "immediate",
    "kill-command",
    "kill-on-bad-exit",
    "kill-on-invalid-dep",
    "label",
    "multi-prog",
    "nice",
    "no-allocate",
    "no-bell",
    "no-kill",
    "no-requeue",
    "no-shell",
    "overcommit",
    "overlap",
    "oversubscribe",
    "parsable",
    "preserve-env",
    "propagate",
    "pty",
    "quiet",
    "quit-on-interrupt",
    "reboot",
    "requeue",
    "resv-ports",
    "share",
    "spread-job",
    "stepmgr",
    "test-only",
    "unbuffered",
    "usage",
    "use-min-nodes",
    "verbose",
    "version",
    "wait-all-nodes-off",
    "x11",
];

/// Short options without a value.
const SHORT_FLAGS: &str = "EHIKOQRVXZbhklsuv";

/// The commands whose lines can be pasted.
const COMMANDS: [&str; 3] = ["sbatch", "srun", "salloc"];

/// The options for `softmig explain`, those that count least first: of a script, of the environment, of the pasted line, and
/// its own, which come before the words.
pub(super) fn options(
    words: &[String],
    own: &[String],
    with_environment: bool,
) -> Result<Vec<String>, String> {
    let (first, rest) = words.split_first().ok_or("a script is missing")?;
    let command = Path::new(first)
        .file_name()
        .and_then(|name| name.to_str())
        .filter(|name| COMMANDS.contains(name) && !Path::new(first).is_file());
    let is_batch = command.is_none_or(|command| command == "sbatch");
    let (typed, script) = match command {
        Some(_) => {
            let (typed, rest) = options_of(rest);
            (typed, rest.first().cloned().filter(|_| is_batch))
        }
        None => (options_of(rest).0, Some(first.clone())),
    };
    let mut all = Vec::new();
    if let Some(script) = script {
        let text = std::fs::read(&script).map_err(|error| no_script(&script, &error))?;
        let lines = directives(&String::from_utf8_lossy(&text));
        all.extend(lines.iter().flat_map(|line| options_of(line).0));
    }
    if with_environment {
        all.extend(of_environment(is_batch));
    }
    all.extend(typed);
    if !is_batch {
        all.push("--interactive".to_string());
    }
    all.extend(own.iter().cloned());
    Ok(all)
}

/// The options that the clients take from variables before a script's lines.
fn of_environment(is_batch: bool) -> Vec<String> {
    let command = if is_batch { "SBATCH" } else { "SALLOC" };
    let names = [
        ("PARTITION", "partition"),
        ("ACCOUNT", "account"),
        ("QOS", "qos"),
        ("RESERVATION", "reservation"),
        ("TIMELIMIT", "time"),
        ("GRES", "gres"),
        ("GPUS", "gpus"),
    ];
    let set = names.iter().filter_map(|(variable, option)| {
        let value = std::env::var(format!("{command}_{variable}")).ok()?;
        (!value.is_empty()).then(|| format!("--{option}={value}"))
    });
    set.collect()
}

fn no_script(name: &str, error: &std::io::Error) -> String {
    if name.contains(':') {
        return format!("{name} is not a script; did you mean --gres={name}?");
    }
    format!("{name}: {error}; give a script, or a line that begins with sbatch, srun or salloc")
}

/// The words of each `#SBATCH` line, up to the first line that is a command, as sbatch reads a script.
fn directives(script: &str) -> Vec<Vec<String>> {
    let lines = script.lines().map(str::trim_end);
    let comments = lines.take_while(|line| line.is_empty() || line.starts_with('#'));
    let directives = comments.filter_map(|line| line.strip_prefix("#SBATCH"));
    directives.map(words_of).collect()
}

/// The words of a line; quotes keep spaces, and a comment ends it.
fn words_of(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut is_word, mut quote) = (String::new(), false, None);
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), letter) if open == letter => quote = None,
            (None, '\'' | '"') => (quote, is_word) = (Some(letter), true),
            (None, '#') if !is_word => break,
            (None, letter) if letter.is_whitespace() => {
                if is_word {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            (_, letter) => {
                word.push(letter);
                is_word = true;
            }
        }
    }
    if is_word {
        words.push(word);
    }
    words
}

/// The options of a line that an answer depends on, as `--name=value`, and the words after all options: the program.
fn options_of(words: &[String]) -> (Vec<String>, Vec<String>) {
    let mut found = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if let Some(long) = word.strip_prefix("--") {
            if long.is_empty() {
                break;
            }
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None if FLAGS.contains(&long) => (long, None),
                None => (long, words.next().cloned()),
            };
            keep(&mut found, name, value);
        } else if let Some(short) = word.strip_prefix('-').filter(|short| !short.is_empty()) {
            read_short(short, &mut words, &mut found);
        } else {
            let rest = [word].into_iter().chain(words);
            return (found, rest.cloned().collect());
        }
    }
    (found, words.cloned().collect())
}

/// `-N2`, `-N 2`, `-HN2`.
fn read_short<'a>(
    letters: &str,
    words: &mut impl Iterator<Item = &'a String>,
    found: &mut Vec<String>,
) {
    for (at, letter) in letters.char_indices() {
        if SHORT_FLAGS.contains(letter) {
            continue;
        }
        let rest = &letters[at + letter.len_utf8()..];
        let value = match rest {
            "" => words.next().cloned(),
            rest => Some(rest.strip_prefix('=').unwrap_or(rest).to_string()),
        };
        let named = WITH_VALUE.iter().find(|(_, short)| *short == Some(letter));
        if let Some((name, _)) = named {
            keep(found, name, value);
        }
        return;
    }
}

fn keep(found: &mut Vec<String>, name: &str, value: Option<String>) {
    if !WITH_VALUE.iter().any(|(known, _)| *known == name) {
        return;
    }
    match value {
        Some(value) => found.push(format!("--{name}={value}")),
        None => found.push(format!("--{name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        words_of(line)
    }

    #[test]
    fn options_are_found_among_others() {
        let line = "-J 'my job' --gres gpu:l40s.4:1 -N1 -n 2 --mail-type=END --hold -HA lab --exclusive=user \
                    --comment \"a b\" -o out.log train.sh --gres=gpu:9";
        let (found, rest) = options_of(&words(line));
        assert_eq!(
            found,
            [
                "--gres=gpu:l40s.4:1",
                "--nodes=1",
                "--ntasks=2",
                "--account=lab",
                "--exclusive=user"
            ]
        );
        assert_eq!(rest, ["train.sh", "--gres=gpu:9"]);
    }

    #[test]
    fn lines_of_a_script_count_up_to_its_first_command() {
        let script = "#!/bin/bash\n#SBATCH --gres=gpu:l40s.4:1  # a quarter\n\n# words\n##SBATCH --nodes=9\n\
                      #SBATCH -t 1:00:00 --job-name='a b'\nmodule load x\n#SBATCH --nodes=2\n";
        let found: Vec<String> = directives(script)
            .iter()
            .flat_map(|line| options_of(line).0)
            .collect();
        assert_eq!(found, ["--gres=gpu:l40s.4:1", "--time=1:00:00"]);
    }
}
