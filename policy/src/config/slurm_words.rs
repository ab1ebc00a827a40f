//! `[slurm]`: words of the site's own in settings that softmig.conf makes.

use crate::config::suggest::meant;
use crate::slurm::plain::is_plain;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// The settings of softmig.conf that are lists.
const LISTS: [&str; 8] = [
    "AccountingStorageEnforce",
    "AccountingStorageTRES",
    "CliFilterPlugins",
    "GresTypes",
    "JobSubmitPlugins",
    "PrologFlags",
    "SelectTypeParameters",
    "TaskPlugin",
];

/// The table as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct SlurmTable(BTreeMap<String, Spanned<Vec<String>>>);

/// Words to add to each setting.
#[derive(Clone, Debug, Default)]
pub struct SlurmWords(BTreeMap<String, Vec<String>>);

impl SlurmWords {
    /// The words for a setting, by Slurm's name of it.
    pub fn get(&self, setting: &str) -> &[String] {
        self.0.get(setting).map_or(&[], Vec::as_slice)
    }
}

impl SlurmTable {
    /// Checks the table; an error comes with its place in the file.
    pub(crate) fn check(self) -> Result<SlurmWords, (std::ops::Range<usize>, String)> {
        let mut words = BTreeMap::new();
        for (key, list) in self.0 {
            let span = list.span();
            if !LISTS.contains(&key.as_str()) {
                let message = format!(
                    "softmig.conf has no list {key}, so write it into slurm.conf; {}",
                    meant(&key, LISTS.into_iter())
                );
                return Err((span, message));
            }
            let list = list.into_inner();
            let is_word = |word: &&String| {
                !word.is_empty()
                    && word.chars().all(is_plain)
                    && !word.contains([' ', ',', '#', '\\', '"', '='])
            };
            if let Some(word) = list.iter().find(|word| !is_word(word)) {
                return Err((span, format!("{key} has \"{word}\", which is not one word")));
            }
            words.insert(key, list);
        }
        Ok(SlurmWords(words))
    }
}

#[cfg(test)]
mod tests {
    use crate::Policy;

    #[test]
    fn words_are_for_lists_of_softmig_conf() {
        let policy = Policy::parse("[slurm]\nTaskPlugin = [\"task/affinity\"]\n").unwrap();
        assert_eq!(policy.slurm_words().get("TaskPlugin"), ["task/affinity"]);
        assert!(policy.slurm_words().get("GresTypes").is_empty());
        for (line, said) in [
            ("TaskPlugins = [\"x\"]", "did you mean TaskPlugin?"),
            (
                "SelectType = [\"x\"]",
                "softmig.conf has no list SelectType",
            ),
            ("TaskPlugin = [\"a,b\"]", "\"a,b\", which is not one word"),
            ("TaskPlugin = [\"\"]", "which is not one word"),
        ] {
            let error = Policy::parse(&format!("[slurm]\n{line}\n")).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(said) && error.contains("line 2"), "{error}");
        }
    }
}
