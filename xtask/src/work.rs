//! The steps of the demo in which programs use the GPU: they are refused what is beyond their slice, see the slice as the
//! GPU, and have their share of its time beside a neighbour that wants all of it.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use softmig_tests::programs::{FOLDER, tree};
use softmig_tests::softmig::{Explained, stage};
use softmig_tests::{Client, Cluster, Node};

use crate::narrator::{Narrator, must_show};
use crate::stage::HOOK;

/// The bytes that the program takes at a time.
const STEP: u64 = 2 << 20;
/// How often a share is measured before it counts as wrong: the machine may be busy.
const TRIES: u32 = 8;
const SOCKET: &str = "/var/run/softmig/arbiter.sock";

/// Has the node hold its jobs. The client keeps the monitor running.
pub(crate) fn enforcement(
    cluster: &Cluster,
    narrator: &mut Narrator,
    node: &Node,
) -> Result<Client> {
    narrator.step("The administrator puts the library into all processes of the node, and starts the monitor.");
    let line = "softmig install --hook && softmig node enforce";
    narrator.types_on(node, "root", line)?.ok()?;
    let monitor = narrator.begins_on(node, "root", "/usr/libexec/softmig-monitor")?;
    cluster.wait_until("the monitor answers", || node.exists(SOCKET))?;
    Ok(monitor)
}

/// A program takes all it gets.
pub(crate) fn refusal(narrator: &mut Narrator, job: &str, explained: &Explained) -> Result<()> {
    narrator.step("In alice's job, a program takes GPU memory, 2 MiB at a time, until CUDA has no more (error 2).");
    let program = format!("{FOLDER}/takes cuMemAlloc_v2 {STEP} hold 0 </dev/null");
    let said = narrator.types("alice", &in_job(job, &program))?.ok()?;
    let slice = slice(explained)?;
    must_show(&said, "then=2")?;
    must_show(&said, &format!("total={slice}"))?;
    let blocks = number(&said, "blocks=")?;
    ensure!(
        blocks > 0 && blocks * STEP < slice,
        "{} bytes in a slice of {slice}",
        blocks * STEP
    );
    narrator.say("Together with CUDA's own context, that is her slice; the next 2 MiB were refused, and nothing was killed.");
    Ok(())
}

/// Programs are told of the slice.
pub(crate) fn views(narrator: &mut Narrator, job: &str, explained: &Explained) -> Result<()> {
    narrator.step("What programs are told: NVML, which nvidia-smi asks, and CUDA, which PyTorch asks, show the slice.");
    let program = format!("{FOLDER}/views both");
    let functions = [
        "nvmlDeviceGetMemoryInfo",
        "cuMemGetInfo_v2",
        "cuDeviceTotalMem_v2",
    ];
    // Before the name it says which GPU, and behind it what it was called with.
    let lines = format!("grep -E '^0 ({}):'", functions.join("|"));
    let line = format!("{} | {lines}", in_job(job, &program));
    let said = narrator.types("alice", &line)?.ok()?;
    let total = format!(" {}", slice(explained)?);
    for function in functions {
        let shown = said.lines().find(|line| line.contains(function));
        must_show(shown.with_context(|| format!("no {function}"))?, &total)?;
    }
    Ok(())
}

/// A program works beside one that wants all of the GPU.
pub(crate) fn share(
    narrator: &mut Narrator,
    job: &str,
    neighbour: &str,
    explained: &Explained,
) -> Result<()> {
    narrator.step("bob's program launches kernels as fast as it can; alice's program has its quarter of the time beside it.");
    let greedy = format!("{FOLDER}/paced 100000 600000 async");
    let mut greedy = narrator.begins("bob", &in_job(neighbour, &greedy))?;
    let percent = explained
        .limits
        .as_ref()
        .context("no limits")?
        .compute_percent;
    let program = format!("{FOLDER}/paced 100000 2000 async");
    let mut had = 0.0;
    for _ in 0..TRIES {
        let said = narrator.types("alice", &in_job(job, &program))?.ok()?;
        had = number(&said, "share ")? as f64 / 100.0;
        if had > percent / 2.0 && had < percent + 2.0 {
            ensure!(
                greedy.runs()?,
                "bob's program has ended: {}",
                greedy.stderr()?
            );
            greedy.kill()?;
            narrator.say(format!(
                "She had {had:.1} % of the GPU's time, of {percent} %."
            ));
            return Ok(());
        }
        narrator.say("This machine is busy with other work: once more.");
    }
    anyhow::bail!("alice had {had:.1} % of the GPU's time, not {percent} %")
}

/// Whether this machine has a GPU and its driver.
pub(crate) fn has_gpu() -> bool {
    let driver = Path::new("/proc/driver/nvidia/version");
    Path::new("/dev/nvidiactl").exists() && driver.exists()
}

/// The same on this machine's own GPU, without Slurm: programs of a user who limits them.
pub(crate) fn on_the_gpu() -> Result<()> {
    println!("\nThis machine has a GPU: the same on it, by 'softmig run'.");
    let takes = tree().join(FOLDER.trim_start_matches('/')).join("takes");
    let takes = takes.to_string_lossy().into_owned();
    let step = STEP.to_string();
    let said = limited(&[&takes, "cuMemAlloc_v2", &step, "hold", "0"])?;
    must_show(&said, "then=2")?;
    let limit = LIMIT_MIB << 20;
    ensure!(
        number(&said, "blocks=")? * STEP < limit,
        "more than {limit} bytes"
    );
    let query = [
        "nvidia-smi",
        "--query-gpu=memory.total",
        "--format=csv,noheader",
    ];
    must_show(&limited(&query)?, &format!("{LIMIT_MIB} MiB"))
}

/// The memory that programs may hold of this machine's GPU.
const LIMIT_MIB: u64 = 4096;

/// The output of a command under limits, on this machine.
fn limited(command: &[&str]) -> Result<String> {
    let options = [&format!("--memory={LIMIT_MIB}M"), "--compute=25", "--"];
    println!(
        "    $ softmig run {} {}",
        options.join(" "),
        command.join(" ")
    );
    let output = Command::new(stage().join("usr/bin/softmig"))
        .arg("run")
        .arg("--library")
        .arg(stage().join(HOOK))
        .args(options)
        .args(command)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("starting softmig run")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.lines().for_each(|line| println!("        {line}"));
    ensure!(output.status.success(), "{}", output.status);
    Ok(said)
}

/// A step of a job that runs this.
fn in_job(job: &str, program: &str) -> String {
    format!("srun --jobid={job} --overlap {program}")
}

/// The bytes of the slice that was promised.
fn slice(explained: &Explained) -> Result<u64> {
    let limits = explained.limits.as_ref();
    let limits = limits.context("explain gave no limits")?;
    Ok(u64::from(limits.memory_mib) << 20)
}

/// The number behind a word.
fn number(text: &str, word: &str) -> Result<u64> {
    let rest = text.split_once(word).map(|(_, rest)| rest);
    let digits = rest.and_then(|rest| rest.split(|sign: char| !sign.is_ascii_digit()).next());
    let digits = digits.with_context(|| format!("no {word:?} in {text}"))?;
    digits.parse().with_context(|| format!("{word}{digits}"))
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_found_behind_their_words() {
        let said = "took: blocks=5498 then=2\npaced: launched 7 in 2008 ms, share 2492 of 10000\n";
        assert_eq!(number(said, "blocks=").unwrap(), 5498);
        assert_eq!(number(said, "share ").unwrap(), 2492);
        assert!(number(said, "total=").is_err());
        assert!(number("blocks=many", "blocks=").is_err());
    }
}
