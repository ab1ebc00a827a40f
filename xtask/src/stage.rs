//! Builds softmig and lays it out as packages bring it: `target/stage` is a tree like `/`.
//!
//! It has nothing in /etc, which is the site's, and no library under the name that processes load: `softmig install` makes
//! both out of this tree.

use crate::old_libc;
use crate::place::{project, run, target};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Lua versions that Slurm is built with.
pub(crate) const LUAS: [&str; 3] = ["5.1", "5.3", "5.4"];
/// Where systemd looks for what packages bring.
const UNITS: &str = "usr/lib/systemd/system";
/// And for whether they start by themselves.
const PRESETS: &str = "usr/lib/systemd/system-preset";
/// The files that a site copies or compares with; no program reads them here.
const EXAMPLES: &str = "usr/share/softmig/examples";
/// The same for container runtimes.
const CONTAINERS: &str = "usr/share/softmig/examples/containers";
/// Files of `conf`, and where they go.
const FILES: [(&str, &str); 20] = [
    ("softmig-monitor.service", UNITS),
    ("run-softmig.mount", UNITS),
    ("softmig-exporter.service", UNITS),
    ("softmig-notices.service", UNITS),
    ("90-softmig-exporter.preset", PRESETS),
    ("90-softmig-notices.preset", PRESETS),
    ("sysusers.d/softmig-exporter.conf", "usr/lib/sysusers.d"),
    ("tmpfiles.d/softmig.conf", "usr/lib/tmpfiles.d"),
    ("policy.toml", EXAMPLES),
    ("slurm.conf", EXAMPLES),
    ("gres.conf", EXAMPLES),
    ("cgroup.conf", EXAMPLES),
    ("node.conf", EXAMPLES),
    ("job_submit.lua", EXAMPLES),
    ("cli_filter.lua", EXAMPLES),
    ("task_epilog.sh", EXAMPLES),
    ("containers/apptainer.conf", CONTAINERS),
    ("containers/containers.conf", CONTAINERS),
    ("containers/enroot.fstab", CONTAINERS),
    ("containers/softmig.json", CONTAINERS),
];

/// Builds all and returns the tree.
pub(crate) fn build() -> Result<PathBuf> {
    let stage = softmig_tests::softmig::stage();
    build_in(&stage, &LUAS)?;
    manual(&stage)?;
    documents(&stage)?;
    Ok(stage)
}

/// Builds the Lua modules for these versions only, and all other programs; no manual pages.
pub(crate) fn build_in(stage: &Path, luas: &[&str]) -> Result<()> {
    println!("Building softmig (release) into {}.", stage.display());
    let stage = &stage.to_path_buf();
    // Files that an earlier release laid out elsewhere must not be installed too.
    if stage.exists() {
        fs::remove_dir_all(stage).with_context(|| format!("removing {}", stage.display()))?;
    }
    lua_modules(stage, luas)?;
    node_binaries(stage)?;
    hook(stage)?;
    let built = old_libc::build(&[
        "-p",
        "softmig",
        "-p",
        "softmig-monitor",
        "-p",
        "softmig-exporter",
    ])?;
    for (name, at) in [
        ("softmig", "usr/bin/softmig"),
        ("softmig-monitor", "usr/libexec/softmig-monitor"),
        ("softmig-exporter", "usr/libexec/softmig-exporter"),
    ] {
        place(&built.join(name), &stage.join(at), 0o755)?;
    }
    for (conf, folder) in FILES {
        let from = project().join("conf").join(conf);
        let name = from.file_name().context("a file without a name")?;
        let runs = from.extension().is_some_and(|end| end == "sh");
        let mode = if runs { 0o755 } else { 0o644 };
        place(&from, &stage.join(folder).join(name), mode)?;
    }
    Ok(())
}

/// One build of each module for each Lua: they differ in the interpreter's calls.
fn lua_modules(stage: &Path, luas: &[&str]) -> Result<()> {
    let modules = ["job-submit", "cli-filter"];
    for lua in luas {
        let features = modules
            .map(|module| format!("softmig-{module}/lua{}", lua.replace('.', "")))
            .join(",");
        let built = old_libc::build(&[
            "-p",
            "softmig-job-submit",
            "-p",
            "softmig-cli-filter",
            "--no-default-features",
            "--features",
            &features,
        ])?;
        for module in modules {
            let name = format!("softmig_{}.so", module.replace('-', "_"));
            place(
                &built.join(format!("lib{name}")),
                &stage.join("usr/lib/softmig/lua").join(lua).join(name),
                0o755,
            )?;
        }
    }
    Ok(())
}

/// Prolog and epilog run on any node, whatever its C library.
fn node_binaries(stage: &Path) -> Result<()> {
    let built = old_libc::build_static(&["-p", "softmig-prolog", "-p", "softmig-epilog"])?;
    for name in ["softmig-prolog", "softmig-epilog"] {
        place(
            &built.join(name),
            &stage.join("usr/libexec").join(name),
            0o755,
        )?;
    }
    Ok(())
}

/// The library in every process, in its own profile: without std. It lies beside its place: a tree that is unpacked over
/// another must not write into what every process loads, and `softmig install --hook` tries it first.
fn hook(stage: &Path) -> Result<()> {
    run(Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--profile", "hook"])
        .args(["-p", "softmig-hook"])
        .current_dir(project()))?;
    place(
        &target().join("hook/libsoftmig_hook.so"),
        &stage.join("usr/lib/softmig/staged/libsoftmig.so"),
        0o755,
    )
}

/// Manual pages and completions, by the debug build that the tests use too.
fn manual(stage: &Path) -> Result<()> {
    run(Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--locked", "-p", "softmig"])
        .args(["--example", "manual", "--"])
        .arg(stage.join("usr/share"))
        .current_dir(project()))
}

/// The pages, in folders as in the repository, so that their links hold. The records of decisions are for developers.
fn documents(stage: &Path) -> Result<()> {
    let folder = stage.join("usr/share/doc/softmig");
    for name in ["README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE"] {
        place(&project().join(name), &folder.join(name), 0o644)?;
    }
    for page in fs::read_dir(project().join("docs"))? {
        let page = page?;
        if page.file_type()?.is_dir() {
            continue;
        }
        place(
            &page.path(),
            &folder.join("docs").join(page.file_name()),
            0o644,
        )?;
    }
    Ok(())
}

/// By rename, as an installation has to: a process that has the old file mapped keeps it.
fn place(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let folder = to.parent().context("a file at the root")?;
    fs::create_dir_all(folder)?;
    let fresh = to.with_extension("fresh");
    fs::copy(from, &fresh).with_context(|| format!("copying {}", from.display()))?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(mode))?;
    fs::rename(&fresh, to).with_context(|| format!("placing {}", to.display()))
}
