//! Libraries built for a test, good and bad.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Libraries built for a test.
pub(crate) struct Workshop(tempfile::TempDir);

impl Workshop {
    pub(crate) fn open() -> Result<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles a library of this source.
    pub(crate) fn build(&self, name: &str, source: &str, flags: &[&str]) -> Result<PathBuf> {
        let (code, library) = (self.path("library.c"), self.path(name));
        std::fs::write(&code, format!("#include <stdlib.h>\n{source}"))?;
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &code])
            .args(flags)
            .status()
            .context("running cc")?;
        ensure!(status.success(), "cc {name}: {status}");
        Ok(library)
    }

    /// One that does no harm; different numbers make different files.
    pub(crate) fn harmless(&self, number: u32) -> Result<PathBuf> {
        self.build(
            &format!("harmless{number}.so"),
            &format!("int softmig_test_{number} = {number};"),
            &[],
        )
    }

    /// One that runs this when it is loaded.
    pub(crate) fn at_load(&self, name: &str, code: &str) -> Result<PathBuf> {
        let headers = "#include <stdio.h>\n#include <string.h>\n#include <signal.h>\n#include <unistd.h>\n#include <sys/auxv.h>\n";
        let source =
            format!("{headers}__attribute__((constructor)) static void at_load(void) {{ {code} }}");
        self.build(name, &source, &[])
    }
}
