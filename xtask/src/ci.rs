//! `cargo xtask ci`, what `.ci/run` runs: everything that must hold before a change goes in.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::place::{project, run, target};
use crate::stage::LUAS;
use crate::steps::{Steps, all, cargo};
use crate::test::Tests;
use crate::{bindings, layers, tools, words};

/// Every feature that the workspace can have at once; the Lua versions exclude each other.
const FEATURES: &str = "softmig-tests/cluster,softmig-tests/uml,softmig-tests/packages,\
    softmig-bindings/generate,softmig-exporter/prometheus";

/// Runs all of it, cheapest first.
pub(crate) fn ci() -> Result<()> {
    all(|steps| {
        steps.cargo("format", &["fmt", "--all", "--check"])?;
        steps.step(
            "licences, versions and sources of dependencies",
            tools::dependencies,
        )?;
        steps.step("layers of the sources", layers::check)?;
        steps.step("words of the pages", words::check)?;
        steps.step("spelling", tools::spelling)?;
        steps.step("book of the pages", tools::book)?;
        steps.step("declarations from NVIDIA's headers", bindings::check)?;
        steps.cargo(
            "tests of hook/bindings",
            &[
                "test",
                "--locked",
                "-p",
                "softmig-bindings",
                "--features",
                "generate",
            ],
        )?;
        clippy(steps)?;
        steps.step("documentation", || {
            run(
                cargo(&["doc", "--locked", "--workspace", "--no-deps", "--quiet"])
                    .env("RUSTDOCFLAGS", "-D warnings"),
            )
        })?;
        steps.step("policy without std", policy_without_std)?;
        steps.step("races for the ledger, in every order", races)?;
        steps.step("tests of the record of the whole chain", || {
            run(Command::new("python3")
                .args(["-m", "unittest", "discover", "--quiet", "bench/gpu/chain"])
                .current_dir(project()))
        })?;
        // Here already, so that a bad hook is told before any cluster starts.
        Tests::everything().steps(steps)
    })
}

fn clippy(steps: &mut Steps) -> Result<()> {
    let workspace = [
        "clippy",
        "--locked",
        "--quiet",
        "--workspace",
        "--all-targets",
    ];
    let strict = ["--", "-D", "warnings"];
    steps.cargo(
        "clippy",
        &[&workspace[..], &["--features", FEATURES], &strict].concat(),
    )?;
    let old_driver = ["clippy", "--locked", "--quiet", "-p", "softmig-fake-cuda"];
    steps.cargo(
        "clippy of the fake driver as it was before CUDA 12",
        &[&old_driver[..], &["--features", "old"], &strict].concat(),
    )?;
    for lua in LUAS {
        let version = lua.replace('.', "");
        let features = format!("softmig-job-submit/lua{version},softmig-cli-filter/lua{version}");
        let modules = [
            "clippy",
            "--locked",
            "--quiet",
            "-p",
            "softmig-job-submit",
            "-p",
            "softmig-cli-filter",
            // Not the tests: those load the module into a Lua of their own choice.
            "--lib",
            "--no-default-features",
            "--features",
            &features,
        ];
        steps.cargo(
            &format!("clippy, Lua {lua}"),
            &[&modules[..], &strict].concat(),
        )?;
    }
    Ok(())
}

/// Loom replaces the atomics, so all that the tests link is built for it, in a folder of its own.
fn races() -> Result<()> {
    let tests = ["test", "--locked", "--quiet", "--release", "--lib"];
    run(cargo(&tests)
        .args(["-p", "softmig-region", "--target-dir"])
        .arg(target().join("loom"))
        // Fast enough, and built in half the time.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("RUSTFLAGS", "--cfg loom -D warnings"))
}

/// A program without std that links the crate. With std below it there would be two panic handlers, with alloc there
/// would be no allocator: both are errors of rustc.
const WITHOUT_STD: &str = "#![no_std]
extern crate softmig_policy;
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
";

/// The hook is built on this part of the crate.
fn policy_without_std() -> Result<()> {
    let folder = target().join("no-std");
    run(cargo(&[
        "build",
        "--locked",
        "--quiet",
        "-p",
        "softmig-policy",
        "--lib",
    ])
    .args(["--no-default-features", "--target-dir"])
    .arg(&folder))?;
    let policy = folder.join("debug/libsoftmig_policy.rlib");
    let mut rustc = Command::new("rustc")
        .args([
            "-",
            "--edition=2024",
            "--crate-type=cdylib",
            "-Cpanic=abort",
        ])
        .arg(format!("--extern=softmig_policy={}", policy.display()))
        .arg("-o")
        .arg(folder.join("without_std.so"))
        .current_dir(project())
        .stdin(Stdio::piped())
        .spawn()
        .context("starting rustc")?;
    let mut source = rustc.stdin.take().context("talking to rustc")?;
    source.write_all(WITHOUT_STD.as_bytes())?;
    drop(source);
    ensure!(
        rustc.wait()?.success(),
        "softmig-policy needs std or alloc without its std feature"
    );
    Ok(())
}
