//! Builds softmig and lays it out as it is installed: `target/stage` is a tree like `/`.

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
/// Given explicitly, so that the flags for a static binary do not reach build scripts.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds all and returns the tree.
pub(crate) fn build() -> Result<PathBuf> {
    let stage = build_for(&LUAS)?;
    manual(&stage)?;
    Ok(stage)
}

/// Builds the Lua modules for these versions only, and all other programs; no manual pages.
pub(crate) fn build_for(luas: &[&str]) -> Result<PathBuf> {
    println!("Building softmig (release) into target/stage.");
    let stage = softmig_tests::softmig::stage();
    lua_modules(&stage, luas)?;
    node_binaries(&stage)?;
    hook(&stage)?;
    cargo(&["-p", "softmig", "-p", "softmig-monitor"], &[])?;
    for (built, at) in [
        ("softmig", "usr/bin/softmig"),
        ("softmig-monitor", "usr/libexec/softmig-monitor"),
    ] {
        place(
            &target().join("release").join(built),
            &stage.join(at),
            0o755,
        )?;
    }
    for unit in ["softmig-monitor.service", "run-softmig.mount"] {
        let at = stage.join(UNITS).join(unit);
        place(&project().join("conf").join(unit), &at, 0o644)?;
    }
    for (conf, at) in [
        ("policy.toml", "etc/softmig/policy.toml"),
        ("job_submit.lua", "etc/slurm/job_submit.lua"),
        ("cli_filter.lua", "etc/slurm/cli_filter.lua"),
    ] {
        place(&project().join("conf").join(conf), &stage.join(at), 0o644)?;
    }
    Ok(stage)
}

/// One build of each module for each Lua: they differ in the interpreter's calls.
fn lua_modules(stage: &Path, luas: &[&str]) -> Result<()> {
    let modules = ["job-submit", "cli-filter"];
    for lua in luas {
        let features = modules
            .map(|module| format!("softmig-{module}/lua{}", lua.replace('.', "")))
            .join(",");
        cargo(
            &[
                "-p",
                "softmig-job-submit",
                "-p",
                "softmig-cli-filter",
                "--no-default-features",
                "--features",
                &features,
            ],
            &[],
        )?;
        for module in modules {
            let name = format!("softmig_{}.so", module.replace('-', "_"));
            place(
                &target().join("release").join(format!("lib{name}")),
                &stage.join("usr/lib/softmig/lua").join(lua).join(name),
                0o755,
            )?;
        }
    }
    Ok(())
}

/// Prolog and epilog run on any node, whatever its C library.
fn node_binaries(stage: &Path) -> Result<()> {
    cargo(
        &[
            "-p",
            "softmig-prolog",
            "-p",
            "softmig-epilog",
            "--target",
            TARGET,
        ],
        &[("RUSTFLAGS", "-C target-feature=+crt-static")],
    )?;
    for name in ["softmig-prolog", "softmig-epilog"] {
        let built = target().join(TARGET).join("release").join(name);
        place(&built, &stage.join("usr/libexec").join(name), 0o755)?;
    }
    Ok(())
}

/// The library in every process, in its own profile: without std.
fn hook(stage: &Path) -> Result<()> {
    run(Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--profile", "hook"])
        .args(["-p", "softmig-hook"])
        .current_dir(project()))?;
    place(
        &target().join("hook/libsoftmig_hook.so"),
        &stage.join("usr/lib/softmig/libsoftmig.so"),
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

fn cargo(words: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    run(Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--locked"])
        .args(words)
        .envs(environment.iter().copied())
        .current_dir(project()))
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
