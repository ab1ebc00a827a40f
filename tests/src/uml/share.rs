//! The folder that host and guest share: what the test brings, and what comes of it. `init.sh` is its other reader.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::kernel::Kernel;
use super::{Uml, UmlOutput};
use crate::config::{Config, GRES_TYPES, SELECT};
use crate::gpus::Gpu;
use crate::init::{HOST, USERS};
use crate::place;

/// The node's name in Slurm.
const NODE: &str = "n1";

/// cgroup.conf. The guest has no systemd to ask for a scope.
const CGROUP_CONF: &str = "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\nConstrainDevices=yes\n";

/// The guest's side of the host: `root`, a link to the Debian root, and `share`.
#[derive(Debug)]
pub struct Share {
    dir: TempDir,
    share: PathBuf,
}

impl Share {
    /// Writes all that the guest will read.
    pub fn new(
        uml: &Uml,
        root: &Path,
        kernel: &Kernel,
        script: &str,
        script_time: Duration,
    ) -> Result<Share> {
        let dir = tempfile::Builder::new()
            .prefix("softmig-uml-")
            .tempdir()
            .context("making a folder")?;
        let share = dir.path().join("share");
        fs::create_dir(&share).context("making the share")?;
        let root = root.canonicalize().context("finding the Debian root")?;
        let link = |to: &Path, name: &str| {
            symlink(to, dir.path().join(name)).with_context(|| format!("linking {name}"))
        };
        match &uml.packages {
            None => link(&root, "root")?,
            Some(packages) => {
                link(&root, "base")?;
                link(
                    &packages.canonicalize().context("finding the packages")?,
                    "packages",
                )?;
                fs::create_dir(dir.path().join("root")).context("making a folder")?;
            }
        }
        let made = Share { dir, share };

        let gpus = Gpu::of_node(0, &uml.gpus);
        for (name, text) in [
            ("init.sh", include_str!("init.sh")),
            ("prelude.sh", include_str!("prelude.sh")),
            ("fstab", include_str!("fstab")),
            ("settings", &settings(&gpus, script_time)),
            ("script", script),
        ] {
            fs::write(made.share.join(name), text).with_context(|| format!("writing {name}"))?;
        }
        fs::copy(&kernel.overlay, made.share.join("overlay.ko")).context("copying overlay.ko")?;
        made.write_driver(&gpus)?;
        made.write_layer(uml)?;
        Ok(made)
    }

    /// The folder of the host to which the guest keeps by itself: hostfs can reach any file.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    fn write_driver(&self, gpus: &[Gpu]) -> Result<()> {
        let driver = self.share.join("driver");
        for gpu in gpus {
            let path = Path::new("/nvidia/gpus")
                .join(gpu.bus())
                .join("information");
            place::write(&driver, &path, gpu.information().as_bytes(), 0o644)?;
        }
        Ok(())
    }

    fn write_layer(&self, uml: &Uml) -> Result<()> {
        let layer = self.share.join("layer");
        fs::create_dir(&layer).context("making the layer")?;
        for tree in &uml.stages {
            place::stage(&layer, tree)?;
        }
        let brought = |path: &str| {
            layer.join(path.trim_start_matches('/')).exists()
                || uml.files.iter().any(|file| file.path == Path::new(path))
        };
        let config = Config {
            slurm: uml.slurm,
            nodes: vec![(NODE.into(), uml.gpus.clone())],
            cgroups: true,
            job_submit: brought("/etc/slurm/job_submit.lua"),
            cli_filter: brought("/etc/slurm/cli_filter.lua"),
            prolog: brought("/usr/libexec/softmig-prolog"),
            epilog: brought("/usr/libexec/softmig-epilog"),
            select: SELECT.into(),
            gres_types: GRES_TYPES.into(),
            debug: "debug".into(),
            lines: uml.lines.clone(),
            include: None,
        };
        for (path, text) in [
            ("/etc/slurm/slurm.conf", config.slurm_conf()),
            ("/etc/slurm/gres.conf", config.gres_conf()),
            ("/etc/slurm/cgroup.conf", CGROUP_CONF.into()),
        ] {
            place::write(&layer, Path::new(path), text.as_bytes(), 0o644)?;
        }
        // Last, so that a test can bring its own in the place of any of these.
        for file in &uml.files {
            place::write(&layer, &file.path, file.contents.as_bytes(), file.mode)?;
        }
        Ok(())
    }

    /// The exit status of the script, if it ended.
    pub fn script_ended(&self) -> Result<Option<i32>> {
        let Some(text) = self.read("exit_code")? else {
            return Ok(None);
        };
        let code = text.trim().parse();
        code.map(Some)
            .with_context(|| format!("the script's exit code {text:?}"))
    }

    /// Why the guest gave up before the script began, in its own words.
    pub fn failure(&self) -> Result<Option<String>> {
        Ok(self.read("failed")?.map(|text| text.trim_end().to_owned()))
    }

    /// All that came back.
    pub fn output(&self, exit_code: i32, console: String) -> Result<UmlOutput> {
        Ok(UmlOutput {
            exit_code,
            stdout: self.read("stdout")?.unwrap_or_default(),
            stderr: self.read("stderr")?.unwrap_or_default(),
            outputs: self.read_all("outputs")?,
            logs: self.read_all("logs")?,
            console,
        })
    }

    fn read(&self, name: &str) -> Result<Option<String>> {
        place::read(&self.share, Path::new(name))
    }

    /// The files of a folder of the share; none when it is not there.
    fn read_all(&self, folder: &str) -> Result<BTreeMap<String, String>> {
        let Ok(entries) = fs::read_dir(self.share.join(folder)) else {
            return Ok(BTreeMap::new());
        };
        let mut texts = BTreeMap::new();
        for entry in entries {
            let entry = entry.with_context(|| format!("reading {folder}"))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_file()
                && let Some(text) = self.read(&format!("{folder}/{name}"))?
            {
                texts.insert(name, text);
            }
        }
        Ok(texts)
    }
}

/// The settings of `init.sh`, as assignments of its shell.
fn settings(gpus: &[Gpu], script_time: Duration) -> String {
    let minors: Vec<String> = gpus.iter().map(|gpu| gpu.minor.to_string()).collect();
    let users: Vec<String> = USERS
        .iter()
        .map(|user| format!("{}:{}:{}:{}", user.name, user.uid, user.group, user.gid))
        .collect();
    format!(
        "HOST={HOST}\nNODE={NODE}\nMINORS='{}'\nUSERS='{}'\nSCRIPT_SECONDS={}\n",
        minors.join(" "),
        users.join(" "),
        script_time.as_secs(),
    )
}
