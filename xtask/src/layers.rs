//! Layers: the files of a crate import only downwards, from room to room, and in no circle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::place::project;

/// A crate whose files are in rooms: the folders of its `src`, each with the file of its name.
struct Layers {
    src: &'static str,
    /// The lowest first. A file imports from its own room and from those before it; lib.rs and main.rs are above all.
    /// A room in a room is written with both names; a file above such rooms belongs to the highest of them. A crate with no
    /// rooms is a room itself.
    rooms: &'static [&'static str],
    /// The most files that may import each other in a circle. 1 allows none.
    largest_circle: usize,
}

const CRATES: &[Layers] = &[
    Layers {
        src: "policy/src",
        rooms: &["node", "slurm", "config", "decision"],
        largest_circle: 1,
    },
    Layers {
        src: "hook/src",
        rooms: &[
            "os", "driver", "identity", "ledger", "pacing", "memory", "launch", "views", "exports",
        ],
        largest_circle: 4,
    },
    Layers {
        src: "monitor/src",
        rooms: &[
            "cli", "jobs", "gate", "schedule", "packs", "arbiter", "measure", "enforce", "usage",
            "notify", "watch",
        ],
        largest_circle: 1,
    },
    Layers {
        src: "softmig/src",
        rooms: &[
            "output",
            "files",
            "settings",
            "ask",
            "users/whose",
            "users/smi",
            "users/advise",
            "users/report",
            "users/job",
            "users/events",
            "users/free",
            "users/explain",
            "users/status",
            "machine/preload",
            "machine/loaders",
            "machine/scheduler",
            "machine/node",
            "machine/install",
            "machine/uninstall",
            "run",
            "site/probe",
            "site/config",
            "site/check/facts",
            "site/check/finding",
            "site/check/gather",
            "site/check/rules",
            "site/doctor",
        ],
        largest_circle: 1,
    },
    Layers::one_room("cli-filter/src"),
    Layers::one_room("exporter/src"),
    Layers::one_room("gate/src"),
    Layers::one_room("hook/region/src"),
    Layers::one_room("job-submit/src"),
    Layers::one_room("node/epilog"),
    Layers::one_room("node/src"),
    Layers::one_room("nvml/src"),
    Layers::one_room("proof/src"),
    Layers::one_room("rm/src"),
    Layers::one_room("usage/src"),
];

impl Layers {
    /// A crate without rooms: its files import in no circle.
    const fn one_room(src: &'static str) -> Self {
        Self {
            src,
            rooms: &[],
            largest_circle: 1,
        }
    }
}

/// Checks the crates that have rooms.
pub(crate) fn check() -> Result<()> {
    let mut wrong = Vec::new();
    for layers in CRATES {
        let files = read(&project().join(layers.src))?;
        println!("{}: {} files", layers.src, files.len());
        let told = layers.check(&files);
        wrong.extend(
            told.into_iter()
                .map(|line| format!("{}/{line}", layers.src)),
        );
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(())
}

/// The text of each file by its path below `src`, without files of tests.
fn read(src: &Path) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![src.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        for entry in entries {
            let path = entry?.path();
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            if stem.ends_with("tests") || stem == "simulation" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                let name = path.strip_prefix(src)?.to_string_lossy().into_owned();
                files.insert(name, without_tests(&text));
            }
        }
    }
    Ok(files)
}

/// The text with its lines in place, but for comments and for items under `#[cfg(test)]`. It is formatted: an item ends
/// where its first line is indented.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let bare = line.trim_start();
        if bare.starts_with("#[cfg(test)]") || bare.starts_with("#[cfg(all(test") {
            let end = format!("{}}}", &line[..line.len() - bare.len()]);
            let mut is_first = true;
            for line in lines.by_ref() {
                kept.push('\n');
                if line.starts_with(&end) || (is_first && line.ends_with([';', '}'])) {
                    break;
                }
                is_first &= line.trim_start().starts_with("#[");
            }
        } else if !bare.starts_with("//") {
            kept.push_str(line);
        }
        kept.push('\n');
    }
    kept
}

/// An import of another file.
#[derive(Debug, PartialEq, Eq)]
struct Import {
    line: usize,
    /// The path as it reads from the crate's root.
    path: String,
    file: String,
}

impl Layers {
    /// A line for each arrow upwards, for each circle and for each file without a room.
    fn check(&self, files: &BTreeMap<String, String>) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut arrows: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (file, text) in files {
            let Some(own) = self.rank(file) else {
                wrong.push(format!("{file}: it is in no room of {:?}", self.rooms));
                continue;
            };
            for Import {
                line,
                path,
                file: to,
            } in imports(file, text, files)
            {
                if let Some(other) = self.rank(&to).filter(|other| *other > own) {
                    wrong.push(format!(
                        "{file}:{line}: imports {path} from {} above {}",
                        self.room(other),
                        self.room(own)
                    ));
                }
                arrows.entry(file).or_default().insert(to);
            }
        }
        let circles = circles(&arrows);
        for circle in &circles {
            if circle.len() > self.largest_circle {
                wrong.push(format!(
                    "{}: a circle of {} files, with {}",
                    circle[0],
                    circle.len(),
                    way_round(&circle[0], &arrows).join(" -> ")
                ));
            }
        }
        let largest = circles.iter().map(Vec::len).max().unwrap_or(1);
        if largest < self.largest_circle {
            wrong.push(format!(
                "lib.rs: the largest circle has {largest} files now: write that into the table"
            ));
        }
        wrong
    }

    /// The number of the file's room.
    fn rank(&self, file: &str) -> Option<usize> {
        let path = file.trim_end_matches(".rs");
        if matches!(path, "lib" | "main") {
            return Some(self.rooms.len());
        }
        if self.rooms.is_empty() {
            return Some(0);
        }
        let mut rooms = self.rooms.iter();
        let own = rooms.position(|room| is_in(path, room));
        own.or_else(|| self.rooms.iter().rposition(|room| is_in(room, path)))
    }

    fn room(&self, rank: usize) -> &str {
        self.rooms.get(rank).unwrap_or(&"the crate's root")
    }
}

/// Whether a path is that of a room or in it.
fn is_in(path: &str, room: &str) -> bool {
    let rest = path.strip_prefix(room);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The module that a file is: `a/b.rs` and `a/b/mod.rs` are `["a", "b"]`, lib.rs is `[]`.
fn module(file: &str) -> Vec<&str> {
    let mut path: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    if path == ["lib"] || path == ["main"] || path.last() == Some(&"mod") {
        path.pop();
    }
    path
}

/// The imports of a file, by `use` or by a path in its code.
fn imports(file: &str, text: &str, files: &BTreeMap<String, String>) -> Vec<Import> {
    // lib.rs comes before main.rs.
    let mut modules: BTreeMap<Vec<&str>, &str> = BTreeMap::new();
    for name in files.keys() {
        modules.entry(module(name)).or_insert(name);
    }
    let own = module(file);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(step) = text[at..].find("::") {
        let end = at + step;
        let start = text[..end].trim_end_matches(is_name).len();
        let is_first = !text[..start].ends_with("::") && start >= at;
        let word = &text[start..end];
        let child = [&own[..], &[word]].concat();
        at = end + 2;
        let mut base = match word {
            _ if !is_first => continue,
            "crate" => Vec::new(),
            "self" => own.clone(),
            "super" => own[..own.len().saturating_sub(1)].to_vec(),
            _ if modules.contains_key(&child) => child,
            _ => continue,
        };
        let mut rest = &text[at..];
        while let Some(further) = rest.strip_prefix("super::") {
            base.pop();
            rest = further;
        }
        let line = text[..start].matches('\n').count() + 1;
        let mut paths = Vec::new();
        let left = tree(rest, &base, &mut paths);
        at = text.len() - left.len();
        for path in paths {
            let prefix = (0..=path.len()).rev().find_map(|length| {
                let file = modules.get(&path[..length])?;
                Some((*file).to_string())
            });
            if let Some(to) = prefix.filter(|to| to != file) {
                found.push(Import {
                    line,
                    path: [&["crate"], &path[..]].concat().join("::"),
                    file: to,
                });
            }
        }
    }
    found
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Reads what follows `base::`, such as `a::B` or `{a, b::{self, C}}`, into paths. Returns what is behind it.
fn tree<'a>(text: &'a str, base: &[&'a str], paths: &mut Vec<Vec<&'a str>>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = rest.trim_start_matches(|letter: char| letter == ',' || letter.is_whitespace());
            if let Some(behind) = rest.strip_prefix('}') {
                return behind;
            }
            let before = rest.len();
            rest = tree(rest, base, paths);
            // `as name`, or text that is not Rust.
            rest = rest.trim_start_matches(|letter| !matches!(letter, ',' | '}'));
            if rest.len() == before {
                return rest;
            }
        }
    }
    let length = text.find(|letter| !is_name(letter)).unwrap_or(text.len());
    let (name, rest) = text.split_at(length);
    let mut path = base.to_vec();
    if !matches!(name, "" | "self") {
        path.push(name);
    }
    match rest.strip_prefix("::") {
        Some(further) if !name.is_empty() => tree(further, &path, paths),
        _ => {
            paths.push(path);
            rest
        }
    }
}

/// Files that import each other, by whatever way, in groups of two and more.
fn circles(arrows: &BTreeMap<&str, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<String>> = arrows
        .keys()
        .map(|file| (*file, reached_from(file, arrows)))
        .collect();
    let mut done = BTreeSet::new();
    let mut circles = Vec::new();
    for file in arrows.keys() {
        if !reached[file].contains(*file) || done.contains(*file) {
            continue;
        }
        let returns = |other: &&String| {
            let from = reached.get(other.as_str());
            from.is_some_and(|from| from.contains(*file))
        };
        let circle: Vec<String> = reached[file].iter().filter(returns).cloned().collect();
        done.extend(circle.iter().cloned());
        circles.push(circle);
    }
    circles
}

fn reached_from(file: &str, arrows: &BTreeMap<&str, BTreeSet<String>>) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = vec![file];
    while let Some(file) = next.pop() {
        for to in arrows.get(file).into_iter().flatten() {
            if reached.insert(to.clone()) {
                next.push(to);
            }
        }
    }
    reached
}

/// The shortest way from a file back to it.
fn way_round<'a>(file: &'a str, arrows: &'a BTreeMap<&str, BTreeSet<String>>) -> Vec<&'a str> {
    let mut ways = VecDeque::from([vec![file]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        let last = way.last().copied().unwrap_or(file);
        for to in arrows.get(last).into_iter().flatten() {
            let further = [&way[..], &[to]].concat();
            if to == file {
                return further;
            }
            if seen.insert(to) {
                ways.push_back(further);
            }
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: Layers = Layers {
        src: "src",
        rooms: &["low", "high"],
        largest_circle: 1,
    };

    fn files(texts: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(name, text): &(&str, &str)| ((*name).into(), without_tests(text));
        texts.iter().map(owned).collect()
    }

    #[test]
    fn an_arrow_upwards_is_found() {
        let text = "use std::fmt;\n\nfn f() {\n    crate::high::b::g();\n}\n";
        let wrong = LAYERS.check(&files(&[
            ("lib.rs", "mod low;\nmod high;\npub use high::b::g;\n"),
            ("low/a.rs", text),
            ("high.rs", "pub mod b;\n"),
            ("high/b.rs", "use crate::low::c::C;\n"),
            ("low/c.rs", "use crate::Root;\n"),
        ]));
        assert_eq!(
            wrong,
            [
                "low/a.rs:4: imports crate::high::b::g from high above low",
                "low/c.rs:1: imports crate::Root from the crate's root above low",
                "high/b.rs: a circle of 3 files, with high/b.rs -> low/c.rs -> lib.rs -> high/b.rs",
            ]
        );
    }

    #[test]
    fn rooms_in_a_room_have_an_order_of_their_own() {
        let layers = Layers {
            rooms: &["low", "high/a", "high/b"],
            ..LAYERS
        };
        let wrong = layers.check(&files(&[
            ("low.rs", "use crate::high::a::A;\n"),
            ("high.rs", "use crate::high::{a, b};\n"),
            ("high/a.rs", "use crate::high::b::inner::B;\n"),
            ("high/b.rs", "use crate::low;\n"),
            ("high/b/inner.rs", ""),
            ("high/other.rs", ""),
        ]));
        assert_eq!(
            wrong,
            [
                "high/a.rs:1: imports crate::high::b::inner::B from high/b above high/a",
                "high/other.rs: it is in no room of [\"low\", \"high/a\", \"high/b\"]",
                "low.rs:1: imports crate::high::a::A from high/a above low",
            ]
        );
    }

    #[test]
    fn a_circle_is_found_and_so_is_one_smaller_than_allowed() {
        let circle = files(&[
            ("low/a.rs", "use crate::low::{b::B, c};\n"),
            ("low/b.rs", "use super::c::C;\n"),
            ("low/c.rs", "fn f() {\n    super::b::g()\n}\n"),
        ]);
        assert_eq!(
            LAYERS.check(&circle),
            ["low/b.rs: a circle of 2 files, with low/b.rs -> low/c.rs -> low/b.rs"]
        );
        let allowed = |largest_circle| Layers {
            largest_circle,
            ..LAYERS
        };
        assert!(allowed(2).check(&circle).is_empty());
        assert_eq!(
            allowed(3).check(&circle),
            ["lib.rs: the largest circle has 2 files now: write that into the table"]
        );
    }

    #[test]
    fn imports_are_read_in_every_form() {
        let files = files(&[
            ("lib.rs", ""),
            ("low.rs", ""),
            ("low/a.rs", ""),
            ("low/a/inner.rs", ""),
            ("low/b.rs", ""),
            ("high.rs", ""),
        ]);
        let of = |file: &str, text: &str| -> Vec<String> {
            let found = imports(file, &without_tests(text), &files);
            found.into_iter().map(|import| import.file).collect()
        };
        for (text, expected) in [
            ("use crate::low::b::B;", vec!["low/b.rs"]),
            (
                "use crate::{\n    high::{self, H},\n    low::b as other,\n};",
                vec!["high.rs", "high.rs", "low/b.rs"],
            ),
            ("use super::{b, Low};", vec!["low/b.rs", "low.rs"]),
            ("use super::super::high::*;", vec!["high.rs"]),
            (
                "use self::inner::I;\ninner::f();",
                vec!["low/a/inner.rs"; 2],
            ),
            (
                "let x: crate::low::b::T = $crate::high!();",
                vec!["low/b.rs", "high.rs"],
            ),
            ("use std::low::b; // no path of ours", vec![]),
            ("/// [`crate::high::H`]\n// crate::high", vec![]),
            ("use crate::low::a::inner::{};\nmod x;", vec![]),
            (
                "#[cfg(test)]\nuse crate::high::{\n    H,\n};\nuse crate::low::b;\n#[cfg(test)]\nmod tests {\n    use std::fmt;\n    use crate::high;\n}\n",
                vec!["low/b.rs"],
            ),
            (
                "    #[cfg(test)]\n    mod tests;\nuse crate::high;",
                vec!["high.rs"],
            ),
        ] {
            assert_eq!(of("low/a.rs", text), expected, "{text}");
        }
    }

    #[test]
    fn a_file_needs_a_room() {
        let files = files(&[("other.rs", ""), ("low.rs", "")]);
        assert_eq!(
            LAYERS.check(&files),
            ["other.rs: it is in no room of [\"low\", \"high\"]"]
        );
    }
}
