//! The site's own lines below refusals: one for a code, or one for all codes.

use std::collections::BTreeMap;

use crate::config::error::{PolicyError, at_the_top, line_of};
use crate::config::refusal_code::Code;
use crate::config::suggest::meant;
use crate::slurm::plain::is_plain;

/// The lines of `[messages]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Messages(BTreeMap<String, String>);

/// The table as it is written.
pub(crate) type Table = BTreeMap<String, toml::Spanned<String>>;

/// For every code that has no line of its own.
const ANY: &str = "any";
/// A user reads it in a terminal.
const LONGEST: usize = 300;

impl Messages {
    /// Checks the table. `text` is the whole policy.toml.
    pub(crate) fn check(table: Table, text: &str) -> Result<Self, PolicyError> {
        let mut messages = Self::default();
        for (key, message) in table {
            let line = line_of(text, &message.span());
            let wrong = |message: String| PolicyError::new("[messages]", line, message);
            let message = message.into_inner();
            if message.trim().is_empty()
                || message.len() > LONGEST
                || !message.chars().all(is_plain)
            {
                return Err(wrong(format!(
                    "{key} is not one line of plain ASCII with 1 to {LONGEST} characters"
                )));
            }
            let is_code = Code::ALL.iter().any(|code| code.as_str() == key);
            if key != ANY && !is_code {
                return Err(wrong(unknown(&key)));
            }
            messages.0.insert(key, message);
        }
        Ok(messages)
    }

    pub(crate) fn for_code(&self, code: Code) -> Option<&str> {
        let own = self.0.get(code.as_str()).or(self.0.get(ANY));
        own.map(String::as_str)
    }
}

fn unknown(key: &str) -> String {
    if let Some(told) = at_the_top(key) {
        return told;
    }
    let known = Code::ALL.iter().map(|code| code.as_str()).chain([ANY]);
    format!("unknown code {key}; {}", meant(key, known))
}

#[cfg(test)]
mod tests {
    use crate::{Code, Policy};

    #[test]
    fn a_code_has_its_own_line_or_the_one_for_all() {
        let policy = Policy::parse(
            "[messages]\nany = \"Ask help@example.org\"\nSLICE_SIZE = \"Quarters only\"\n",
        )
        .unwrap();
        assert_eq!(policy.message(Code::SliceSize), Some("Quarters only"));
        assert_eq!(
            policy.message(Code::SliceType),
            Some("Ask help@example.org")
        );
        assert_eq!(Policy::parse("").unwrap().message(Code::SliceSize), None);
    }

    #[test]
    fn a_message_unfit_for_terminals_or_never_shown_is_an_error() {
        let error = |line: &str| {
            let text = format!("[messages]\nany = \"x\"\n{line}\n");
            Policy::parse(&text).unwrap_err().to_string()
        };
        assert_eq!(
            error("SLICE_SIZES = \"x\""),
            "line 3: [messages]: unknown code SLICE_SIZES; did you mean SLICE_SIZE?"
        );
        assert!(
            error("zzz = \"x\"").contains("unknown code zzz; known here are SLICE_IS_WHOLE_GPU,")
        );
        let plain =
            "line 3: [messages]: TAG_EDIT is not one line of plain ASCII with 1 to 300 characters";
        let long = "x".repeat(301);
        for message in ["", "  ", "a\\nb", "\\u001b[2J", "\\u00fc", &long] {
            assert_eq!(error(&format!("TAG_EDIT = \"{message}\"")), plain);
        }
        assert_eq!(
            error("TAG_EDIT = 3"),
            "line 3: [messages] TAG_EDIT: 3 is not a text in quotes"
        );
    }

    #[test]
    fn each_code_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> =
            Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(names.len(), Code::ALL.len());
    }
}
