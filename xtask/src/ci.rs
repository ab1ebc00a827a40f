//! `cargo xtask ci`, what `.ci/run` runs: everything that must hold before a change goes in.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::place::{project, run, target};
use crate::stage::{LUAS, only_modules};
use crate::steps::{Steps, all, cargo};
use crate::test::Tests;
use crate::{bindings, demo, layers, packaging, tools};

/// Which checks to run.
#[derive(clap::Args)]
pub(crate) struct Ci {
    /// All that a release needs: also the release build and its packages, each Lua and release of Slurm, containers, guest
    /// kernels, upgrades, Prometheus, the driver that tests use, and each order of the ledger's races
    #[arg(long)]
    full: bool,
}

impl Ci {
    /// Runs all of it, cheapest first.
    pub(crate) fn run(&self) -> Result<()> {
        all(|steps| {
            steps.cargo("format", &["fmt", "--all", "--check"])?;
            steps.step("layers of the sources", layers::check)?;
            steps.step("spelling", tools::spelling)?;
            steps.step(
                "licences, versions and sources of dependencies",
                tools::dependencies,
            )?;
            steps.step("tests of the record of the whole chain", || {
                run(Command::new("python3")
                    .args(["-m", "unittest", "discover", "--quiet", "bench/gpu/chain"])
                    .current_dir(project()))
            })?;
            clippy(steps, FEATURES)?;
            steps.step("documentation", || {
                run(cargo(&[
                    "doc",
                    "--locked",
                    "--workspace",
                    "--no-deps",
                    "--quiet",
                    FEATURES,
                ])
                .env("RUSTDOCFLAGS", "-D warnings"))
            })?;
            steps.step("policy without std", policy_without_std)?;
            if self.full {
                self.seldom(steps)?;
            }
            Tests::for_ci(self.full).steps(steps)?;
            if self.full {
                steps.step("packages", packaging::test)?;
                steps.step("the demo, and its prompt", demo::test)?;
            }
            Ok(())
        })
    }

    /// Checks of what changes seldom.
    fn seldom(&self, steps: &mut Steps) -> Result<()> {
        steps.step("book of the pages", tools::book)?;
        steps.step("declarations from NVIDIA's headers", bindings::check)?;
        let generator = [
            "test",
            "--locked",
            "-p=softmig-bindings",
            "--features=generate",
        ];
        steps.cargo("tests of hook/bindings", &generator)?;
        clippy(steps, EVERYTHING)?;
        let old_driver = ["-p=softmig-fake-cuda", "--features=old"];
        steps.cargo(
            "clippy of the fake driver as it was before CUDA 12",
            &[&CLIPPY[..], &old_driver, &STRICT].concat(),
        )?;
        for lua in LUAS {
            let modules = only_modules(lua);
            let modules = modules.each_ref().map(String::as_str);
            steps.cargo(
                &format!("clippy, Lua {lua}"),
                &[&CLIPPY[..], &modules, &STRICT].concat(),
            )?;
        }
        steps.step("the oldest Rust", oldest_rust)?;
        steps.step("races for the ledger, in every order", races)
    }
}

/// The features with which each change is checked: all tests have to compile, also those that only a release runs.
const FEATURES: &str = "--features=softmig-tests/packages";
/// Every feature that the workspace can have at once; the Lua versions exclude each other.
const EVERYTHING: &str =
    "--features=softmig-tests/packages,softmig-bindings/generate,softmig-exporter/prometheus";

const CLIPPY: [&str; 3] = ["clippy", "--locked", "--quiet"];
const STRICT: [&str; 3] = ["--", "-D", "warnings"];

fn clippy(steps: &mut Steps, features: &str) -> Result<()> {
    let workspace = ["--workspace", "--all-targets", features];
    steps.cargo("clippy", &[&CLIPPY[..], &workspace, &STRICT].concat())
}

/// Everything compiles with the Rust that Cargo.toml's `rust-version` names.
fn oldest_rust() -> Result<()> {
    let version = env!("CARGO_PKG_RUST_VERSION");
    let install = ["toolchain", "install", version, "--profile=minimal"];
    run(Command::new("rustup").args(install))?;
    let check = [
        "run",
        version,
        "cargo",
        "check",
        "--workspace",
        "--locked",
        "--quiet",
    ];
    run(Command::new("rustup")
        .args(check)
        .arg("--target-dir")
        .arg(target().join("oldest-rust"))
        .current_dir(project()))
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
