//! `--help` alone leads users to what they look for.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

/// Commands that show what users look for, and words of their first lines.
const SOUGHT: [(&str, &[&str]); 3] = [
    ("free", &["you may have", "free now"]),
    ("status", &["used and free", "why jobs wait"]),
    ("job", &["your job", "what it used"]),
];

fn help(words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softmig"));
    let output = command.args(words).arg("--help").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// A command's text in the list of all, which can have several lines.
fn listed(help: &str, name: &str) -> String {
    let begin = format!("  {name} ");
    let mut lines = help.lines().skip_while(|line| !line.starts_with(&begin));
    let first = lines.next().unwrap().trim_start_matches(&begin).trim();
    let rest = lines.take_while(|line| line.starts_with("    "));
    rest.fold(first.to_string(), |text, line| text + " " + line.trim())
}

#[test]
fn the_list_of_commands_answers_the_first_questions() {
    let help = help(&[]);
    let about = help.lines().next().unwrap();
    for part in ["are free", "why jobs wait", "what they used"] {
        assert!(about.contains(part), "{part} is not in {about}");
    }
    for (name, parts) in SOUGHT {
        let text = listed(&help, name);
        for part in parts {
            assert!(text.contains(part), "{part} is not in {name}: {text}");
        }
    }
}

#[test]
fn the_first_line_of_free_status_and_job_says_what_they_show() {
    for (name, parts) in SOUGHT {
        let help = help(&[name]);
        let first = help.lines().next().unwrap();
        for part in parts {
            assert!(first.contains(part), "{part} is not in {name}: {first}");
        }
    }
}

#[test]
fn commands_for_developers_are_not_listed() {
    let help = help(&[]);
    assert!(
        help.contains("  check ") && !help.contains("prove"),
        "{help}"
    );
}
