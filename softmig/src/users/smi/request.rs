//! The options of nvidia-smi that matter here: the form of its output, and whether it goes to a file.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The form of nvidia-smi's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// No processes that can be told apart.
    Untouched,
    /// The table, the list of `-q`, or XML.
    Report,
    /// The lines of a query for processes, with a process id as an additional first field.
    Apps,
    /// The lines of `pmon`.
    Pmon,
}

/// nvidia-smi's options as it gets them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The form of its output.
    pub(crate) form: Form,
    words: Vec<OsString>,
    log: Option<Log>,
}

/// The option that sends the output to a file.
#[derive(Debug, PartialEq, Eq)]
struct Log {
    /// Which word holds the file's name.
    at: usize,
    /// How much of the word is before it.
    before: usize,
}

/// Queries for processes.
const APPS: [&[u8]; 2] = [b"--query-compute-apps", b"--query-accounted-apps"];
/// The option for a file.
const LOG: [&[u8]; 2] = [b"-f", b"--filename"];

impl Request {
    /// Reads the caller's words. nvidia-smi takes `--option=value`, its newer versions also `--option value` and
    /// `-o=value`; where an option is repeated, they go by the last one.
    pub(crate) fn read(words: &[OsString]) -> Self {
        let mut request = Self {
            form: form(words.first()),
            words: words.to_vec(),
            log: None,
        };
        let mut fields = Vec::new();
        for at in 0..words.len() {
            if let Some(value) = value_of(&APPS, words, at) {
                fields.push(value);
            }
            if let Some((at, before)) = value_of(&LOG, words, at) {
                request.log = Some(Log { at, before });
            }
        }
        if request.form == Form::Report && !fields.is_empty() {
            request.ask_for_pids(&fields);
        }
        request
    }

    /// Puts the process id before the fields that were asked for: first, since only there no other field can be taken
    /// for it.
    fn ask_for_pids(&mut self, fields: &[(usize, usize)]) {
        self.form = Form::Apps;
        for &(at, before) in fields {
            let Some(word) = self.words.get_mut(at) else {
                continue;
            };
            let (option, value) = word.as_bytes().split_at(before);
            if value.is_empty() {
                // Nothing is asked for, and nvidia-smi has its own words for that.
                self.form = Form::Untouched;
            } else {
                *word = OsString::from_vec([option, b"pid,", value].concat());
            }
        }
    }

    /// The file that the output goes to.
    pub(crate) fn log(&self) -> Option<&Path> {
        let log = self.log.as_ref()?;
        let word = self.words.get(log.at)?.as_bytes();
        Some(Path::new(OsStr::from_bytes(word.get(log.before..)?)))
    }

    /// The words for nvidia-smi.
    pub(crate) fn words(&self) -> &[OsString] {
        &self.words
    }

    /// The words for nvidia-smi, with the output to another file.
    pub(crate) fn words_with_log(&self, file: &Path) -> Vec<OsString> {
        let mut words = self.words.clone();
        if let Some(log) = &self.log
            && let Some(word) = words.get_mut(log.at)
        {
            let option = word.as_bytes().get(..log.before).unwrap_or_default();
            *word = OsString::from_vec([option, file.as_os_str().as_bytes()].concat());
        }
        words
    }
}

/// The form by the first word, which alone can be a command.
fn form(first: Option<&OsString>) -> Form {
    match first.map(|word| word.as_bytes()) {
        Some(b"pmon") => Form::Pmon,
        None | Some([b'-', ..]) => Form::Report,
        Some(_) => Form::Untouched,
    }
}

/// The value of an option that is in the word `at`: its word, and how much of that is before it.
fn value_of(names: &[&[u8]], words: &[OsString], at: usize) -> Option<(usize, usize)> {
    let word = words.get(at)?.as_bytes();
    let name = names.iter().find(|name| word.starts_with(name))?;
    match word.get(name.len()..)? {
        [b'=', ..] => Some((at, name.len() + 1)),
        [] if at + 1 < words.len() => Some((at + 1, 0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(words: &[&str]) -> Request {
        Request::read(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_form_follows_from_the_words() {
        for (words, form) in [
            (&[][..], Form::Report),
            (&["-q", "-x"], Form::Report),
            (&["-l", "1"], Form::Report),
            (&["--query-gpu=name", "--format=csv"], Form::Report),
            (&["--query-compute-apps=name", "--format=csv"], Form::Apps),
            (&["--format=csv", "--query-accounted-apps=pid"], Form::Apps),
            (&["--query-compute-apps", "name"], Form::Apps),
            // nvidia-smi refuses these.
            (&["--query-compute-apps"], Form::Report),
            (&["--query-compute-apps="], Form::Untouched),
            (&["--query-compute-appsx=name"], Form::Report),
            (&["-i", "0", "pmon"], Form::Report),
            (&["pmon", "-c", "1"], Form::Pmon),
            (&["dmon"], Form::Untouched),
            (&["topo", "-m"], Form::Untouched),
            (&[""], Form::Untouched),
        ] {
            assert_eq!(request(words).form, form, "{words:?}");
        }
    }

    #[test]
    fn the_process_id_comes_before_what_was_asked_for() {
        for (words, given) in [
            (
                &["--query-compute-apps=name,pid", "--format=csv"][..],
                &["--query-compute-apps=pid,name,pid", "--format=csv"][..],
            ),
            (
                &["--query-compute-apps", "name"],
                &["--query-compute-apps", "pid,name"],
            ),
            (
                &["-i", "0", "--query-accounted-apps=pid"],
                &["-i", "0", "--query-accounted-apps=pid,pid"],
            ),
            (&["--query-gpu=name"], &["--query-gpu=name"]),
            (&["pmon", "-s", "um"], &["pmon", "-s", "um"]),
        ] {
            assert_eq!(request(words).words(), given, "{words:?}");
        }
    }

    #[test]
    fn the_last_file_is_the_one_that_is_written() {
        for (words, log, given) in [
            (&["-q", "-f", "a"][..], Some("a"), &["-q", "-f", "X"][..]),
            (&["-q", "-f=a"], Some("a"), &["-q", "-f=X"]),
            (&["--filename=a b"], Some("a b"), &["--filename=X"]),
            (&["--filename", "a"], Some("a"), &["--filename", "X"]),
            (
                &["-f", "a", "--filename=b"],
                Some("b"),
                &["-f", "a", "--filename=X"],
            ),
            (
                &["pmon", "-f", "a", "-c", "1"],
                Some("a"),
                &["pmon", "-f", "X", "-c", "1"],
            ),
            (&["--filename="], Some(""), &["--filename=X"]),
            (&["-f"], None, &["-f"]),
            (&["-q", "-fa"], None, &["-q", "-fa"]),
        ] {
            let request = request(words);
            assert_eq!(request.log(), log.map(Path::new), "{words:?}");
            assert_eq!(request.words_with_log(Path::new("X")), given, "{words:?}");
        }
    }

    #[test]
    fn words_that_are_no_text_are_passed_on() {
        let word = OsString::from_vec(b"--filename=\xff".to_vec());
        let request = Request::read(std::slice::from_ref(&word));
        assert_eq!(request.words(), [word]);
        assert_eq!(
            request.log().map(|path| path.as_os_str().as_bytes()),
            Some(&b"\xff"[..])
        );
    }
}
