//! The steps of the demo: each shows commands as typed in the cluster with what they really said, and checks that.

use std::fmt::Display;

use anyhow::{Context, Result, bail, ensure};
use softmig_tests::programs::FOLDER;
use softmig_tests::softmig::{explain, tag};
use softmig_tests::{Call, Client, Cluster, Node, Output, Slurm};

/// The slice that the demo follows.
const REQUEST: &str = "--gres=gpu:l40s.4:1";
/// The command of the demo's jobs: it needs no GPU, and runs until they are cancelled.
const JOB: &str = "--wrap='sleep 600'";
/// What the administrator types on a node.
pub(crate) const ENFORCE: &str = "softmig install --hook && softmig node enforce";
const MONITOR: &str = "/usr/libexec/softmig-monitor";
/// The bytes that a program takes at a time.
pub(crate) const STEP: u64 = 2 << 20;
/// How often a share is measured before it counts as wrong: the machine may be busy.
const TRIES: u32 = 8;

/// alice's job, and what she was promised.
struct Slice<'a> {
    job: String,
    node: &'a Node,
    /// The file with its limits.
    conf: String,
    /// In MiB.
    memory: u32,
    percent: f64,
    tag: String,
}

pub(crate) struct Tour<'a> {
    cluster: &'a Cluster,
    /// The step that is being shown.
    pub(crate) number: u32,
}

impl<'a> Tour<'a> {
    pub(crate) fn of(cluster: &'a Cluster) -> Tour<'a> {
        Tour { cluster, number: 0 }
    }

    pub(crate) fn run(&mut self) -> Result<()> {
        self.slurm()?;
        let slice = self.request()?;
        let neighbour = self.limits(&slice)?;
        let monitor = self.monitor(&slice)?;
        self.work(&slice)?;
        self.share(&slice, &neighbour)?;
        self.escapes(&slice)?;
        self.refusals(&slice)?;
        self.end(&slice, &neighbour)?;
        drop(monitor);
        Ok(())
    }

    fn slurm(&mut self) -> Result<()> {
        let cluster = self.cluster;
        self.step("A real slurmctld and two real slurmd run on loopback.");
        self.ok("alice", "sinfo --version", &[&cluster.slurm().to_string()])?;
        let nodes = self.ok("alice", "sinfo --Node --format='%N %T %G'", &[])?;
        for node in cluster.nodes() {
            must_show(&nodes, &format!("{} idle gpu:l40s:2", node.name()))?;
        }
        let keys = "JobSubmitPlugins|CliFilterPlugins|Prolog|Epilog|TaskPlugin|GresTypes";
        let line = format!("scontrol show config | grep -E '^({keys}) *='");
        self.ok("alice", &line, &[])?;
        Ok(())
    }

    fn request(&mut self) -> Result<Slice<'a>> {
        let cluster = self.cluster;
        self.step("What will a request become? The same code answers here and in slurmctld.");
        let explained = explain(cluster, &[REQUEST])?;
        let limits = explained.limits.as_ref();
        let limits = limits.context("explain gave no limits")?;
        let (memory, percent) = (limits.memory_mib, limits.compute_percent);
        let line = format!("softmig explain {REQUEST}");
        self.ok("alice", &line, &[&format!("{memory} MiB")])?;
        let tag = explained.tag().context("explain gave no tag")?;
        let shards = explained.tres_per_node.clone().context("no shards")?;

        self.step(
            "alice submits it; job_submit turns it into shards and adds a tag with the limits.",
        );
        let job = self.submit("alice", REQUEST)?;
        let line = format!("scontrol show job {job} | grep -oE '(TresPerNode|Comment|Extra)=.*'");
        self.ok("alice", &line, &[&shards, &tag])?;
        self.has_tag(&job, &tag)?;

        self.step("Slurm placed it, like any other job: on this node, on the GPU with this index.");
        let placed = self.ok("alice", &place_of(&job), &["GRES=shard:l40s:1"])?;
        let is_there = |node: &&Node| placed.contains(&format!("Nodes={} ", node.name()));
        let node = cluster.nodes().iter().find(is_there);
        let node = node.context("the job is on none of the nodes")?;
        let conf = conf_of(&job);
        Ok(Slice {
            job,
            node,
            conf,
            memory,
            percent,
            tag,
        })
    }

    /// The job of the neighbour.
    fn limits(&mut self, slice: &Slice<'_>) -> Result<String> {
        let (node, conf) = (slice.node, &slice.conf);
        self.step("The prolog wrote the job's limits on that node, in a file of root's.");
        // From 26.05 on it has the name of the run's SLUID too: a second link.
        let owned = ["-rw-r--r-- ", " root root "];
        self.on(node, "alice", &format!("ls -l {conf}"), &owned)?;
        let memory_line = slice.memory_line();
        let share_line = format!("CUDA_DEVICE_SM_LIMIT={}\n", slice.percent);
        let lines: [&str; 2] = [&memory_line, &share_line];
        self.on(node, "alice", &format!("cat {conf}"), &lines)?;
        say("These are the figures of step 2, to the MiB.");

        self.step("bob gets half a GPU, on the same one, beside alice's quarter.");
        let neighbour = self.submit("bob", "--gres=gpu:l40s.2:1")?;
        let there = format!("Nodes={} ", node.name());
        self.ok("bob", &place_of(&neighbour), &[&there, "GRES=shard:l40s:2"])?;
        let line = format!("grep -E 'UID|LIMIT=|GPUS' {conf} {}", conf_of(&neighbour));
        let confs = self.on(node, "bob", &line, &[])?;
        let gpus = confs
            .lines()
            .filter_map(|line| line.split_once("SOFTMIG_GPUS="));
        let gpus: Vec<&str> = gpus.map(|(_, gpus)| gpus).collect();
        let is_one = gpus.len() == 2 && gpus[0] == gpus[1];
        ensure!(
            is_one,
            "the two jobs should share one GPU, and have {gpus:?}"
        );
        Ok(neighbour)
    }

    /// Keeps running as long as its client.
    fn monitor(&mut self, slice: &Slice<'_>) -> Result<Client> {
        let node = slice.node;
        self.step("The administrator puts the library into all processes of the node, and starts the monitor.");
        node.start_driver()?;
        self.on(node, "root", ENFORCE, &[])?;
        print_line("root", node.name(), &format!("{MONITOR} &"));
        monitor(self.cluster, node)
    }

    fn work(&mut self, slice: &Slice<'_>) -> Result<()> {
        self.step("In alice's job, a program takes GPU memory, 2 MiB at a time, until CUDA has no more (error 2).");
        let bytes = u64::from(slice.memory) << 20;
        let takes = format!("{FOLDER}/takes cuMemAlloc_v2 {STEP} hold 0 </dev/null");
        let total = format!("total={bytes}");
        let said = self.ok("alice", &in_job(&slice.job, &takes), &["then=2", &total])?;
        let taken = number(&said, "blocks=")? * STEP;
        ensure!(0 < taken && taken < bytes, "{taken} of {bytes} bytes");
        say(
            "Together with CUDA's own context, that is her slice; the next 2 MiB were refused, and nothing was killed.",
        );

        self.step("What programs are told: NVML, which nvidia-smi asks, and CUDA, which PyTorch asks, show the slice.");
        let asked = [
            "nvmlDeviceGetMemoryInfo",
            "cuMemGetInfo_v2",
            "cuDeviceTotalMem_v2",
        ];
        let views = in_job(&slice.job, &format!("{FOLDER}/views both"));
        // Before the name it says which GPU, and behind it what it was called with.
        let line = format!("{views} | grep -E '^0 ({}):'", asked.join("|"));
        let said = self.ok("alice", &line, &[])?;
        for function in asked {
            let shown = said.lines().find(|line| line.contains(function));
            let shown = shown.with_context(|| format!("no {function}"))?;
            must_show(shown, &format!(" {bytes}"))?;
        }
        Ok(())
    }

    fn escapes(&mut self, slice: &Slice<'_>) -> Result<()> {
        let Slice {
            job, node, conf, ..
        } = slice;
        self.step("Inside her job, alice can change no limit and open no other GPU.");
        let step = format!("srun --jobid={job} --overlap bash -c");
        let line = format!("{step} 'echo CUDA_DEVICE_MEMORY_LIMIT=0 >{conf}'");
        self.refused("alice", &line, &["Permission denied"])?;
        let kept = node
            .read(conf)?
            .is_some_and(|text| text.contains(&slice.memory_line()));
        ensure!(kept, "the limits were overwritten");
        if self.cluster.constrains_devices() {
            let line = format!("{step} 'for gpu in /dev/nvidia[0-9]; do head -c0 $gpu; done'");
            let words = [
                "/dev/nvidia0' for reading: No such device or address",
                "/dev/nvidia1' for reading: Operation not permitted",
            ];
            self.refused("alice", &line, &words)?;
            say("The first file has no driver behind it; the second is fenced off by Slurm.");
        } else {
            say("This machine has no control groups of version 1: Slurm fences no devices here.");
        }
        Ok(())
    }

    fn refusals(&mut self, slice: &Slice<'_>) -> Result<()> {
        let (cluster, job) = (self.cluster, &slice.job);
        self.step(
            "Requests that cannot be kept are refused, and the answer says what to type instead.",
        );
        for (options, code) in [
            ("--gres=gpu:l40s.3:1", "[SLICE_SIZE]"),
            ("--gres=shard:l40s:9", "[RAW_SHARD]"),
            ("--gres=gpu:l40s.4:1 --exclusive", "[SLICE_OPTION]"),
        ] {
            self.refused("alice", &format!("sbatch {options} {JOB}"), &[code])?;
        }
        say(
            "These answers came from cli_filter, in her own sbatch. She can leave it out; slurmctld says the same:",
        );
        let bypass =
            "sed /CliFilterPlugins/d /etc/slurm/slurm.conf >mine.conf; SLURM_CONF=~/mine.conf";
        let line = format!("{bypass} sbatch --gres=gpu:l40s.3:1 {JOB}");
        self.refused("alice", &line, &["[SLICE_SIZE]"])?;
        say("The tag in the job's record is not hers to edit either:");
        for field in ["comment", "extra"] {
            // Slurm 22.05 has no field of that name for scontrol.
            if field == "comment" || cluster.slurm() >= Slurm::V24_11 {
                let line = format!("scontrol update jobid={job} {field}=softmig=1:whole");
                self.refused("alice", &line, &[])?;
            }
        }
        must_show(&cluster.slurmctld_log()?, "[TAG_EDIT]")?;
        self.has_tag(job, &slice.tag)
    }

    fn end(&mut self, slice: &Slice<'_>, neighbour: &str) -> Result<()> {
        let Slice {
            job, node, conf, ..
        } = slice;

        self.step("alice's job ends; the epilog removes what the prolog made for it, and nothing of bob's.");
        self.ok("alice", &format!("scancel {job}"), &[])?;
        self.cluster
            .wait_until("the epilog removed the file", || Ok(!node.exists(conf)?))?;
        let stays = format!("{neighbour}.conf");
        self.on(node, "alice", "ls /var/run/softmig/", &[&stays])?;
        self.ok("bob", "squeue --format='%i %u %T %N'", &[])?;
        Ok(())
    }

    /// A program works beside one that wants all of the GPU.
    fn share(&mut self, slice: &Slice<'_>, neighbour: &str) -> Result<()> {
        self.step("bob's program launches kernels as fast as it can; alice's program has its quarter of the time beside it.");
        let percent = slice.percent;
        let line = in_job(neighbour, &format!("{FOLDER}/paced 100000 600000 async"));
        print_line("bob", "login", &format!("{line} &"));
        let mut greedy = self.cluster.command("bob", &bash(&line)).spawn()?;
        let line = in_job(&slice.job, &format!("{FOLDER}/paced 100000 2000 async"));
        let mut had = 0.0;
        for _ in 0..TRIES {
            let said = self.ok("alice", &line, &[])?;
            had = number(&said, "share ")? as f64 / 100.0;
            if had > percent / 2.0 && had < percent + 2.0 {
                let runs = greedy.runs()?;
                ensure!(runs, "bob's program has ended: {}", greedy.stderr()?);
                greedy.kill()?;
                say(format!(
                    "She had {had:.1} % of the GPU's time, of {percent} %."
                ));
                return Ok(());
            }
            say("This machine is busy with other work: once more.");
        }
        bail!("alice had {had:.1} % of the GPU's time, not {percent} %")
    }

    /// Submits a job, and waits for its prolog: Slurm calls a job running as soon as it has its nodes.
    fn submit(&self, user: &str, request: &str) -> Result<String> {
        let said = self.ok(user, &format!("sbatch {request} {JOB}"), &[])?;
        let job = said.trim().strip_prefix("Submitted batch job ");
        let job = job.with_context(|| format!("sbatch gave no job: {said}"))?;
        self.cluster.wait_job(job, "RUNNING")?;
        let conf = conf_of(job);
        self.cluster.wait_until(&format!("there is a {conf}"), || {
            let there = self.cluster.nodes().iter().map(|node| node.exists(&conf));
            Ok(there.collect::<Result<Vec<_>>>()?.contains(&true))
        })?;
        Ok(job.into())
    }

    fn has_tag(&self, job: &str, promised: &str) -> Result<()> {
        let tag = tag(self.cluster, job.parse()?)?;
        ensure!(tag.as_deref() == Some(promised), "the job's tag is {tag:?}");
        Ok(())
    }

    fn step(&mut self, title: &str) {
        self.number += 1;
        println!("\n[{}] {title}", self.number);
    }

    /// Types a line on the machine of slurmctld. It has to succeed and to show the words; its standard output.
    fn ok(&self, user: &str, line: &str, words: &[&str]) -> Result<String> {
        let call = self.cluster.command(user, &bash(line));
        succeeded(show(user, "login", line, call)?, line, words)
    }

    /// The same on a node.
    fn on(&self, node: &Node, user: &str, line: &str, words: &[&str]) -> Result<String> {
        let call = node.command(user, &bash(line));
        succeeded(show(user, node.name(), line, call)?, line, words)
    }

    /// Types a line that has to fail and to show the words.
    fn refused(&self, user: &str, line: &str, words: &[&str]) -> Result<()> {
        let call = self.cluster.command(user, &bash(line));
        let output = show(user, "login", line, call)?;
        ensure!(
            !output.success(),
            "`{line}` should have been refused, and was accepted"
        );
        let said = output.stdout + &output.stderr;
        words.iter().try_for_each(|word| must_show(&said, word))
    }
}

impl Slice<'_> {
    /// The line of its memory in its file.
    fn memory_line(&self) -> String {
        format!("CUDA_DEVICE_MEMORY_LIMIT={}M\n", self.memory)
    }
}

/// Starts the monitor of a node, and waits until it answers.
pub(crate) fn monitor(cluster: &Cluster, node: &Node) -> Result<Client> {
    let monitor = node.command("root", &[MONITOR]).spawn()?;
    cluster.wait_until("the monitor answers", || {
        node.exists("/var/run/softmig/arbiter.sock")
    })?;
    Ok(monitor)
}

fn succeeded(output: Output, line: &str, words: &[&str]) -> Result<String> {
    let is_good = output.success();
    ensure!(is_good, "`{line}` should have succeeded: {}", output.status);
    words
        .iter()
        .try_for_each(|word| must_show(&output.stdout, word))?;
    Ok(output.stdout)
}

/// Fails unless the text holds this.
pub(crate) fn must_show(text: &str, wanted: &str) -> Result<()> {
    let is_there = text.contains(wanted);
    let text = text.trim_end();
    ensure!(is_there, "{wanted:?} should be in it, and is not:\n{text}");
    Ok(())
}

/// The number behind a word.
pub(crate) fn number(text: &str, word: &str) -> Result<u64> {
    let rest = text.split_once(word).map(|(_, rest)| rest);
    let digits = rest.and_then(|rest| rest.split(|sign: char| !sign.is_ascii_digit()).next());
    let digits = digits.with_context(|| format!("no {word:?} in {text}"))?;
    digits.parse().with_context(|| format!("{word}{digits}"))
}

/// A sentence between commands.
fn say(text: impl Display) {
    println!("    {text}");
}

pub(crate) fn bash(line: &str) -> [&str; 3] {
    ["bash", "-c", line]
}

fn print_line(user: &str, host: &str, line: &str) {
    let mark = if user == "root" { '#' } else { '$' };
    println!("    {user}@{host}{mark} {line}");
}

fn show(user: &str, host: &str, line: &str, call: Call) -> Result<Output> {
    print_line(user, host, line);
    let output = call.output()?;
    for said in output.stdout.lines().chain(output.stderr.lines()) {
        println!("        {}", said.trim_end());
    }
    Ok(output)
}

/// Shows where a job runs and with what.
fn place_of(job: &str) -> String {
    format!("scontrol -d show job {job} | grep -oE 'Nodes=.* GRES=.*'")
}

/// The file with a job's limits.
fn conf_of(job: &str) -> String {
    format!("/var/run/softmig/{job}.conf")
}

/// A step of a job that runs this.
fn in_job(job: &str, program: &str) -> String {
    format!("srun --jobid={job} --overlap {program}")
}
