//! `softmig run` with the library and the fake driver: what the processes of a run get of a GPU together, what their user
//! hears, and where nothing is run. Tests without a GPU are beside the command (softmig/tests/run.rs).

use anyhow::{Context, Result, bail, ensure};
use softmig_fake_node::MIB;
use softmig_tests::programs::{FOLDER, LIBRARY, PRELOAD};
use softmig_tests::softmig::{installed, stage};
use softmig_tests::{Gpus, Machine, Output, Root, Slurm, on_each_slurm};

on_each_slurm!(
    in_a_job_its_own_limits_are_named_and_nothing_is_run,
    outside_jobs_the_users_own_job_is_named_and_nothing_is_run,
);

/// Takes memory of the first GPU, one block for each argument, in MiB, and keeps it until its standard input ends. It
/// prints what cuInit and the two calls for a context returned, and then each cuMemAlloc.
const TAKE: &str = r#"#!/usr/bin/python3
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
results = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)]
for mib in sys.argv[1:]:
    at = ctypes.c_uint64()
    results.append(cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(int(mib) << 20)))
print(*results, flush=True)
sys.stdin.read()
"#;

/// Launches kernels of 100 us for half a second, and says what share of it the GPU worked for them.
const PACED: &str = "/opt/programs/paced 100000 500 async";
/// How often shares are measured until they are as they should be: others use this machine too.
const TRIES: usize = 4;

/// Three takers at the same time, and a fourth after the first was killed.
const SHARE: &str = r#"#!/usr/bin/python3
import subprocess
def start(size):
    taker = subprocess.Popen(["take", size], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    print(taker.stdout.readline(), end="", flush=True)
    return taker
takers = [start("1024"), start("1024"), start("1024")]
takers[0].kill()
takers[0].wait()
takers.append(start("1024"))
for taker in takers[1:]:
    taker.stdin.close()
    taker.wait()
"#;

fn root() -> Root {
    Root::new(Slurm::V22_05)
        .stage(stage())
        .programs()
        .node("n1", [Gpus::l40s(2)])
        .file("/usr/local/bin/take", TAKE)
        .file("/usr/local/bin/share", SHARE)
}

/// Starts the machine and its driver, which lasts as long as what is given back.
fn start(root: &Root) -> Result<(Machine, softmig_fake_node::Node)> {
    let machine = root.start()?;
    let driver = machine.nodes()[0].start_driver()?;
    Ok((machine, driver))
}

fn run(machine: &Machine, user: &str, script: &str) -> Result<Output> {
    let call = machine.nodes()[0].command(user, &["bash", "-c", script]);
    call.output()
}

/// Whether it is the library's first refusal.
fn is_refusal(line: &str, asked: u32, may_hold: u32) -> bool {
    line.contains(&format!(
        " out of memory on GPU 0: cuMemAlloc asked for {asked} MiB, "
    )) && line.ends_with(&format!(" and may hold {may_hold} MiB"))
}

#[test]
fn a_runs_processes_share_its_memory_and_one_refusal_is_told() -> Result<()> {
    let (machine, driver) = start(&root())?;
    let output = run(
        &machine,
        "alice",
        "softmig run --memory 4g -q -- share; ls /tmp/softmig-2001",
    )?;
    assert_eq!(
        output.stdout, "0 0 0 0\n0 0 0 0\n0 0 0 2\n0 0 0 0\n",
        "{output}"
    );
    let told: Vec<&str> = output.stderr.lines().collect();
    ensure!(
        told.len() == 1 && is_refusal(told[0], 1024, 4096),
        "{output}"
    );
    // As the driver saw it.
    let peak = driver.peak(0) / MIB;
    ensure!((3 * 1024..=4096).contains(&peak), "{peak} MiB");
    Ok(())
}

/// The shares of the GPU's time, in percent, that the clients of a script had: of each that is `PACED`.
fn shares(machine: &Machine, script: &str) -> Result<Vec<f64>> {
    let output = run(machine, "alice", script)?;
    let said = output.ok()?;
    let share = |line: &str| -> Result<f64> {
        let share = line.split(" share ").nth(1).context(line.to_owned())?;
        let number = share.split(' ').next().context(line.to_owned())?;
        Ok(number.parse::<f64>()? / 100.0)
    };
    said.lines().map(share).collect()
}

/// Measures until all shares of a script's clients together are as they should be.
fn together(machine: &Machine, script: &str, is_right: impl Fn(f64) -> bool) -> Result<()> {
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let shares = shares(machine, script)?;
        if is_right(shares.iter().sum()) {
            return Ok(());
        }
        seen.push(shares);
    }
    bail!("{script}: {seen:.2?}")
}

#[test]
fn a_run_has_its_share_of_the_time_and_no_more() -> Result<()> {
    assert!(PACED.starts_with(FOLDER));
    let (machine, _driver) = start(&root())?;
    together(&machine, PACED, |free| free > 50.0)?;
    for share in ["25", "12.5"] {
        let asked: f64 = share.parse()?;
        let script = format!("softmig run --compute {share} -q -- {PACED}");
        together(&machine, &script, |got| {
            got <= asked + 1.5 && got > asked / 3.0
        })?;
    }
    Ok(())
}

#[test]
fn the_processes_of_a_run_share_its_time() -> Result<()> {
    let (machine, _driver) = start(&root())?;
    let two = format!("{PACED} & {PACED} & wait");
    let script = format!("softmig run --compute 25 -q -- sh -c '{two}'");
    // Of two runs each has as much: this is what the sum would be if they did not share.
    let apart = format!("softmig run --compute 25 -q -- {PACED}");
    let apart = format!("{apart} & {apart} & wait");
    together(&machine, &apart, |got| got > 30.0)?;
    together(&machine, &script, |got| got <= 26.5 && got > 25.0 / 3.0)
}

#[test]
fn on_an_observing_node_launches_do_not_wait_and_it_says_so() -> Result<()> {
    let (machine, _driver) =
        start(&root().file("/etc/softmig/node.conf", "SOFTMIG_NODE=observe\n"))?;
    let script = format!("softmig run --compute 25 -- {PACED}");
    together(&machine, &script, |got| got > 50.0)?;
    let output = run(&machine, "alice", &script)?;
    ensure!(output.stderr.contains("time is not limited"), "{output}");
    Ok(())
}

#[test]
fn two_runs_of_one_user_have_an_account_each() -> Result<()> {
    let (machine, _driver) = start(&root())?;
    let script = "mkfifo held; softmig run --memory 2g -q -- take 1500 <held & exec 9>held
        softmig run --memory 2g -q -- take 1500 </dev/null; exec 9>&-; wait; rm held";
    let output = run(&machine, "alice", script)?;
    assert_eq!(output.stdout, "0 0 0 0\n0 0 0 0\n", "{output}");
    assert_eq!(output.stderr, "");
    Ok(())
}

#[test]
fn a_run_uses_the_library_that_is_in_every_process() -> Result<()> {
    let (machine, _driver) = start(&root())?;
    machine.write(PRELOAD, &format!("{LIBRARY}\n"))?;
    let script = "softmig run --memory 1g -q -- sh -c 'echo ${LD_PRELOAD-none}; take 2000'";
    let output = run(&machine, "alice", script)?;
    assert_eq!(output.stdout, "none\n0 0 0 2\n", "{output}");
    let script =
        format!("cp {LIBRARY} /tmp; softmig run --memory 1g --library /tmp/libsoftmig.so take 1");
    let output = run(&machine, "alice", &script)?;
    assert_eq!(output.status.code(), Some(2), "{output}");
    ensure!(output.stderr.contains("leave out --library"), "{output}");
    Ok(())
}

#[test]
fn on_a_node_that_observes_nothing_is_refused_and_that_is_said() -> Result<()> {
    let (machine, _driver) =
        start(&root().file("/etc/softmig/node.conf", "SOFTMIG_NODE=observe\n"))?;
    let output = run(&machine, "alice", "softmig run --memory 1g -- take 2000")?;
    assert_eq!(output.stdout, "0 0 0 0\n", "{output}");
    ensure!(
        output.stderr.contains("softmig: this node only observes"),
        "{output}"
    );
    ensure!(
        output.stderr.contains("would be out of memory on GPU 0: "),
        "{output}"
    );
    Ok(())
}

#[test]
fn a_refusal_goes_to_the_file_that_the_user_names() -> Result<()> {
    let (machine, _driver) = start(&root())?;
    // In a run, and with the variables alone.
    let alone = format!("LD_PRELOAD={LIBRARY} CUDA_DEVICE_MEMORY_LIMIT=1g take 2000");
    for how in ["softmig run --memory 1g -q -- take 2000", &alone] {
        let script = format!(
            "export SOFTMIG_LOG_FILE=gpu.log; {how}; stat -c %a gpu.log; cat gpu.log; rm gpu.log"
        );
        let output = run(&machine, "alice", &script)?;
        let lines: Vec<&str> = output.stdout.lines().collect();
        ensure!(
            lines.len() == 3 && lines[..2] == ["0 0 0 2", "600"],
            "{how}: {output}"
        );
        ensure!(is_refusal(lines[2], 2000, 1024), "{how}: {output}");
        assert_eq!(output.stderr, "", "{how}");
    }
    // A link is not followed: then it is the log of the run.
    let script = "touch other; ln -s other gpu.log
        SOFTMIG_LOG_FILE=gpu.log softmig run --memory 1g -q -- take 2000; wc -c <other";
    let output = run(&machine, "alice", script)?;
    assert_eq!(output.stdout, "0 0 0 2\n0\n", "{output}");
    ensure!(is_refusal(output.stderr.trim_end(), 2000, 1024), "{output}");
    Ok(())
}

#[test]
fn a_process_that_cannot_use_the_ledger_gets_no_memory() -> Result<()> {
    let (machine, _driver) = start(&root())?;
    // Bob, with a ledger of alice's; and one that is nowhere.
    let bob = format!("LD_PRELOAD={LIBRARY} CUDA_DEVICE_MEMORY_LIMIT=1g take 1");
    let script = format!(
        "softmig run --memory 1g -q -- bash -c 'chmod 711 ${{SOFTMIG_RUN%/*}}; echo $SOFTMIG_RUN >/tmp/path; \
            until [ -e /tmp/done ]; do sleep 0.01; done' & until [ -s /tmp/path ]; do sleep 0.01; done
        runuser -u bob -- env SOFTMIG_RUN=$(cat /tmp/path) {bob} </dev/null
        runuser -u bob -- env SOFTMIG_RUN=/tmp/nowhere/ledger {bob} </dev/null; touch /tmp/done; wait"
    );
    let output = run(&machine, "root", &script)?;
    let results: Vec<&str> = output.stdout.lines().collect();
    ensure!(results.len() == 2, "{output}");
    for line in results {
        ensure!(line.starts_with("0 ") && !line.ends_with(" 0"), "{output}");
    }
    Ok(())
}

/// The locks by which the library knows who is alive do not last on an overlay, and a container's root is often one.
#[test]
fn a_ledger_is_never_on_an_overlay() -> Result<()> {
    let (machine, _driver) = start(&root())?;
    run(
        &machine,
        "root",
        "while umount /tmp; do :; done 2>/dev/null; test $(stat -f -c %T /tmp) = overlayfs",
    )?
    .ok()?;
    let script =
        "softmig run --memory 1g -q -- sh -c 'dirname $(dirname $SOFTMIG_RUN); take 500 500'";
    let output = run(&machine, "alice", script)?;
    assert_eq!(
        output.stdout, "/dev/shm/softmig-2001\n0 0 0 0 2\n",
        "{output}"
    );
    run(&machine, "root", "umount /dev/shm && rmdir /dev/shm")?.ok()?;
    let output = run(&machine, "alice", "softmig run --memory 1g take 1")?;
    assert_eq!(
        (output.status.code(), output.stdout.as_str()),
        (Some(2), ""),
        "{output}"
    );
    ensure!(output.stderr.contains("mount a tmpfs there"), "{output}");
    Ok(())
}

/// As docs/run.md has it for containers: a root folder and namespaces of its own, the library, the run's folder and four
/// variables. On a node that enforces, of which the container knows nothing.
#[test]
fn a_container_shares_the_account_of_the_run_around_it() -> Result<()> {
    let (machine, _driver) =
        start(&root().file("/etc/softmig/node.conf", "SOFTMIG_NODE=enforce\n"))?;
    machine.nodes()[0].write(
        "/usr/local/bin/container",
        r#"#!/bin/bash
# container LEDGER CMD...: started by root, run as alice
ledger=$1; shift
exec unshare --mount --pid --fork --cgroup --uts --ipc bash -c '
set -e
root=$(mktemp -d); chmod 755 $root; folder=$(dirname '$ledger')
mkdir -p $root/{usr,proc,dev,run/fake-gpu,tmp} $root$folder
for name in bin lib lib64; do ln -s usr/$name $root/$name; done
mount --rbind /usr $root/usr; mount --rbind /dev $root/dev; mount -t proc proc $root/proc
mount --bind /run/fake-gpu $root/run/fake-gpu; mount --bind $folder $root$folder
exec chroot $root setpriv --reuid=2001 --regid=2001 --clear-groups env -i PATH=$PATH \
    LD_PRELOAD=/usr/lib/softmig/libsoftmig.so CUDA_DEVICE_MEMORY_LIMIT=4096M SOFTMIG_RUN='$ledger' "$@"' container "$@"
"#,
    )?;
    let script = "cd /tmp; mkfifo -m 666 ledger go held
        runuser -u alice -- softmig run --memory 4g -q -- \
            bash -c 'echo $SOFTMIG_RUN >ledger; read <go; take 1024; exit 5' </dev/null >outside 2>told &
        read ledger <ledger
        container $ledger ls /etc/softmig
        container $ledger take 2500 <held >inside & exec 9>held
        until [ -s inside ]; do sleep 0.01; done
        echo >go; wait %1; echo status $?
        exec 9>&-; wait; cat inside outside; cat told >&2; ls /tmp/softmig-2001 | wc -l";
    let output = run(&machine, "root", script)?;
    assert_eq!(output.stdout, "status 5\n0 0 0 0\n0 0 0 2\n1\n", "{output}");
    ensure!(
        output.stderr.contains("cannot access '/etc/softmig'"),
        "{output}"
    );
    ensure!(
        output
            .stderr
            .lines()
            .any(|line| is_refusal(line, 1024, 4096)),
        "{output}"
    );
    // The container outlived the command, so its folder stayed; the next run finds no process in it.
    ensure!(
        output
            .stderr
            .contains("processes of this run are still there"),
        "{output}"
    );
    let output = run(
        &machine,
        "alice",
        "softmig run --memory 1g -q true; ls /tmp/softmig-2001",
    )?;
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("", ""));
    Ok(())
}

/// The terminal sends its own signals to the command as well; a second one would cut short what the first one began.
#[test]
fn signals_are_sent_on_but_for_those_of_the_terminal() -> Result<()> {
    let (machine, _driver) = start(&root())?;
    machine.write(
        "/usr/local/bin/counts",
        r#"#!/usr/bin/python3
import os, signal
count = 0
def say(words):
    os.write(1, words.encode() + b"\n")
# Waited for, not handled: a handler of Python's runs later where the signal comes just before a pause.
signals = [signal.SIGINT, signal.SIGUSR1]
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
# Out of the terminal's reach: what comes now is sent by softmig.
os.setpgid(0, 0)
say("ready")
while True:
    if signal.sigwait(signals) == signal.SIGINT:
        count += 1
    say("interrupts: %d" % count)
"#,
    )?;
    machine.write(
        "/usr/local/bin/types",
        r#"#!/usr/bin/python3
import os, pty, signal
softmig, terminal = pty.fork()
if softmig == 0:
    os.execvp("softmig", ["softmig", "run", "--memory", "4g", "-q", "--", "counts"])
said = ""
def until(words):
    global said
    while words not in said:
        said += os.read(terminal, 1000).decode()
    said = ""
until("ready")
os.write(terminal, b"\x03")
# Written after the signal was sent.
until("^C")
os.kill(softmig, signal.SIGUSR1)
until("interrupts: 0")
# Alone: two signals that wait together may be sent on in either order.
os.kill(softmig, signal.SIGINT)
until("interrupts: 1")
os.kill(softmig, signal.SIGTERM)
print(os.WTERMSIG(os.waitpid(softmig, 0)[1]))
"#,
    )?;
    let output = run(&machine, "alice", "types")?;
    assert_eq!(output.stdout, "15\n", "{output}");
    Ok(())
}

const ENFORCE: (&str, &str) = ("/etc/softmig/node.conf", "SOFTMIG_NODE=enforce\n");
const RUN: [&str; 6] = ["softmig", "run", "--memory=4g", "--", "echo", "ran"];

fn in_a_job_its_own_limits_are_named_and_nothing_is_run(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).file(ENFORCE.0, ENFORCE.1).start()?;
    let alice = cluster.user("alice");
    for (gres, parts) in [
        (
            "--gres=gpu:l40s.4:1",
            [
                "its limits hold",
                "11366 MiB and 25 % of the time of each GPU",
            ],
        ),
        (
            "--gres=gpu:l40s:1",
            ["which has no limits", "ask Slurm for a slice"],
        ),
    ] {
        let output = alice.srun(&[&[gres][..], &RUN].concat())?;
        assert_eq!(
            (output.status.code(), output.stdout.as_str()),
            (Some(2), ""),
            "{output}"
        );
        for part in parts {
            ensure!(output.stderr.contains(part), "{output}");
        }
    }
    // A node that is switched off has no jobs of softmig's.
    cluster.write(ENFORCE.0, "SOFTMIG_NODE=off\n")?;
    let output = alice.srun(&[&["--gres=gpu:l40s.4:1"][..], &RUN].concat())?;
    assert_eq!(output.stdout, "ran\n", "{output}");
    Ok(())
}

fn outside_jobs_the_users_own_job_is_named_and_nothing_is_run(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).file(ENFORCE.0, ENFORCE.1).start()?;
    let alice = cluster.user("alice");
    let node = cluster.node(0);
    let options = ["--gres=gpu:l40s.4:1", "--nodelist", node.name()];
    let job = alice.sbatch(&options, "touch started; sleep 60")?;
    // It runs in Slurm's eyes before its prolog is done.
    cluster.wait_for("the job's start", || cluster.read("/home/alice/started"))?;
    let output = node.command("alice", &RUN).output()?;
    assert_eq!(
        (output.status.code(), output.stdout.as_str()),
        (Some(2), ""),
        "{output}"
    );
    ensure!(
        output
            .stderr
            .contains(&format!("your job {job} runs on this node")),
        "{output}"
    );
    for user in ["bob", "root"] {
        assert_eq!(node.command(user, &RUN).output()?.stdout, "ran\n", "{user}");
    }
    alice.run(&["scancel", &job.to_string()])?.ok()?;
    cluster.wait_for("the job's end", || {
        let output = node.command("alice", &RUN).output()?;
        Ok((output.stdout == "ran\n").then_some(()))
    })
}
