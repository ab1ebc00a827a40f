//! Builds softmig and lays it out as packages bring it, in a tree like `/`: `target/stage` for packages, `target/tested` for tests.
//!
//! It has nothing in /etc, which is the site's, and no library under the name that processes load: the administrator copies
//! the one, and `softmig install --hook` makes the other out of this tree.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use softmig_tests::softmig::shipped;

use crate::old_libc;
use crate::place::{project, run, target};
use crate::steps::cargo;

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

/// The Lua of Debian's Slurm: default in the crates of the modules, so that it is what a build of the workspace makes.
pub(crate) const DEFAULT_LUA: &str = "5.1";

/// What clusters run, where cargo is not told to build the whole workspace.
pub(crate) const PARTS: [&str; 10] = [
    "-p=softmig",
    "-p=softmig-monitor",
    "-p=softmig-exporter",
    "-p=softmig-node",
    "-p=softmig-job-submit",
    "-p=softmig-cli-filter",
    "-p=softmig-fake-cuda",
    "-p=softmig-fake-nvml",
    "-p=softmig-fake-rm",
    "-p=softmig-tests",
];

/// All that is laid out: an example makes the manual pages.
const TARGETS: [&str; 3] = ["--lib", "--bins", "--examples"];

/// Builds what is shipped into target/stage, for old C libraries and each Lua, and has clusters run that.
pub(crate) fn build() -> Result<()> {
    let stage = shipped();
    println!("Building softmig (release) into {}.", stage.display());
    clear(&stage)?;
    for lua in LUAS {
        let built = old_libc::build(&only_modules(lua).each_ref().map(String::as_str))?;
        lua_modules(&stage, lua, &built)?;
    }
    // Prolog and epilog run on any node, whatever its C library.
    let built = old_libc::build_static(&["-p", "softmig-node", "--bins"])?;
    programs(&stage, &built, &STATIC)?;
    let built = old_libc::build(&[
        "-p",
        "softmig",
        "-p",
        "softmig-monitor",
        "-p",
        "softmig-exporter",
    ])?;
    programs(&stage, &built, &DYNAMIC)?;
    run(&mut cargo(&[
        "build",
        "--quiet",
        "--locked",
        "-p=softmig",
        "--example=manual",
    ]))?;
    others(&stage)?;
    remove(&softmig_tests::softmig::stage())?;
    std::os::unix::fs::symlink("stage", softmig_tests::softmig::stage())
        .context("linking target/tested")
}

/// Builds the same without optimizing it, for this machine's C library, into target/tested. `what` says which crates: the
/// drivers of the tests are built with them. [`DEFAULT_LUA`] has to be the first of `luas`.
pub(crate) fn quick(what: &[&str], luas: &[&str]) -> Result<()> {
    let stage = softmig_tests::softmig::stage();
    println!("Building softmig into {}.", stage.display());
    run(cargo(&["build", "--locked"]).args(what).args(TARGETS))?;
    clear(&stage)?;
    let built = target().join("debug");
    for lua in luas {
        if *lua != DEFAULT_LUA {
            run(cargo(&["build", "--quiet", "--locked"]).args(only_modules(lua)))?;
        }
        lua_modules(&stage, lua, &built)?;
    }
    programs(&stage, &built, &STATIC)?;
    programs(&stage, &built, &DYNAMIC)?;
    others(&stage)
}

/// The programs of a job's start and end.
const STATIC: [&str; 2] = ["softmig-prolog", "softmig-epilog"];

/// The programs that are linked with the C library of the machine that they run on.
const DYNAMIC: [&str; 3] = ["softmig", "softmig-monitor", "softmig-exporter"];

/// Places programs out of the folder in which cargo left them.
fn programs(stage: &Path, built: &Path, names: &[&str]) -> Result<()> {
    for name in names {
        let folder = match *name {
            "softmig" => "usr/bin",
            _ => "usr/libexec",
        };
        place(&built.join(name), &stage.join(folder).join(name), 0o755)?;
    }
    Ok(())
}

/// What cargo builds of the modules for one Lua: they differ in the interpreter's calls.
pub(crate) fn only_modules(lua: &str) -> [String; 4] {
    let version = lua.replace('.', "");
    [
        "-p=softmig-job-submit".to_owned(),
        "-p=softmig-cli-filter".to_owned(),
        "--no-default-features".to_owned(),
        format!("--features=softmig-job-submit/lua{version},softmig-cli-filter/lua{version}"),
    ]
}

/// The modules that Slurm's Lua loads.
fn lua_modules(stage: &Path, lua: &str, built: &Path) -> Result<()> {
    for name in ["softmig_job_submit.so", "softmig_cli_filter.so"] {
        let to = stage.join("usr/lib/softmig/lua").join(lua).join(name);
        place(&built.join(format!("lib{name}")), &to, 0o755)?;
    }
    Ok(())
}

/// All that is the same in each build.
fn others(stage: &Path) -> Result<()> {
    hook(stage)?;
    for (conf, folder) in FILES {
        let from = project().join("conf").join(conf);
        let name = from.file_name().context("a file without a name")?;
        let runs = from.extension().is_some_and(|end| end == "sh");
        let mode = if runs { 0o755 } else { 0o644 };
        place(&from, &stage.join(folder).join(name), mode)?;
    }
    // Manual pages and completions.
    run(Command::new(target().join("debug/examples/manual")).arg(stage.join("usr/share")))?;
    documents(stage)
}

/// Files that an earlier build laid out elsewhere must not be installed too.
fn clear(stage: &Path) -> Result<()> {
    remove(stage)?;
    fs::create_dir_all(stage).with_context(|| format!("making {}", stage.display()))
}

fn remove(stage: &Path) -> Result<()> {
    let gone = match fs::symlink_metadata(stage) {
        Err(_) => Ok(()),
        Ok(found) if found.is_dir() => fs::remove_dir_all(stage),
        Ok(_) => fs::remove_file(stage),
    };
    gone.with_context(|| format!("removing {}", stage.display()))
}

/// The library in every process, in its own profile: without std. It lies beside its place: a tree that is unpacked over
/// another must not write into what every process loads, and `softmig install --hook` tries it first.
fn hook(stage: &Path) -> Result<()> {
    run(&mut cargo(&[
        "build",
        "--quiet",
        "--locked",
        "--profile=hook",
        "-p=softmig-hook",
    ]))?;
    place(
        &target().join("hook/libsoftmig_hook.so"),
        &stage.join(HOOK),
        0o755,
    )
}

/// Where it lies in the tree.
pub(crate) const HOOK: &str = "usr/lib/softmig/staged/libsoftmig.so";

/// The pages, in folders as in the repository, so that their links to each other hold. The records of decisions are for developers, and stay
/// there.
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
