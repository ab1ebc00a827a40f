//! What the dependencies may be: under which licences, and each in one version.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::steps::cargo;

/// Licences under which code may come into softmig's binaries: none asks more than to be named.
const ALLOWED: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that may be there in several versions, and why.
const SEVERAL: &[(&str, &str)] = &[
    (
        "syn",
        "derive macros move from 2 to 3 one by one; only compilers run it, no binary holds it",
    ),
    ("thiserror", NVML_WRAPPER),
    ("thiserror-impl", NVML_WRAPPER),
];
const NVML_WRAPPER: &str =
    "nvml-wrapper is still at 1; it makes a few impls and no code of its own";

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
}

/// Checks every package that a build for Linux may use, tests included.
pub(crate) fn check() -> Result<()> {
    let output = cargo(&["metadata", "--locked", "--format-version=1"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .args(["--features", "softmig-bindings/generate"])
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("running cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", output.status);
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("reading cargo metadata's answer")?;
    let wrong = [
        licences(&metadata.packages),
        versions(&metadata.packages, SEVERAL),
    ]
    .concat();
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    println!(
        "{} packages: every licence is allowed, no version is double without a reason.",
        metadata.packages.len()
    );
    Ok(())
}

fn licences(packages: &[Package]) -> Vec<String> {
    let mut wrong = Vec::new();
    for Package {
        name,
        version,
        license,
    } in packages
    {
        match license.as_deref().map(allowed) {
            None => wrong.push(format!("{name} {version}: no licence named")),
            Some(Err(error)) => wrong.push(format!("{name} {version}: {error}")),
            Some(Ok(false)) => {
                let licence = license.as_deref().unwrap_or_default();
                wrong.push(format!("{name} {version}: {licence} is not allowed"));
            }
            Some(Ok(true)) => {}
        }
    }
    wrong
}

/// Cargo takes one version where one will do, so two of a name are incompatible ones. A reason that is no longer
/// needed is an error too, so that the table stays short.
fn versions(packages: &[Package], several: &[(&str, &str)]) -> Vec<String> {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        found
            .entry(&package.name)
            .or_default()
            .insert(&package.version);
    }
    let reason = |name: &str| several.iter().any(|(known, _)| *known == name);
    let double = |name: &str| found.get(name).is_some_and(|versions| versions.len() > 1);
    let without_reason = found
        .iter()
        .filter(|(name, _)| double(name) && !reason(name))
        .map(|(name, versions)| format!("{name} is there in several versions: {versions:?}"));
    let without_need = several
        .iter()
        .filter(|(name, _)| !double(name))
        .map(|(name, _)| format!("{name} is there in one version only: drop it from the table"));
    without_reason.chain(without_need).collect()
}

/// Whether an SPDX expression can be met with allowed licences alone.
fn allowed(expression: &str) -> Result<bool> {
    // Cargo's older form: a slash stands for OR.
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words = Words {
        expression,
        left: spaced.split_whitespace().collect(),
    };
    words.left.reverse();
    let answer = words.any()?;
    match words.left.last() {
        None => Ok(answer),
        Some(word) => bail!("{expression}: unexpected {word}"),
    }
}

/// An SPDX expression; what is left of it, the next word last.
struct Words<'a> {
    expression: &'a str,
    left: Vec<&'a str>,
}

impl<'a> Words<'a> {
    /// `X OR X OR ...`; all is read, whatever the answer is by then.
    fn any(&mut self) -> Result<bool> {
        let mut answer = self.every()?;
        while self.take("OR") {
            answer |= self.every()?;
        }
        Ok(answer)
    }

    /// `X AND X AND ...`, which binds closer.
    fn every(&mut self) -> Result<bool> {
        let mut answer = self.one()?;
        while self.take("AND") {
            answer &= self.one()?;
        }
        Ok(answer)
    }

    /// A licence, with or without an exception, or an expression in parentheses.
    fn one(&mut self) -> Result<bool> {
        if self.take("(") {
            let answer = self.any()?;
            if !self.take(")") {
                bail!("{}: a parenthesis is open", self.expression);
            }
            return Ok(answer);
        }
        let licence = self.name()?;
        if !self.take("WITH") {
            return Ok(ALLOWED.contains(&licence));
        }
        let exception = self.name()?;
        Ok(ALLOWED.contains(&format!("{licence} WITH {exception}").as_str()))
    }

    fn name(&mut self) -> Result<&'a str> {
        match self.left.pop() {
            Some(word) if !["OR", "AND", "WITH", "(", ")"].contains(&word) => Ok(word),
            _ => bail!("{}: a licence is missing", self.expression),
        }
    }

    fn take(&mut self, word: &str) -> bool {
        let next = self.left.last() == Some(&word);
        if next {
            self.left.pop();
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_met_when_one_way_through_it_is_allowed() {
        for (expression, met) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("MIT OR GPL-3.0-only", true),
            ("GPL-3.0-only OR MIT", true),
            ("MIT AND GPL-3.0-only", false),
            ("MIT/Apache-2.0", true),
            ("Apache-2.0 / MIT", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND OpenSSL", false),
            ("OpenSSL AND MIT OR Zlib", true),
            ("OpenSSL AND (MIT OR Zlib)", false),
            ("Apache-2.0 WITH LLVM-exception OR GPL-2.0-only", true),
            ("GPL-2.0-only WITH Classpath-exception-2.0", false),
            ("MIT WITH Classpath-exception-2.0", false),
            ("((ISC))", true),
        ] {
            assert_eq!(allowed(expression).unwrap(), met, "{expression}");
        }
    }

    #[test]
    fn what_is_no_expression_is_an_error() {
        for broken in [
            "", "MIT OR", "OR MIT", "(MIT", "MIT)", "MIT Zlib", "MIT WITH", "()",
        ] {
            assert!(allowed(broken).is_err(), "{broken}");
        }
    }

    fn package(name: &str, version: &str, license: Option<&str>) -> Package {
        Package {
            name: name.into(),
            version: version.into(),
            license: license.map(str::to_owned),
        }
    }

    #[test]
    fn a_package_without_a_licence_is_told() {
        let packages = [
            package("a", "1.0.0", None),
            package("b", "1.0.0", Some("MIT")),
        ];
        assert_eq!(licences(&packages), ["a 1.0.0: no licence named"]);
        let packages = [package("c", "1.0.0", Some("AGPL-3.0-only"))];
        assert_eq!(
            licences(&packages),
            ["c 1.0.0: AGPL-3.0-only is not allowed"]
        );
    }

    #[test]
    fn a_second_version_needs_a_reason_and_a_reason_a_second_version() {
        let packages = [
            package("a", "1.0.0", Some("MIT")),
            package("a", "2.0.0", Some("MIT")),
        ];
        assert_eq!(versions(&packages, &[]).len(), 1);
        assert!(versions(&packages, &[("a", "because")]).is_empty());
        assert_eq!(versions(&packages[..1], &[("a", "because")]).len(), 1);
    }
}
