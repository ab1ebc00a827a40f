//! `cargo xtask packages`: debs and rpms of target/stage, in target/packages. The same commit makes the same bytes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use crate::place::{git, output, project, run, target};
use crate::steps::cargo;
use crate::test::run_as_root;
use crate::tools::{CARGO_DEB, CARGO_GENERATE_RPM};
use crate::wheel::python;
use crate::{gates, stage};

/// The crates whose Cargo.toml says what a package has: of softmig, softmig-node, softmig-controller and softmig-exporter.
const CRATES: [&str; 4] = ["softmig", "monitor", "job-submit", "exporter"];

/// The work to do beside making packages.
#[derive(clap::Args)]
pub(crate) struct Packages {
    /// Make them of target/stage as it is, without a build
    #[arg(long)]
    no_build: bool,
    /// Install, upgrade, downgrade and remove them in Debian roots, and run them with an old C library
    #[arg(long)]
    test: bool,
    /// Build all once more from a copy of the last commit in another folder, and compare the bytes
    #[arg(long)]
    reproduce: bool,
}

impl Packages {
    pub(crate) fn run(&self) -> Result<()> {
        if self.no_build {
            make_and_compare()?;
        } else {
            build()?;
        }
        if self.reproduce {
            reproduce(&target().join("packages"))?;
        }
        if self.test {
            test_made()?;
        }
        Ok(())
    }
}

/// Makes packages of target/stage as it is, twice.
fn make_and_compare() -> Result<()> {
    gates::check(None)?;
    let folder = target().join("packages");
    make(&folder)?;
    twice(&folder)
}

/// The crates with the programs and libraries that are in packages.
pub(crate) const SHIPPED: [&str; 7] = [
    "softmig",
    "softmig-cli-filter",
    "softmig-exporter",
    "softmig-hook",
    "softmig-job-submit",
    "softmig-monitor",
    "softmig-node",
];

/// Builds all and makes its packages.
pub(crate) fn build() -> Result<()> {
    stage::build()?;
    make_and_compare()
}

/// Makes packages of target/stage as it is, and tests them.
pub(crate) fn test() -> Result<()> {
    make_and_compare()?;
    test_made()
}

fn test_made() -> Result<()> {
    crate::roots::build()?;
    crate::roots::build_oldest()?;
    ansible()?;
    run(run_as_root(&mut cargo(&[
        "test",
        "--locked",
        "--workspace",
        "--test=behaviour",
        "--features=softmig-tests/packages",
        "--",
        "packages::",
    ])))
}

/// The ansible-core whose playbook tests run, and what it needs, for the Python of Debian 12.
const ANSIBLE: &str = "ansible-core==2.19.14";

/// Brings it into target/ansible, a tree like `/`.
fn ansible() -> Result<()> {
    let folder = target().join("ansible/opt/ansible");
    let mark = folder.join(ANSIBLE);
    if mark.exists() {
        return Ok(());
    }
    empty(&folder)?;
    println!("Downloading {ANSIBLE} into {}.", folder.display());
    run(python("pip")
        .args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",
        ])
        .args(["--only-binary=:all:", "--python-version=3.11"])
        .args(["--platform=manylinux2014_x86_64", "--target"])
        .arg(&folder)
        .arg(ANSIBLE))?;
    fs::write(&mark, "").with_context(|| format!("writing {}", mark.display()))
}

/// Makes all packages in an empty folder.
fn make(folder: &Path) -> Result<()> {
    empty(folder)?;
    let date = source_date()?;
    give_date(
        &softmig_tests::softmig::shipped(),
        UNIX_EPOCH + Duration::from_secs(date.parse().context("SOURCE_DATE_EPOCH")?),
    )?;
    for name in CRATES {
        run(CARGO_DEB
            .command()?
            .args([
                "--quiet",
                "--locked",
                "--no-build",
                "--no-strip",
                "--manifest-path",
            ])
            .arg(project().join(name).join("Cargo.toml"))
            .arg("--output")
            .arg(folder)
            .env("SOURCE_DATE_EPOCH", &date))?;
        run(CARGO_GENERATE_RPM
            .command()?
            // Every rpm can unpack gzip.
            .args(["--package", name, "--payload-compress", "gzip"])
            .args(["--source-date", &date, "--output"])
            .arg(folder))?;
    }
    for (name, _) in contents(folder)? {
        println!("{}", folder.join(name).display());
    }
    Ok(())
}

/// Gives all files of a tree the same time: some tools keep a time that is earlier than the date.
fn give_date(folder: &Path, date: SystemTime) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            give_date(&path, date)?;
        } else {
            File::open(&path)
                .and_then(|file| file.set_modified(date))
                .with_context(|| format!("setting the time of {}", path.display()))?;
        }
    }
    Ok(())
}

/// Packs the same files again: neither the time nor an order of files may be in a package.
fn twice(folder: &Path) -> Result<()> {
    let again = target().join("packages.again");
    make(&again)?;
    same(folder, &again)?;
    fs::remove_dir_all(&again).with_context(|| format!("removing {}", again.display()))
}

/// Builds the last commit in a folder of its own, with nothing of this build.
fn reproduce(folder: &Path) -> Result<()> {
    let copy = target().join("reproduce");
    empty(&copy)?;
    run(git(&["clone", "--quiet", "--no-hardlinks", "."]).arg(&copy))?;
    let fresh = copy.join("target");
    fs::create_dir_all(&fresh)?;
    // The tools are of fixed versions.
    for tools in ["tools", "wheels"] {
        std::os::unix::fs::symlink(target().canonicalize()?.join(tools), fresh.join(tools))?;
    }
    run(Command::new(env!("CARGO"))
        .args(["xtask", "packages"])
        .current_dir(&copy)
        .env_remove("CARGO_TARGET_DIR"))?;
    same(folder, &fresh.join("packages"))?;
    fs::remove_dir_all(&copy).with_context(|| format!("removing {}", copy.display()))
}

/// Makes an empty folder.
pub(crate) fn empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("emptying {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))
}

/// Fails unless both folders have the same packages.
fn same(one: &Path, other: &Path) -> Result<()> {
    let (these, those) = (contents(one)?, contents(other)?);
    ensure!(!these.is_empty(), "{} has no packages", one.display());
    for name in these.keys().chain(those.keys()) {
        ensure!(
            these.get(name) == those.get(name),
            "{name} is not the same in {} and {}: unpack both and compare",
            one.display(),
            other.display()
        );
    }
    println!(
        "{} packages are the same bytes in {} and {}.",
        these.len(),
        one.display(),
        other.display()
    );
    Ok(())
}

pub(crate) fn contents(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    entries
        .map(|entry| {
            let path: PathBuf = entry?.path();
            let name = path.file_name().context("a file without a name")?;
            let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            Ok((name.display().to_string(), bytes))
        })
        .collect()
}

/// The time that packages give for all their files: that of the last commit, or what SOURCE_DATE_EPOCH says.
pub(crate) fn source_date() -> Result<String> {
    if let Ok(date) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(date);
    }
    let date = output(&mut git(&["log", "-1", "--format=%ct"])).context(
        "git does not tell the date of the last commit: outside of a checkout, set SOURCE_DATE_EPOCH",
    )?;
    Ok(date.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::Regex;

    #[test]
    fn no_file_is_in_two_packages() {
        let source = Regex::new(r#""\.\./target/stage/([^"]+)""#).unwrap();
        let sources = CRATES.map(|name| {
            let text = fs::read_to_string(project().join(name).join("Cargo.toml")).unwrap();
            let found = source.captures_iter(&text).map(|it| it[1].to_owned());
            (name, found.collect::<Vec<_>>())
        });
        for (name, patterns) in &sources {
            assert!(!patterns.is_empty(), "{name}");
            for pattern in patterns {
                let text = format!("^{}$", regex::escape(pattern).replace(r"\*", "[^/]*"));
                let is_it = Regex::new(&text).unwrap();
                for (other, theirs) in sources.iter().filter(|(other, _)| other != name) {
                    let same = theirs.iter().find(|it| is_it.is_match(it));
                    assert_eq!(same, None, "{pattern} of {name} is {other}'s too");
                }
            }
        }
    }
}
