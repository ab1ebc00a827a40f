//! `cargo xtask count`: lines of Rust that are code, which is neither comment nor blank, in the product and in tests.
//!
//! A test is what is in a folder `tests`, in the fuzz targets, in an item with `#[cfg(test)]`, or in a file of such a module.
//! The driver that tests use is in `tests` too. All else is product, this program included.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::place::{git, output, project};

/// Prints the lines of each crate, or of each of these folders, and all.
pub(crate) fn count(folders: &[PathBuf]) -> Result<()> {
    let listed = output(&mut git(&["ls-files", "*.rs"]))?;
    let mut files = BTreeMap::new();
    for name in listed.lines() {
        let text = fs::read_to_string(project().join(name)).with_context(|| name.to_owned())?;
        files.insert(
            PathBuf::from(name),
            File::read(&text).with_context(|| name.to_owned())?,
        );
    }
    let tests = files_of_tests(&files);
    let mut parts: BTreeMap<&Path, Lines> = BTreeMap::new();
    for (path, file) in &files {
        let part = match folders {
            [] => path.iter().next().map(Path::new),
            _ => folders
                .iter()
                .map(PathBuf::as_path)
                .find(|it| path.starts_with(it)),
        };
        let Some(part) = part else { continue };
        let lines = parts.entry(part).or_default();
        lines.test += file.test.len();
        let rest = if tests.contains(path) {
            &mut lines.test
        } else {
            &mut lines.product
        };
        *rest += file.product.len();
    }
    println!("{:>8} {:>8}  part", "product", "test");
    for (part, lines) in &parts {
        println!("{:8} {:8}  {}", lines.product, lines.test, part.display());
    }
    let product: usize = parts.values().map(|lines| lines.product).sum();
    let test: usize = parts.values().map(|lines| lines.test).sum();
    println!("{product:8} {test:8}  in all");
    Ok(())
}

#[derive(Default)]
struct Lines {
    product: usize,
    test: usize,
}

/// The numbers of the lines of code of a file, and the modules that it declares for tests alone.
#[derive(Default)]
struct File {
    product: BTreeSet<usize>,
    test: BTreeSet<usize>,
    modules: Vec<String>,
}

impl File {
    fn read(text: &str) -> Result<File> {
        let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{error}"))?;
        let mut file = File::default();
        let lines: Vec<&str> = text.lines().collect();
        file.add(tokens, false, &lines);
        let test = std::mem::take(&mut file.test);
        file.test = test.difference(&file.product).copied().collect();
        Ok(file)
    }

    /// Adds the lines of these tokens. Behind `#[cfg(test)]` they are a test's, up to the end of the item.
    fn add(&mut self, tokens: TokenStream, is_test: bool, text: &[&str]) {
        let mut is_item_of_tests = false;
        let mut before: [String; 2] = Default::default();
        for token in tokens {
            let is_test = is_test || is_item_of_tests;
            let span = token.span();
            match &token {
                TokenTree::Group(group) => {
                    let attribute = group.stream().to_string().replace(' ', "");
                    is_item_of_tests |=
                        before[1] == "#" && attribute.starts_with("cfg(") && names_test(&attribute);
                    for edge in [group.span_open(), group.span_close()] {
                        self.line(edge.start().line, is_test || is_item_of_tests, text);
                    }
                    self.add(group.stream(), is_test || is_item_of_tests, text);
                    is_item_of_tests &= group.delimiter() != Delimiter::Brace;
                }
                _ => (span.start().line..=span.end().line)
                    .for_each(|line| self.line(line, is_test, text)),
            }
            if token.to_string() == ";" {
                if is_item_of_tests && before[0] == "mod" {
                    self.modules.push(before[1].clone());
                }
                is_item_of_tests = false;
            }
            before = [std::mem::take(&mut before[1]), token.to_string()];
        }
    }

    /// Adds a line, but for a comment: those of documentation are tokens.
    fn line(&mut self, number: usize, is_test: bool, text: &[&str]) {
        let line = text.get(number - 1).map_or("", |line| line.trim());
        if !line.is_empty() && !line.starts_with("//") {
            if is_test {
                &mut self.test
            } else {
                &mut self.product
            }
            .insert(number);
        }
    }
}

/// Whether an attribute's condition names `test`, and not its opposite.
fn names_test(attribute: &str) -> bool {
    let words = attribute.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.clone().any(|word| word == "test") && !attribute.contains("not(test")
}

/// The files of the folders of tests and of modules for tests, with the modules within.
fn files_of_tests(files: &BTreeMap<PathBuf, File>) -> BTreeSet<PathBuf> {
    let in_folder = |path: &Path| path.iter().any(|part| part == "tests" || part == "fuzz");
    let mut roots = Vec::new();
    for (path, file) in files {
        let stem = path.file_stem().unwrap_or_default();
        let is_root = ["lib", "main", "mod"].iter().any(|name| stem == *name);
        let folder = match path.parent() {
            Some(folder) if is_root => folder.to_owned(),
            _ => path.with_extension(""),
        };
        roots.extend(file.modules.iter().map(|module| folder.join(module)));
    }
    let is_test = |path: &&PathBuf| {
        in_folder(path)
            || roots
                .iter()
                .any(|root| path.starts_with(root) || path.with_extension("") == *root)
    };
    files.keys().filter(is_test).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_tests_and_comments_are_told_apart() {
        let text = "//! A page.\n\n/// A function.\nfn f() -> &'static str {\n    // Why.\n    \"two\n    lines\"\n}\n\n\
                    #[cfg(test)]\nmod tests {\n    #[test]\n    fn t() {}\n}\n\n#[cfg(test)]\nmod more;\n";
        let file = File::read(text).unwrap();
        assert_eq!(file.product.len(), 4 + 2, "{:?}", file.product);
        assert_eq!(file.modules, ["more"]);
        assert!(file.test.contains(&13), "{:?}", file.test);
    }
}
