//! `cargo xtask bindings`: makes hook/sys from NVIDIA's headers, or checks that it is what they make.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::place::{project, run, target};
use crate::steps::cargo;
use crate::wheel::Wheel;

// NVIDIA's headers, and libclang to read them. A new version may change the declarations.
const CUDA_13: Wheel = Wheel {
    name: "nvidia-cuda-runtime",
    version: "13.5.37",
    sha256: "df2b79a8852f10d1fef8c848489c49eebb5754051bf870202a862831412b179d",
    inside: "nvidia/cu13/include/cuda.h",
};
const CUDA_12: Wheel = Wheel {
    name: "nvidia-cuda-runtime-cu12",
    version: "12.9.79",
    sha256: "25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3",
    inside: "nvidia/cuda_runtime/include/cuda.h",
};
const NVML: Wheel = Wheel {
    name: "nvidia-nvml-dev-cu12",
    version: "12.9.79",
    sha256: "8bb367913c62cb65be9ae386c58dbf573f1f9e2f01cae54abb87bf5f63c6069e",
    inside: "nvidia/nvml_dev/include/nvml.h",
};
const NVML_13: Wheel = Wheel {
    name: "nvidia-nvml-dev",
    version: "13.5.37",
    sha256: "7394fcbefa9ba537e8238cbb1caa4cd2db6bbfbff208d217a8a884947113ae6d",
    inside: "nvidia/cu13/include/nvml.h",
};
const LIBCLANG: Wheel = Wheel {
    name: "libclang",
    version: "18.1.1",
    sha256: "c533091d8a3bbf7460a00cb6c1a71da93bffe148f172c7d03b1c31fbf8aa2a0b",
    inside: "libclang-18.1.1.data/platlib/clang/native",
};

/// The work to do with the declarations.
#[derive(clap::Args)]
pub(crate) struct Bindings {
    /// Change nothing; fail where hook/sys is not what the headers make, or a function of theirs is not classed
    #[arg(long)]
    check: bool,
    /// Print the names of all functions that the headers declare instead
    #[arg(long, conflicts_with = "check")]
    list: bool,
}

impl Bindings {
    /// Generates the bindings, or checks them.
    pub(crate) fn run(&self) -> Result<()> {
        if self.check {
            return check();
        }
        if self.list {
            return generator(&["--list".as_ref()]);
        }
        let sys = sys();
        generator(&["--into".as_ref(), &sys])?;
        println!("hook/sys/src is made from the headers.");
        Ok(())
    }
}

/// Fails where hook/sys is not what the headers make, or hook/bindings/memory.txt does not class what they declare.
pub(crate) fn check() -> Result<()> {
    let fresh = target().join("bindings");
    fs::create_dir_all(&fresh).with_context(|| format!("making {}", fresh.display()))?;
    generator(&["--into".as_ref(), &fresh])?;
    for file in ["cuda.rs", "nvml.rs"] {
        let read = |folder: &Path| {
            let path = folder.join(file);
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
        };
        ensure!(
            read(&fresh)? == read(&sys())?,
            "hook/sys/src/{file} is not what hook/bindings makes of the headers: run `cargo xtask bindings` and commit \
             what it changes"
        );
    }
    println!(
        "hook/sys/src is what the headers make, and hook/bindings/memory.txt classes all of their functions."
    );
    Ok(())
}

fn sys() -> PathBuf {
    project().join("hook/sys/src")
}

/// Runs hook/bindings over the headers.
fn generator(words: &[&Path]) -> Result<()> {
    let (cuda13, cuda12) = (CUDA_13.fetch()?, CUDA_12.fetch()?);
    let (nvml13, nvml) = (NVML_13.fetch()?, NVML.fetch()?);
    run(
        cargo(&["run", "--locked", "--quiet", "-p", "softmig-bindings"])
            .args(["--features", "generate", "--", "--cuda13"])
            .arg(cuda13)
            .arg("--cuda12")
            .arg(cuda12)
            .arg("--nvml")
            .arg(nvml)
            .arg("--nvml13")
            .arg(nvml13)
            .args(words)
            .env("LIBCLANG_PATH", LIBCLANG.fetch()?),
    )
}
