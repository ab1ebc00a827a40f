//! The versions of Slurm that tests run on, and the Debian release that carries each.

use std::fmt;
use std::path::{Path, PathBuf};

/// A version of Slurm, as Debian packages it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slurm {
    /// 22.05.8 in Debian 12. Writes `gres:gpu:...`, has no `extra` for the prolog.
    V22_05,
    /// 24.11.5 in Debian 13. Writes `gres/gpu:...`.
    V24_11,
    /// 26.05.5 in what becomes Debian 14. Names jobs' control groups of version 2 by SLUID.
    V26_05,
}

impl Slurm {
    /// Every version, oldest first.
    pub const ALL: [Slurm; 3] = [Slurm::V22_05, Slurm::V24_11, Slurm::V26_05];

    /// The Debian release whose packages are this version.
    pub fn suite(self) -> &'static str {
        match self {
            Slurm::V22_05 => "bookworm",
            Slurm::V24_11 => "trixie",
            Slurm::V26_05 => "forky",
        }
    }

    /// The packages that the Debian root holds beside the minimal system.
    pub fn packages(self) -> &'static [&'static str] {
        match self {
            // Beside Slurm, this root is the home of what is tested without it: the other Lua versions for the Lua
            // modules, and from openjdk on what runs with the hook in it.
            Slurm::V22_05 => &[
                "slurmctld",
                "slurmd",
                "slurmdbd",
                "slurm-client",
                "slurmrestd",
                "munge",
                "mariadb-server-core",
                "iproute2",
                "procps",
                "lua5.1",
                "lua5.3",
                "lua5.4",
                "openjdk-17-jre-headless",
                "python3",
                "sudo",
                "openssh-server",
                "openssh-client",
                "strace",
                "gdb-minimal",
                "musl",
                "libasan8",
                "systemd",
            ],
            Slurm::V24_11 | Slurm::V26_05 => &[
                "slurmctld",
                "slurmd",
                "slurmdbd",
                "slurm-client",
                "slurmrestd",
                "munge",
                "mariadb-server-core",
                "iproute2",
                "procps",
            ],
        }
    }

    /// Where the Debian root of this version lies.
    pub fn root(self) -> PathBuf {
        roots_dir().join(self.suite())
    }

    /// The newest REST API that both this version's slurmrestd and our tests speak.
    pub fn rest_api(self) -> &'static str {
        match self {
            Slurm::V22_05 => "v0.0.38",
            Slurm::V24_11 => "v0.0.41",
            Slurm::V26_05 => "v0.0.43",
        }
    }
}

impl fmt::Display for Slurm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Slurm::V22_05 => "22.05",
            Slurm::V24_11 => "24.11",
            Slurm::V26_05 => "26.05",
        })
    }
}

impl std::str::FromStr for Slurm {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Slurm> {
        Slurm::ALL
            .into_iter()
            .find(|slurm| slurm.to_string() == text || slurm.suite() == text)
            .ok_or_else(|| {
                anyhow::anyhow!("{text}: no such Slurm; there are 22.05, 24.11 and 26.05")
            })
    }
}

/// The Debian release with the oldest C library that there are packages for: glibc 2.31. It has no Slurm, but rpm.
pub const OLDEST: &str = "bullseye";
/// The packages that its root holds beside the minimal system.
pub const OLDEST_PACKAGES: &[&str] = &["iproute2", "lua5.1", "lua5.3", "lua5.4", "procps", "rpm"];

/// Where its root lies.
pub fn oldest() -> PathBuf {
    roots_dir().join(OLDEST)
}

/// The folder of the Debian roots: `target/roots` of the workspace, or what SOFTMIG_ROOTS says.
pub fn roots_dir() -> PathBuf {
    match std::env::var_os("SOFTMIG_ROOTS") {
        Some(dir) => dir.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .unwrap_or(Path::new("."))
            .join("target/roots"),
    }
}
