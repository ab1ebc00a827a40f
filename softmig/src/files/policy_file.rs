//! policy.toml for the commands that look at all of it.

use anyhow::{Context as _, anyhow};
use softmig_policy::Policy;
use std::io::ErrorKind;
use std::path::Path;

/// A policy, and the text that it was read from.
pub(crate) struct PolicyFile {
    pub(crate) text: String,
    pub(crate) policy: Policy,
}

/// Reads it as slurmctld does, or says why it cannot be.
pub(crate) fn read(path: &Path) -> anyhow::Result<PolicyFile> {
    let name = path.display();
    let bytes = std::fs::read(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "{name}: the file does not exist; use --policy FILE, or run this where softmig is installed"
        ),
        _ => anyhow!("{name}: {error}"),
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = error.as_bytes().get(..error.utf8_error().valid_up_to());
        let ends = good
            .unwrap_or_default()
            .iter()
            .filter(|&&byte| byte == b'\n');
        let line = ends.count() + 1;
        anyhow!("{name}: line {line}: a letter that is not UTF-8; save the file as UTF-8")
    })?;
    let policy = Policy::parse_whole(&text).with_context(|| name.to_string())?;
    Ok(PolicyFile { text, policy })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_slurmctld_would_not_take_is_told_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.toml");
        let told = || {
            let error = read(&path).map(|file| file.policy.summary()).unwrap_err();
            format!("{error:#}").replace(&format!("{}: ", path.display()), "")
        };
        assert_eq!(
            told(),
            "the file does not exist; use --policy FILE, or run this where softmig is installed"
        );
        std::fs::write(&path, "# a\n").unwrap();
        assert_eq!(
            told(),
            "it has no [gpu.*] table; is it empty, or still being written?"
        );
        std::fs::write(&path, b"# a\n# \xe4\n").unwrap();
        assert_eq!(
            told(),
            "line 2: a letter that is not UTF-8; save the file as UTF-8"
        );
        std::fs::write(&path, "[gpu.a]\n").unwrap();
        assert!(told().starts_with("line 1: [gpu.a]: "), "{}", told());
    }
}
