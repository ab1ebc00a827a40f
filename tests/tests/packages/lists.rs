//! The packages' files: each staged file in one of them, and in the rpm of the same name too.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use softmig_tests::Root;
use softmig_tests::softmig::shipped;

use crate::packages::debs::{ALL, all_built, run};

/// The files of each deb, without those that only Debian's packages have.
fn of_debs() -> Result<Vec<Vec<String>>> {
    all_built("deb")?
        .iter()
        .map(|deb| {
            let list = run(Command::new("dpkg-deb").arg("-c").arg(deb))?;
            let mut files = Vec::new();
            for line in list.lines().filter(|line| !line.starts_with('d')) {
                let mut words = line.split_whitespace();
                let (mode, owner) = (words.next(), words.next());
                let path = words
                    .next_back()
                    .unwrap_or_default()
                    .trim_start_matches('.');
                assert!(matches!(owner, Some("0/0" | "root/root")), "{line}");
                assert!(matches!(mode, Some("-rw-r--r--" | "-rwxr-xr-x")), "{line}");
                if !path.ends_with("/copyright") && !path.contains("/changelog.Debian") {
                    files.push(plain(path));
                }
            }
            files.sort();
            Ok(files)
        })
        .collect()
}

/// Manual pages may be compressed.
fn plain(path: &str) -> String {
    path.trim_end_matches(".gz").to_owned()
}

#[test]
fn each_staged_file_is_in_one_package() -> Result<()> {
    let mut packages: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (files, name) in of_debs()?.into_iter().zip(ALL) {
        for file in files {
            packages.entry(file).or_default().push(name);
        }
    }
    let stage = shipped();
    let staged = run(Command::new("find")
        .arg(&stage)
        .args(["-type", "f", "-printf", "/%P\n"]))?;
    for file in staged.lines() {
        let of = packages.get(file).map_or(0, Vec::len);
        assert_eq!(of, 1, "{file} is in {of} packages");
    }
    for (file, of) in &packages {
        assert_eq!(of.len(), 1, "{file} is in {of:?}");
        assert!(
            staged.lines().any(|staged| staged == file),
            "{file} of {of:?} is in no stage"
        );
        // The site's folders, and the library that processes load.
        assert!(
            !file.starts_with("/etc/") && file != crate::packages::node::LIBRARY,
            "{file}"
        );
    }
    Ok(())
}

#[test]
fn an_rpm_has_the_files_of_the_deb() -> Result<()> {
    let (mut root, mut script) = (Root::oldest(), String::new());
    for rpm in all_built("rpm")? {
        let name = rpm
            .file_name()
            .map(Path::new)
            .expect("a file has a name")
            .to_owned();
        root = root.install(&rpm, Path::new("/root").join(&name), 0o644);
        script.push_str(&format!("rpm -qlp /root/{} && echo --;", name.display()));
    }
    let said = root.run(&["sh", "-c", &script])?.ok()?;
    let rpms = said.split_terminator("--\n");
    for ((rpm, deb), name) in rpms.zip(of_debs()?).zip(ALL) {
        let mut files: Vec<String> = rpm.lines().map(plain).collect();
        files.sort();
        assert_eq!(files, deb, "{name}");
    }
    assert_eq!(said.matches("--\n").count(), ALL.len());
    Ok(())
}
