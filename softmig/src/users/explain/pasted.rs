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
const FLAGS: [&str; 48] = [
    "bcast",
    "bell",
    "compress",
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
    "label",
    "multi-prog",
    "nice",
    "no-allocate",
    "no-bell",
    "no-kill",
    "no-requeue",
    "no-shell",
    "oom-kill-step",
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
    "wait",
    "whole",
    "x11",
];

/// Short options without a value.
const SHORT_FLAGS: &str = "EHIKOQRVWXZbhklsuv";

/// The commands whose lines can be pasted.
const COMMANDS: [&str; 3] = ["sbatch", "srun", "salloc"];

/// The options with a value that no answer depends on.
const OTHERS: [&str; 74] = [
    "accel-bind",
    "acctg-freq",
    "array",
    "batch",
    "bb",
    "bbf",
    "bcast-exclude",
    "begin",
    "chdir",
    "cluster-constraint",
    "clusters",
    "comment",
    "constraint",
    "container",
    "container-id",
    "core-spec",
    "cores-per-socket",
    "cpu-bind",
    "cpu-freq",
    "deadline",
    "delay-boot",
    "dependency",
    "distribution",
    "epilog",
    "error",
    "exclude",
    "export",
    "export-file",
    "extra",
    "extra-node-info",
    "gid",
    "gpu-bind",
    "gres-flags",
    "het-group",
    "hint",
    "input",
    "job-name",
    "jobid",
    "kill-on-invalid-dep",
    "licenses",
    "mail-type",
    "mail-user",
    "mcs-label",
    "mem-bind",
    "mincpus",
    "mpi",
    "msg-timeout",
    "network",
    "nodefile",
    "ntasks-per-core",
    "ntasks-per-socket",
    "open-mode",
    "output",
    "prefer",
    "priority",
    "profile",
    "prolog",
    "relative",
    "segment",
    "signal",
    "switches",
    "task-epilog",
    "task-prolog",
    "thread-spec",
    "threads",
    "threads-per-core",
    "time-min",
    "tmp",
    "treewidth",
    "tres-bind",
    "uid",
    "wait-all-nodes",
    "wckey",
    "wrap",
];

/// Figures for each GPU.
const PER_GPU: [&str; 3] = ["--mem-per-gpu", "--cpus-per-gpu", "--ntasks-per-gpu"];

/// The options of `softmig explain` alone that have no value.
const OWN_FLAGS: [&str; 2] = ["interactive", "json"];

/// The words of a line.
#[derive(Debug, Default, PartialEq)]
struct Line {
    /// The options that an answer depends on, as `--name=value`, and without a command all that Slurm's clients do not have.
    kept: Vec<String>,
    /// With a command, those of the others that Slurm's clients have not by themselves.
    unknown: Vec<String>,
    /// What stands after all options: the program.
    program: Vec<String>,
}

/// What was typed for `softmig explain`.
#[derive(Debug, Default)]
pub(super) struct Pasted {
    /// The options, those that count least first: of a script, of the environment, of the pasted line, and its own, which come
    /// before the words.
    pub(super) options: Vec<String>,
    /// What is not looked at, in words.
    pub(super) unseen: Vec<String>,
}

/// Reads the words, with the options before them. The clients' variables count if it is the caller's own request.
pub(super) fn read(
    words: &[String],
    own: &[String],
    with_environment: bool,
) -> Result<Pasted, String> {
    let (first, rest) = words.split_first().ok_or("a script is missing")?;
    let command = Path::new(first)
        .file_name()
        .and_then(|name| name.to_str())
        .filter(|name| COMMANDS.contains(name) && !Path::new(first).is_file());
    let is_batch = command.is_none_or(|command| command == "sbatch");
    // As after sbatch, but that `softmig explain` has options as well.
    let is_bare = command.is_none() && first.starts_with('-');
    let line = match is_bare {
        true => Line::read(words, None),
        false => Line::read(rest, Some(command.unwrap_or("sbatch"))),
    };
    let is_anothers = line.kept.iter().any(|option| option.starts_with("--user="));
    let script = match command {
        None if !is_bare => Some(first),
        _ => (line.program.first()).filter(|word| is_batch && *word != ":"),
    };
    let (mut options, mut unknown) = (Vec::new(), Vec::new());
    let mut has_more = line.program.iter().any(|word| word == ":");
    if let Some(script) = script {
        let text = std::fs::read(script).map_err(|error| no_script(script, &error))?;
        let mut lines = directives(&String::from_utf8_lossy(&text));
        if let Some(next) = lines.iter().position(|words| words == &["hetjob"]) {
            lines.truncate(next);
            has_more = true;
        }
        for line in lines.iter().map(|line| Line::read(line, Some("sbatch"))) {
            options.extend(line.kept);
            unknown.extend(line.unknown);
        }
    }
    if with_environment && !is_anothers {
        options.extend(of_environment(is_batch));
    }
    options.extend(line.kept);
    unknown.extend(line.unknown);
    if !is_batch {
        options.push("--interactive".to_string());
    }
    options.extend(own.iter().cloned());
    let per_gpu = |option: &&String| PER_GPU.iter().any(|name| option.starts_with(name));
    let refused = options
        .iter()
        .find(per_gpu)
        .filter(|_| command == Some("srun"));
    let refused = refused.map(|option| {
        format!("that srun refuses {option} with a slice; type --mem, --ntasks and --cpus-per-task")
    });
    let unknown = unknown.into_iter();
    let unknown = unknown.map(|name| format!("{name}, which softmig does not know"));
    let mut unseen: Vec<String> = unknown.chain(refused).collect();
    if has_more {
        unseen.push("components of the job behind the first; ask for each by itself".to_string());
    }
    Ok(Pasted { options, unseen })
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
    if name.contains(' ') {
        return format!("{name}: {error}; write the line without quotes around it");
    }
    if name.contains(':') && name != ":" {
        let list = name.strip_prefix("gres=").unwrap_or(name);
        return format!("{name} is not a script; did you mean --gres={list}?");
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

impl Line {
    /// Without a command it is read as sbatch's, with the options of `softmig explain` itself.
    fn read(words: &[String], command: Option<&str>) -> Self {
        let (is_bare, is_srun) = (command.is_none(), command == Some("srun"));
        let mut line = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if let Some(long) = word.strip_prefix("--") {
                if long.is_empty() {
                    break;
                }
                // Which srun waits for so many seconds.
                let is_flag = FLAGS.contains(&long) && !(is_srun && long == "wait");
                let is_flag = is_flag || is_bare && OWN_FLAGS.contains(&long);
                let (name, value) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_string())),
                    None if is_flag => (long, None),
                    None => (long, words.next().cloned()),
                };
                let name = if name == "tasks-per-node" {
                    "ntasks-per-node"
                } else {
                    name
                };
                let counts = WITH_VALUE.iter().any(|(known, _)| *known == name);
                let is_slurms = FLAGS.contains(&name) || OTHERS.contains(&name);
                if counts || !is_slurms && is_bare {
                    line.keep(name, value);
                } else if !is_slurms {
                    line.unknown.push(format!("--{name}"));
                }
            } else if let Some(short) = word.strip_prefix('-').filter(|short| !short.is_empty()) {
                line.read_short(short, command, &mut words);
            } else {
                line.program.push(word.clone());
                break;
            }
        }
        line.program.extend(words.cloned());
        line
    }

    /// `-N2`, `-N 2`, `-HN2`.
    fn read_short<'a>(
        &mut self,
        letters: &str,
        command: Option<&str>,
        words: &mut impl Iterator<Item = &'a String>,
    ) {
        for (at, letter) in letters.char_indices() {
            let has_value = match letter {
                'W' => command == Some("srun"),
                'u' => command.is_none(),
                letter => !SHORT_FLAGS.contains(letter),
            };
            if !has_value {
                continue;
            }
            let rest = &letters[at + letter.len_utf8()..];
            let value = match rest {
                "" => words.next().cloned(),
                rest => Some(rest.strip_prefix('=').unwrap_or(rest).to_string()),
            };
            let named = WITH_VALUE.iter().find(|(_, short)| *short == Some(letter));
            if letter == 'u' {
                self.keep("user", value);
            } else if let Some((name, _)) = named {
                self.keep(name, value);
            }
            return;
        }
    }

    fn keep(&mut self, name: &str, value: Option<String>) {
        match value {
            Some(value) => self.kept.push(format!("--{name}={value}")),
            None => self.kept.push(format!("--{name}")),
        }
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
        let found = Line::read(&words(line), Some("sbatch"));
        assert_eq!(
            found.kept,
            [
                "--gres=gpu:l40s.4:1",
                "--nodes=1",
                "--ntasks=2",
                "--account=lab",
                "--exclusive=user"
            ]
        );
        assert_eq!(found.program, ["train.sh", "--gres=gpu:9"]);
    }

    #[test]
    fn options_of_sbatch_need_no_sbatch_before_them() {
        let found = |line: &str, own: &[&str]| {
            let own: Vec<String> = own.iter().map(ToString::to_string).collect();
            read(&words(line), &own, false)
        };
        let line = "--array=1-8 -J name --json --at 2027-01-01 --time 1:00 --requeue --wrap 'a b'";
        let options = found(line, &["--gres=gpu:l40s.4:1"]).unwrap().options;
        let kept = [
            "--json",
            "--at=2027-01-01",
            "--time=1:00",
            "--gres=gpu:l40s.4:1",
        ];
        assert_eq!(options, kept);
        // What neither of them has is no option, and not passed over without a word.
        let bare = found("--gress=gpu:1", &[]).unwrap();
        assert_eq!(
            (bare.options, bare.unseen.len()),
            (vec!["--gress=gpu:1".into()], 0)
        );
        let line = found("sbatch --gers=gpu:1 --job-name x -N2", &[]).unwrap();
        assert_eq!(line.options, ["--nodes=2"]);
        assert_eq!(line.unseen, ["--gers, which softmig does not know"]);
        let line = found("--wait --tasks-per-node=2 -W --array 1 -u bob", &[]).unwrap();
        assert_eq!(line.options, ["--ntasks-per-node=2", "--user=bob"]);
        let line = found("srun -N1 a : -N2 b", &[]).unwrap();
        assert_eq!(line.options, ["--nodes=1", "--interactive"]);
        assert!(line.unseen[0].starts_with("components "), "{line:?}");
        let line = found("srun --gres=gpu:l40s.4:1 --mem-per-gpu=8G x", &[]).unwrap();
        assert!(
            line.unseen[0].starts_with("that srun refuses --mem-per-gpu"),
            "{line:?}"
        );
        let error = found("--array=1-8 no-such-script", &[]).unwrap_err();
        assert!(error.starts_with("no-such-script: "), "{error}");
    }

    #[test]
    fn lines_of_a_script_count_up_to_its_first_command() {
        let script = "#!/bin/bash\n#SBATCH --gres=gpu:l40s.4:1  # a quarter\n\n# words\n##SBATCH --nodes=9\n\
                      #SBATCH -t 1:00:00 --job-name='a b'\nmodule load x\n#SBATCH --nodes=2\n";
        let found: Vec<String> = directives(script)
            .iter()
            .flat_map(|line| Line::read(line, Some("sbatch")).kept)
            .collect();
        assert_eq!(found, ["--gres=gpu:l40s.4:1", "--time=1:00:00"]);
    }
}
