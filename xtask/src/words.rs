//! Words that the pages do without, since a sentence with one of them mostly has to be read twice.

use std::fs;

use anyhow::{Context, Result, bail};
use regex::Regex;
use softmig_tests::documents::{pages, root};

/// Each with what to write instead.
const WORDS: &[(&str, &str)] = &[
    (
        r"(?i)\b(nobody|somebody|anybody|everybody|whoever)\b",
        "the user, the job, no other job",
    ),
    (r"(?i)\b(?:stands?|stood)\b", "is, are, was"),
    (r"(?i)\ball the same\b", "still, anyway"),
    (
        r"(?m)(?:^|[.:;] )(?:So (?:long|much|often|many)|What|Who) [^?]*?[.\n]",
        "a sentence that begins with its subject",
    ),
    (r"\bis (?:no \w+|none\b)", "is not a, none is"),
    (r"\b(?:what|so|as) ever\b", "as usual"),
    (r"\b(?:[Hh]e|[Hh]is|[Hh]im)\b", "they"),
];

/// They look like one of those.
const GOOD: [&str; 2] = ["is no longer", "is no more"];

/// Pages that measurements write.
const GENERATED: &str = "bench/results";

/// Checks the pages of the project.
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
    if found.is_empty() {
        return Ok(());
    }
    bail!("{}", found.join("\n"))
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
    fn what_is_wanted_passes() {
        let page =
            "What is a slice?\n\nIt is no longer there, and there is no more, and that is all.\n";
        let found = unwanted(page).unwrap();
        assert_eq!(found.len(), 0, "{found:?}");
        assert_eq!(unwanted("He is no user.\n").unwrap().len(), 2);
    }
}
