//! The debs that `cargo xtask packages` made, and others of another release made from them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use softmig_tests::softmig::shipped;

/// The packages that make a node, each after those that it depends on.
const NAMES: [&str; 3] = ["softmig", "softmig-controller", "softmig-node"];
/// All packages.
pub(crate) const ALL: [&str; 4] = [
    "softmig",
    "softmig-controller",
    "softmig-exporter",
    "softmig-node",
];
/// The library that packages bring.
pub(crate) const STAGED: &str = "usr/lib/softmig/staged/libsoftmig.so";

/// Where `cargo xtask packages` places them.
pub(crate) fn folder() -> PathBuf {
    shipped().with_file_name("packages")
}

/// The packages of a node of this kind, `deb` or `rpm`, in the order of [`NAMES`].
pub(crate) fn built(kind: &str) -> Result<Vec<PathBuf>> {
    named(kind, &NAMES)
}

/// All packages of this kind, in the order of [`ALL`].
pub(crate) fn all_built(kind: &str) -> Result<Vec<PathBuf>> {
    named(kind, &ALL)
}

fn named(kind: &str, names: &[&str]) -> Result<Vec<PathBuf>> {
    let folder = folder();
    let entries = std::fs::read_dir(&folder)
        .with_context(|| format!("{}: run `cargo xtask packages`", folder.display()))?;
    let mut files: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|end| end == kind));
    names
        .iter()
        .map(|name| {
            // `softmig_0.1.0...` or `softmig-0.1.0...`: the version comes after the name.
            let is_it = |file: &&PathBuf| {
                let rest = file
                    .file_name()
                    .and_then(|file| file.to_str()?.strip_prefix(name));
                rest.is_some_and(|rest| {
                    rest.trim_start_matches(['_', '-'])
                        .starts_with(|c: char| c.is_ascii_digit())
                })
            };
            let found: Vec<&PathBuf> = files.iter().filter(is_it).collect();
            ensure!(
                found.len() == 1,
                "{name}: {found:?} in {}",
                folder.display()
            );
            Ok(found[0].clone())
        })
        .collect()
}

/// The debs as those of another release, in a folder of this name: with this version, and perhaps another library.
pub(crate) fn release(
    folder: &Path,
    version: &str,
    library: Option<&Path>,
) -> Result<Vec<PathBuf>> {
    let folder = folder.join(version);
    std::fs::create_dir_all(&folder)?;
    built("deb")?
        .iter()
        .zip(NAMES)
        .map(|(deb, name)| {
            let tree = folder.join(name);
            run(Command::new("dpkg-deb").arg("-R").args([deb, &tree]))?;
            let control = tree.join("DEBIAN/control");
            let text = std::fs::read_to_string(&control)?;
            let changed = text
                .replace("Version: 0.1.0-1\n", &format!("Version: {version}\n"))
                .replace("(= 0.1.0-1)", &format!("(= {version})"));
            ensure!(changed != text, "{name} is not 0.1.0-1:\n{text}");
            std::fs::write(&control, changed)?;
            let staged = tree.join(STAGED);
            if let (Some(library), true) = (library, staged.exists()) {
                std::fs::copy(library, staged)?;
            }
            let made = folder.join(format!("{name}.deb"));
            run(Command::new("dpkg-deb")
                .args(["--root-owner-group", "-Zgzip", "-z1", "-b"])
                .args([&tree, &made]))?;
            Ok(made)
        })
        .collect()
}

/// Runs a program of this machine; what it printed.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("running {}", command.get_program().display()))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
