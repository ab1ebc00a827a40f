//! Words that the pages do without, since a sentence with one of them mostly has to be read twice. Comments and names of
//! functions do without some of them too.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use regex::Regex;
use softmig_tests::documents::{pages, root};

/// The words that comments and names of functions do without too.
const PEOPLE: (&str, &str) = (
    r"(?i)\b(?:nobody|somebody|anybody|everybody)s?\b|(?i)\bwhoever\b",
    "the user, the job, no other job",
);

/// The opening that comments do without, unless they ask.
const OPENING: (&str, &str) = (
    r"//[/!]? ?(?:What|Who) [^?]*$",
    "a sentence that begins with its subject",
);

const STANDS: (&str, &str) = (r"(?i)\b(?:stands?|stood)\b", "is, are, was");
const ALL_THE_SAME: (&str, &str) = (r"(?i)\ball the same\b", "still, anyway");
const IS_NO: (&str, &str) = (r"\bis (?:no \w+|none\b)", "is not a, none is");
const HE: (&str, &str) = (r"\b(?:[Hh]e|[Hh]is|[Hh]im)\b", "they");
const SO_MANY: (&str, &str) = (
    r"\b[Ss]o (?:many|much|long)\b",
    "this number, this time, or its name",
);

/// The words that pages do without, each with what to write instead.
const WORDS: &[(&str, &str)] = &[
    PEOPLE,
    STANDS,
    ALL_THE_SAME,
    (
        r"(?m)(?:^|[.:;] )(?:So (?:long|much|often|many)|What|Who) [^?]*?[.\n]",
        "a sentence that begins with its subject",
    ),
    IS_NO,
    (r"\b(?:what|so|as) ever\b", "as usual"),
    HE,
];

/// The words that comments do without too. Names may have them.
const IN_COMMENTS: [(&str, &str); 5] = [STANDS, ALL_THE_SAME, IS_NO, HE, SO_MANY];

/// They look like one of those.
const GOOD: [&str; 2] = ["is no longer", "is no more"];

/// Pages that measurements write.
const GENERATED: &str = "bench/results";

/// The folders whose comments and names of functions are checked.
const FOLDERS: [&str; 20] = [
    "bench",
    "cli-filter",
    "epilog",
    "exporter",
    "fuzz",
    "gate",
    "hook",
    "job-submit",
    "metrics",
    "monitor",
    "node",
    "nvml",
    "policy",
    "prolog",
    "proof",
    "rm",
    "softmig",
    "tests",
    "usage",
    "xtask",
];

/// The name of a function or module that a line defines.
const NAME: &str = r#"^(?:extern "C"|[^"])*?\b(?:fn|mod) (\w+)"#;

/// Checks the pages of the project, and the comments of some folders.
pub(crate) fn check() -> Result<()> {
    let mut found = Vec::new();
    for page in pages()? {
        let name = page.strip_prefix(root().join("..")).unwrap_or(&page);
        if name.starts_with(GENERATED) {
            continue;
        }
        let text = fs::read_to_string(&page).with_context(|| page.display().to_string())?;
        for (line, word, instead) in unwanted(&text)? {
            found.push(format!(
                "{}:{line}: \"{word}\"; instead: {instead}",
                name.display()
            ));
        }
    }
    let names = Regex::new(NAME)?;
    let mut patterns = Vec::new();
    for (pattern, instead) in [PEOPLE, OPENING] {
        patterns.push((Regex::new(pattern)?, instead, Some(&names)));
    }
    for (pattern, instead) in IN_COMMENTS {
        patterns.push((Regex::new(pattern)?, instead, None));
    }
    for folder in FOLDERS {
        for file in sources(&root().join("..").join(folder))? {
            let name = file.strip_prefix(root().join("..")).unwrap_or(&file);
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let name = name.display().to_string();
            for (words, instead, names) in &patterns {
                for (line, word) in in_comments(words, &text, *names) {
                    found.push(format!("{name}:{line}: \"{word}\"; instead: {instead}"));
                }
            }
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    bail!("{}", found.join("\n"))
}

/// The Rust files below a folder.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Line and word of all unwanted words in lines that are comments, and in names of functions and modules if `names` finds
/// them.
fn in_comments(words: &Regex, text: &str, names: Option<&Regex>) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let checked = if text.trim_start().starts_with("//") {
            text.to_owned()
        } else if let Some(name) = names.and_then(|names| names.captures(text)) {
            name[1].replace('_', " ")
        } else {
            continue;
        };
        let all = words.find_iter(&checked).map(|word| word.as_str());
        let all = all.filter(|word| !GOOD.contains(word));
        found.extend(all.map(|word| (line, word.to_owned())));
    }
    found
}

/// Line, word and what to write instead, of all in a page's prose.
fn unwanted(page: &str) -> Result<Vec<(usize, String, &'static str)>> {
    let prose = prose(page);
    let mut found = Vec::new();
    for &(pattern, instead) in WORDS {
        let words = Regex::new(pattern)?;
        for word in words
            .find_iter(&prose)
            .filter(|word| !GOOD.contains(&word.as_str()))
        {
            let line = 1 + prose[..word.start()].matches('\n').count();
            let shown: String = word.as_str().trim().chars().take(40).collect();
            found.push((line, shown, instead));
        }
    }
    found.sort();
    Ok(found)
}

/// A page with blanks in the place of code.
fn prose(page: &str) -> String {
    let mut prose = String::with_capacity(page.len());
    let mut is_block = false;
    for line in page.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
            prose.push('\n');
            continue;
        }
        if is_block {
            prose.push('\n');
            continue;
        }
        prose.push_str(line);
    }
    let mut is_code = false;
    let blanked = prose.chars().map(|letter| {
        is_code ^= letter == '`';
        match letter {
            '\n' => '\n',
            _ if is_code || letter == '`' => '_',
            _ => letter,
        }
    });
    blanked.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_prose_and_not_in_code() {
        let page =
            "# Page\n\nNobody stands here, `nobody` aside.\n```\nnobody\n```\nSo often it is.\n";
        let found = unwanted(page).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|(line, word, _)| (*line, word.as_str()))
            .collect();
        assert_eq!(
            found,
            [(3, "Nobody"), (3, "stands"), (7, "So often it is.")]
        );
    }

    #[test]
    fn words_are_found_in_comments_and_names_of_functions() {
        let text = [
            "//! Somebodys.",
            "    // For nobody.",
            "fn nobody_waits() {}",
            "let nobody = 1;",
            "/// A body.",
            "mod by_everybody {",
            "    unsafe extern \"C\" fn a_somebody() {}",
        ]
        .join("\n");
        let names = Regex::new(NAME).unwrap();
        let found = in_comments(&Regex::new(PEOPLE.0).unwrap(), &text, Some(&names));
        let found: Vec<_> = found
            .iter()
            .map(|(line, word)| (*line, word.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                (1, "Somebodys"),
                (2, "nobody"),
                (3, "nobody"),
                (6, "everybody"),
                (7, "somebody")
            ]
        );
    }

    #[test]
    fn comments_that_open_with_what_or_who_are_found() {
        let text = [
            "//! What it is.",
            "    /// Who asks.",
            "// What is it?",
            "/// It is what it was. What else?",
            "fn what_it_is() {}",
        ]
        .join("\n");
        let names = Regex::new(NAME).unwrap();
        let found = in_comments(&Regex::new(OPENING.0).unwrap(), &text, Some(&names));
        assert_eq!(
            found,
            [
                (1, "//! What it is.".to_owned()),
                (2, "/// Who asks.".to_owned())
            ]
        );
    }

    #[test]
    fn comments_do_without_words_that_names_may_have() {
        let text = [
            "// It stands here.",
            "// It is no page, and is no longer one.",
            "/// It waits so long.",
            "/// It gives him all the same.",
            "// It is known so far.",
            "fn he_stands() {}",
        ]
        .join("\n");
        let mut found = Vec::new();
        for (pattern, _) in IN_COMMENTS {
            found.extend(in_comments(&Regex::new(pattern).unwrap(), &text, None));
        }
        found.sort();
        let found: Vec<_> = found
            .iter()
            .map(|(line, word)| (*line, word.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                (1, "stands"),
                (2, "is no page"),
                (3, "so long"),
                (4, "all the same"),
                (4, "him")
            ]
        );
    }

    #[test]
    fn what_is_wanted_passes() {
        let page =
            "What is a slice?\n\nIt is no longer there, and there is no more, and that is all.\n";
        let found = unwanted(page).unwrap();
        assert_eq!(found.len(), 0, "{found:?}");
        assert_eq!(unwanted("He is no user.\n").unwrap().len(), 2);
    }
}
