//! The project's pages, the tests that they name, and the tests that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A page in docs/.
pub fn page(name: &str) -> Result<String> {
    let path = root().join("../docs").join(name);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// All pages of the project.
pub fn pages() -> Result<Vec<PathBuf>> {
    fn add(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
        for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name == "target" || name.starts_with('.') {
                continue;
            }
            if path.is_dir() && !path.is_symlink() {
                add(&path, found)?;
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    add(&root().join(".."), &mut found)?;
    Ok(found)
}

/// The text of a page without its examples.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_example = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_example ^= is_fence;
        !is_example && !is_fence
    })
}

/// Where a page's links lead, but for those to other sites.
pub fn links(text: &str) -> Vec<&str> {
    let links = prose(text).flat_map(|line| line.split("](").skip(1));
    let targets = links.filter_map(|rest| Some(rest.split_once(')')?.0));
    targets.filter(|target| !target.contains("://")).collect()
}

/// The names by which a page's headings are linked to.
pub fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let name = |line: &str| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            _ => c.is_alphanumeric().then_some(c),
        });
        kept.collect()
    };
    headings.map(name).collect()
}

/// The folder of the tests on clusters.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// The names of the functions in a folder's files that have one of these lists of arguments.
pub fn functions(folder: &Path, arguments: &[&str]) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for path in files(folder)? {
        for line in fs::read_to_string(&path)?.lines() {
            let function = line
                .strip_prefix("fn ")
                .and_then(|rest| rest.split_once('('));
            names.extend(function.and_then(|(name, rest)| {
                let is_meant =
                    rest.is_empty() || arguments.iter().any(|start| rest.starts_with(start));
                is_meant.then(|| name.to_owned())
            }));
        }
    }
    Ok(names)
}

/// The names of the tests in a folder's files that need no cluster, inside modules too.
pub fn plain_tests(folder: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for path in files(folder)? {
        let text = fs::read_to_string(&path)?;
        let mut lines = text.lines().map(str::trim_start);
        while lines.any(|line| line == "#[test]") {
            // Other attributes may be between.
            let function = lines.find_map(|line| line.strip_prefix("fn "));
            let name = function.and_then(|rest| rest.split_once('('));
            names.extend(name.map(|(name, _)| name.to_owned()));
        }
    }
    Ok(names)
}

/// The tests that macros make of lists: `module::name` for each line `name: "..."`. The module is named above the
/// list, or the macro has one or several.
pub fn listed(folder: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for path in files(folder)? {
        let text = fs::read_to_string(&path)?;
        let modules_of_macros: Vec<&str> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("mod ")?.strip_suffix(" {"))
            .collect();
        let mut module = None;
        for line in text.lines() {
            let trimmed = line.trim();
            if line.ends_with("! {") || line == "}" {
                module = None;
            } else if let Some(rest) = trimmed.strip_prefix("mod ")
                && trimmed.ends_with(';')
            {
                module = rest.split_whitespace().next();
            } else if let Some((name, _)) = trimmed.split_once(": \"") {
                let modules = module.map_or(modules_of_macros.clone(), |module| vec![module]);
                names.extend(modules.iter().map(|module| format!("{module}::{name}")));
            }
        }
    }
    Ok(names)
}

/// The files in a folder and those within.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

/// The words of a page that are in backticks and look like the name of a test.
pub fn named(text: &str) -> BTreeSet<String> {
    let is_name = |word: &&str| {
        word.matches('_').count() > 3
            && word
                .chars()
                .all(|c| c == '_' || c == ':' || c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    text.split('`').filter(is_name).map(str::to_owned).collect()
}
