//! Finds out whether the files that 'softmig install' placed are still there.

use crate::machine::setup::record::Record;
use crate::machine::setup::role::Role;
use crate::output::say::counted;
use crate::site::check::finding::{Code, Finding};
use std::path::Path;

/// The files that each GPU node needs, however it was installed.
const OF_NODE: [&str; 3] = [
    "/usr/lib/systemd/system/softmig-monitor.service",
    "/usr/lib/systemd/system/run-softmig.mount",
    "/usr/libexec/softmig-monitor",
];

/// Compares the record with the machine below `root`.
pub(crate) fn check(record: &Record, root: &Path) -> Vec<Finding> {
    let of_node = record
        .roles
        .contains(&Role::GpuNode)
        .then_some(OF_NODE)
        .into_iter()
        .flatten()
        .map(Path::new);
    let files = record.files.iter().map(|file| file.as_path());
    let mut missing: Vec<&Path> = files
        .chain(of_node)
        .filter(|file| !root.join(file.strip_prefix("/").unwrap_or(file)).exists())
        .collect();
    missing.sort();
    missing.dedup();
    let Some(first) = missing.first() else {
        return Vec::new();
    };
    let what = match missing.len() {
        1 => "it was installed and is gone".to_string(),
        count => format!(
            "it and {} were installed and are gone",
            counted(count - 1, "other")
        ),
    };
    let roles: Vec<&str> = record.roles.iter().map(|role| role.as_str()).collect();
    vec![Finding::new(
        Code::InstalledFiles,
        first.display().to_string(),
        what,
        format!(
            "install them anew: 'softmig install {}' out of softmig's tree, or softmig's package",
            roles.join(" ")
        ),
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_that_is_gone_is_named() {
        let root = tempfile::tempdir().unwrap();
        let record = Record {
            roles: vec![Role::SubmitHost],
            files: vec!["/usr/bin/softmig".into(), "/usr/share/a".into()],
        };
        let said = || {
            let found = check(&record, root.path());
            found.iter().map(ToString::to_string).collect::<String>()
        };
        assert!(said().contains(
            "INSTALLED_FILES /usr/bin/softmig: it and 1 other were installed and are gone"
        ));
        fs::create_dir_all(root.path().join("usr/bin")).unwrap();
        fs::create_dir_all(root.path().join("usr/share")).unwrap();
        fs::write(root.path().join("usr/bin/softmig"), "").unwrap();
        assert!(said().contains("/usr/share/a: it was installed and is gone; install"));
        fs::write(root.path().join("usr/share/a"), "").unwrap();
        assert_eq!(said(), "");
    }
}
