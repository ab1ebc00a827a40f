//! The C library that each staged program asks for: one build serves old distributions and new ones.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::library::Library;
use super::{is_at_most, list};

/// For what is loaded into other programs, containers' own among them.
const LOADED: &[u32] = &[2, 17];
/// For softmig's own programs: that of EL 8.
const PROGRAMS: &[u32] = &[2, 28];
/// Where the files that other programs load lie.
const LOADED_FROM: &str = "usr/lib/softmig";

/// The parts of glibc, which are files of their own before glibc 2.34. Nothing else is on every machine.
const GLIBC: [&str; 6] = [
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "librt.so.1",
    "libpthread.so.0",
    "ld-linux-x86-64.so.2",
];

/// Checks each program and library of the tree.
pub(super) fn check(stage: &Path) -> Result<()> {
    let mut found = Vec::new();
    binaries(stage, &mut found)?;
    ensure!(
        !found.is_empty(),
        "{} has no programs: run `cargo xtask stage`",
        stage.display()
    );
    let mut wrong = Vec::new();
    for path in &found {
        let floor = match path.starts_with(stage.join(LOADED_FROM)) {
            true => LOADED,
            false => PROGRAMS,
        };
        let library = Library::read(path)?;
        wrong.extend(
            complaints(&library, floor)
                .into_iter()
                .map(|words| format!("{}: {words}", path.display())),
        );
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n  "));
    }
    println!(
        "{}: {} programs and libraries, none asks for a newer glibc than {LOADED:?} in {LOADED_FROM} and {PROGRAMS:?} elsewhere.",
        stage.display(),
        found.len()
    );
    Ok(())
}

/// The needs of this file that not every machine meets.
fn complaints(library: &Library, floor: &[u32]) -> Vec<String> {
    let newer = library
        .versions
        .iter()
        .filter(|version| !is_at_most(version, floor));
    let others = library
        .needed
        .iter()
        .filter(|name| !GLIBC.contains(&name.as_str()));
    [
        list(newer).map(|versions| {
            format!("asks for {versions}, newer than glibc {floor:?}: link it with xtask/src/old_libc.rs")
        }),
        list(others).map(|names| format!("needs {names}, which is not a part of glibc")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// All ELF files below the folder.
fn binaries(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            binaries(&path, found)?;
        } else if fs::read(&path)
            .with_context(|| format!("reading {}", path.display()))?
            .starts_with(b"\x7fELF")
        {
            found.push(path);
        }
    }
    Ok(())
}
