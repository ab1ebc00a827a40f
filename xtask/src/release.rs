//! `cargo xtask release`: all that is handed out of a version, in `target/release-VERSION`. The same commit makes the same
//! bytes, but for the answer on advisories, which is only printed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use softmig_tests::softmig::shipped;

use crate::packaging::{self, SHIPPED};
use crate::place::{git, output, project, run, target};
use crate::steps::cargo;
use crate::tools;

/// The version that is released.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Makes packages, the tree that they have as an archive, the list of what is linked into them, and notes.
pub(crate) fn release() -> Result<()> {
    let changed = output(&mut git(&["status", "--porcelain"]))?;
    ensure!(
        changed.is_empty(),
        "a release is a commit, and these files are not in it:\n{changed}"
    );
    let notes = notes()?;
    println!("{}", tools::advisories()?);

    packaging::build()?;
    let folder = target().join(format!("release-{VERSION}"));
    packaging::empty(&folder)?;
    for (name, bytes) in packaging::contents(&target().join("packages"))? {
        fs::write(folder.join(&name), bytes).with_context(|| name.clone())?;
    }
    archive(&folder.join(format!("softmig-{VERSION}-x86_64-linux.tar.gz")))?;
    let components = serde_json::to_string_pretty(&components()?)?;
    fs::write(
        folder.join(format!("softmig-{VERSION}.cdx.json")),
        components,
    )?;
    fs::write(folder.join("NOTES.md"), notes)?;
    checksums(&folder)?;
    println!("{}", folder.display());
    Ok(())
}

/// The part of CHANGELOG.md on this version.
fn notes() -> Result<String> {
    let changes = fs::read_to_string(project().join("CHANGELOG.md"))?;
    let mut sections = changes.split("\n## ");
    let Some(notes) = sections.find(|section| section.starts_with(VERSION)) else {
        bail!("CHANGELOG.md has no section `## {VERSION}`");
    };
    if notes
        .lines()
        .next()
        .is_some_and(|title| title.contains("unreleased"))
    {
        println!(
            "CHANGELOG.md calls {VERSION} unreleased: write its date there before you tag it."
        );
    }
    Ok(format!("# softmig {}\n", notes.trim_end()))
}

/// Packs the tree of the packages, always into the same bytes.
fn archive(to: &Path) -> Result<()> {
    let tar = to.with_extension("");
    run(Command::new("tar")
        .args([
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--mode=u=rwX,go=rX,a-s",
            "--format=gnu",
        ])
        .arg(format!("--mtime=@{}", packaging::source_date()?))
        .arg("--create")
        .arg(format!("--file={}", tar.display()))
        .args([
            "--transform",
            &format!("s,^\\.,softmig-{VERSION},"),
            "--directory",
        ])
        .arg(shipped())
        .arg("."))?;
    // Without the name and the time of the file.
    run(Command::new("gzip")
        .args(["--no-name", "--force", "--best"])
        .arg(tar))
}

/// The crates that are linked into what is shipped, in the form of CycloneDX 1.5.
fn components() -> Result<serde_json::Value> {
    let mut tree = cargo(&[
        "tree",
        "--locked",
        "--edges=normal,no-proc-macro",
        "--prefix=none",
        "--format={p}|{l}",
    ]);
    tree.args(["--target=x86_64-unknown-linux-gnu"]);
    tree.args(SHIPPED.map(|name| format!("--package={name}")));
    let tree = output(&mut tree)?;
    let mut crates = BTreeMap::new();
    for line in tree.lines().filter(|line| !line.trim().is_empty()) {
        let (package, license) = line.split_once('|').with_context(|| line.to_owned())?;
        let mut words = package.split_whitespace();
        let (Some(name), Some(version)) = (words.next(), words.next()) else {
            bail!("cargo tree says: {line}");
        };
        let version = version.trim_start_matches('v');
        // (*) marks what was shown before.
        crates.insert(
            (name, version),
            license.trim_end_matches(" (*)").replace('/', " OR "),
        );
    }
    let components: Vec<_> = crates
        .iter()
        .map(|((name, version), license)| {
            json!({
                "type": "library",
                "name": name,
                "version": version,
                "purl": format!("pkg:cargo/{name}@{version}"),
                "licenses": [{ "expression": license }],
            })
        })
        .collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": "softmig", "version": VERSION } },
        "components": components,
    }))
}

/// Writes SHA256SUMS, which `sha256sum --check` reads.
fn checksums(folder: &Path) -> Result<()> {
    let names: Vec<String> = packaging::contents(folder)?.into_keys().collect();
    let sums = output(
        Command::new("sha256sum")
            .arg("--")
            .args(names)
            .current_dir(folder),
    )?;
    fs::write(folder.join("SHA256SUMS"), sums).context("writing SHA256SUMS")
}
