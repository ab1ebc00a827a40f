//! The examples in README.md and the pages in docs/ are true: each policy can be read, `softmig explain` and `softmig config` print what
//! follows them, and each code of a refusal is told.
//!
//! A command goes by the policy above it, one before all policies by conf/policy.toml. A policy without types of GPUs has those
//! of its page's first one. A line `...` matches any lines.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};
use std::process::Command;

use softmig_policy::{Code, Context, Policy, Request, Submitter, Verdict, decide};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Words in pages, and those that are tried instead: users that every machine knows, and a week that is now.
const TRIED: [(&str, &str); 9] = [
    ("alice", "games"),
    ("bob", "sync"),
    ("carol", "mail"),
    ("dave", "news"),
    ("2027-01-11", "2001-01-11"),
    ("2027-01-18", "2999-01-18"),
    ("20270111", "20010111"),
    // 2027-01-11T08:00:00Z and 2027-01-18T08:00:00Z.
    ("1799654400", "979200000"),
    ("1800259200", "32473641600"),
];

fn tried(text: &str) -> String {
    let each = TRIED.iter();
    each.fold(text.to_string(), |text, (said, tried)| {
        text.replace(said, tried)
    })
}

fn said(text: &str) -> String {
    let each = TRIED.iter();
    each.fold(text.to_string(), |text, (said, tried)| {
        text.replace(tried, said)
    })
}

fn pages() -> Vec<PathBuf> {
    let docs = std::fs::read_dir(Path::new(ROOT).join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = docs
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect();
    pages.push(Path::new(ROOT).join("README.md"));
    pages
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// An example of a page.
struct Block {
    /// The word behind the fence: `toml`, or nothing.
    language: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for line in page.lines() {
        match line.trim_start().strip_prefix("```") {
            Some(_) if is_open => is_open = false,
            Some(language) => {
                is_open = true;
                blocks.push(Block {
                    language: language.to_string(),
                    text: String::new(),
                });
            }
            None if is_open => {
                let text = &mut blocks.last_mut().unwrap().text;
                *text += line;
                *text += "\n";
            }
            None => {}
        }
    }
    blocks
}

/// The tables of types of GPUs in a policy.
fn gpus(policy: &str) -> String {
    let mut is_gpu = false;
    let lines = policy.lines().filter(|line| {
        if line.starts_with('[') {
            is_gpu = line.starts_with("[gpu.");
        }
        is_gpu
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// Each command of an example with what it prints there.
fn commands(example: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    let mut goes_on = false;
    for line in example.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_string(), String::new())),
            (None, Some((command, _))) if goes_on => {
                command.push('\n');
                command.push_str(line);
            }
            (None, Some((_, printed))) => *printed += &format!("{line}\n"),
            (None, None) => continue,
        }
        goes_on = line.ends_with('\\');
    }
    commands.retain(|(command, _)| {
        command.starts_with("softmig explain") || command.starts_with("softmig config")
    });
    commands
}

/// The output of a command, by that policy.
fn run(command: &str, policy: &str) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), tried(policy)).unwrap();
    let script = format!(
        "softmig() {{ word=$1; shift; \"$SOFTMIG\" \"$word\" --policy \"$POLICY\" \"$@\"; }}\n{}",
        tried(command)
    );
    let output = Command::new("sh")
        .args(["-c", &format!("exec 2>&1\n{script}")])
        .env("SOFTMIG", env!("CARGO_BIN_EXE_softmig"))
        .env("POLICY", file.path())
        .env("TZ", "UTC")
        .output()
        .unwrap();
    said(&String::from_utf8(output.stdout).unwrap())
}

/// Whether that was printed, where lines may be left out.
fn is_shown(shown: &str, printed: &str) -> bool {
    let mut parts = shown.split("...\n");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        let at = match parts.peek() {
            Some(_) => rest.find(part),
            None => rest.ends_with(part).then(|| rest.len() - part.len()),
        };
        let Some(at) = at else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    true
}

#[test]
fn policies_and_commands_of_the_pages_are_as_they_say() {
    let example = read(&Path::new(ROOT).join("conf/policy.toml"));
    let (mut policies, mut tried_commands) = (0, 0);
    for path in pages() {
        let name = path.display();
        let mut policy = example.clone();
        let mut types: Option<String> = None;
        for block in blocks(&read(&path)) {
            if block.language == "toml" {
                policies += 1;
                let own = gpus(&block.text);
                policy = block.text;
                match &types {
                    None if !own.is_empty() => types = Some(own),
                    _ if !own.is_empty() => {}
                    // Keys of the top level come before all tables.
                    Some(types) => policy += types,
                    None => policy += &gpus(&example),
                }
                if let Err(error) = Policy::parse_at(&policy, "UTC") {
                    panic!("{name}: {error}, in\n{policy}");
                }
                continue;
            }
            for (command, shown) in commands(&block.text) {
                tried_commands += 1;
                let printed = run(&command, &policy);
                assert!(
                    is_shown(&shown, &printed),
                    "{name}: $ {command}\nis to print\n{shown}\nand prints\n{printed}"
                );
            }
        }
    }
    assert!(policies >= 10, "{policies} policies");
    assert!(tried_commands >= 30, "{tried_commands} commands");
}

#[test]
fn the_page_of_codes_has_every_code() {
    let page = read(&Path::new(ROOT).join("docs/users.md"));
    for code in Code::ALL {
        let row = format!("\n| {} | ", code.as_str());
        assert_eq!(page.matches(&row).count(), 1, "{}", code.as_str());
    }
}

#[test]
fn dots_stand_for_lines_that_are_left_out() {
    let printed = "a\nb\nc\nd\n";
    for shown in [
        printed,
        "a\n...\nd\n",
        "...\n",
        "...\nb\n...\n",
        "a\nb\n...\n",
    ] {
        assert!(is_shown(shown, printed), "{shown}");
    }
    for shown in [
        "",
        "a\n",
        "b\n...\n",
        "...\nc\n",
        "a\n...\nc\n...\nb\n...\n",
    ] {
        assert!(!is_shown(shown, printed), "{shown}");
    }
}

/// Both tables of units of mps say what their policy makes of them: the same jobs on a node of four GPUs.
#[test]
fn tables_of_mps_units_follow_the_policies_above_them() {
    let page = read(&Path::new(ROOT).join("docs/from-surf.md"));
    let mut policies = blocks(&page)
        .into_iter()
        .filter(|block| block.language == "toml");
    let mut policy = None;
    let mut rows = 0;
    for line in page.lines().map(str::trim_start) {
        if line.starts_with("```toml") {
            policy = Some(Policy::parse(&policies.next().unwrap().text).unwrap());
        }
        let Some((units, rest)) = line
            .strip_prefix("| `--gres=")
            .and_then(|rest| rest.split_once("` | "))
        else {
            continue;
        };
        let policy = policy.as_ref().unwrap();
        let request = Request {
            tres_per_node: Some(units.to_string()),
            ..Request::default()
        };
        let submitter = Submitter {
            reservation: Some("jhl_homework_gpu_1".into()),
            ..Submitter::default()
        };
        let context = Context {
            submitter,
            ..Context::default()
        };
        let Verdict::Granted(grant) = decide(policy, &request, &context) else {
            panic!("{line}")
        };
        let share = grant.limits.share();
        let same = match share.per_gpu() / share.shards() {
            1 => "all of one GPU".to_string(),
            size => format!("`--gres=gpu:titanrtx.{size}:1`"),
        };
        let jobs = 4 * (share.per_gpu() / share.shards());
        let expected = format!("{same} | {} MiB | {jobs} |", grant.limits.memory_mib());
        assert_eq!(rest, expected, "{line}");
        rows += 1;
    }
    assert_eq!(rows, 10);
}
