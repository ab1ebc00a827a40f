//! The commands of docs/install.md, "A first slice on one machine": from a machine with Slurm and a driver to a checked slice
//! that holds. The page itself is read, so that it cannot say something else than what was run.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use softmig_tests::builder::unique_tag;
use softmig_tests::{Gpus, Machine, Node, Root, Slurm, on_each_slurm};

use crate::packages::debs::built;

on_each_slurm!(seams: the_commands_lead_to_a_checked_slice);

const PAGE: &str = include_str!("../../../docs/install.md");
const HEADING: &str = "\n## A first slice on one machine\n";

/// A command of the page, and whether root types it.
struct Typed {
    command: String,
    by_root: bool,
}

impl Typed {
    /// Of a line as the page shows it: a prompt, the command, perhaps a remark.
    fn read(line: &str) -> Result<Self> {
        let (prompt, rest) = line.split_once(' ').context("no prompt")?;
        let command = rest.split("    # ").next().unwrap_or(rest).trim();
        Ok(Self {
            command: command.to_owned(),
            by_root: match prompt {
                "#" => true,
                "$" => false,
                _ => anyhow::bail!("{line}: no prompt"),
            },
        })
    }
}

fn of_the_page() -> Result<Vec<Typed>> {
    let (_, below) = PAGE.split_once(HEADING).context("no such heading")?;
    let block = below.split("```").nth(1).context("no commands")?;
    let lines = block.trim().lines();
    let commands: Vec<Typed> = lines.map(Typed::read).collect::<Result<_>>()?;
    ensure!((2..=11).contains(&commands.len()), "{block}");
    // Each line is one command; a pipe is one too.
    for Typed { command, .. } in &commands {
        ensure!(
            !command.contains("&&") && !command.contains(';'),
            "{command}"
        );
    }
    Ok(commands)
}

/// A site before softmig: Slurm with whole GPUs, as its packages start it.
fn slurm_conf(name: &str) -> String {
    format!(
        "ClusterName=site
SlurmctldHost={name}
SlurmUser=slurm
AuthInfo=socket=/cluster/munge/munge.socket
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/var/spool/slurmctld/pid
SlurmdPidFile=/var/spool/slurmd.pid
SlurmctldLogFile=/var/spool/slurmctld/log
SlurmdLogFile=/var/log/slurmd.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
ReturnToService=2
MpiDefault=none
MailProg=/bin/true
NodeName={name} CPUs=2 RealMemory=2000 Gres=gpu:l40s:2 State=UNKNOWN
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"
    )
}

const GRES_CONF: &str = "Name=gpu Type=l40s File=/dev/nvidia[0-1]\n";
const CGROUP_CONF: &str =
    "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainDevices=yes\n";

/// A `systemctl` for a test machine, which has no systemd: it starts and stops the programs of the named units.
const SYSTEMCTL: &str = "#!/bin/sh
stop() {
    pid=$(pgrep -xo \"$1\") || return 0
    kill \"$pid\"
    while kill -0 \"$pid\" 2>/dev/null; do sleep 0.05; done
}
verb=$1
shift
for unit; do
    unit=${unit%.service}
    case \"$verb $unit\" in
    'restart slurmctld')
        stop slurmctld
        slurmctld || exit 1
        until scontrol ping | grep -q 'is UP'; do sleep 0.1; done ;;
    'restart slurmd')
        stop slurmd
        slurmd || exit 1 ;;
    'enable softmig-monitor')
        if ! mountpoint -q /run/softmig; then
            mkdir -p /run/softmig
            mount -t tmpfs -o mode=0755,size=16m,nr_inodes=64k,nosuid,nodev,noexec softmig /run/softmig
        fi
        setsid --fork /usr/libexec/softmig-monitor </dev/null >/tmp/monitor.log 2>&1
        until pgrep -x softmig-monitor >/dev/null; do sleep 0.05; done ;;
    esac
done
";

/// In the place of NVIDIA's: takes device memory in blocks of 32 MiB until it is refused, and says how much there is.
const NVIDIA_SMI: &str = "#!/bin/sh\nexec /opt/programs/takes cuMemAlloc_v2 33554432 fill\n";

/// A machine that is a site of its own, controller, login and GPU node, with these files in /root.
fn site(slurm: Slurm, name: &str, files: &[PathBuf]) -> Result<Machine> {
    let mut root = Root::new(slurm)
        .programs()
        .node(name, [Gpus::l40s(2)])
        .file("/etc/slurm/slurm.conf", slurm_conf(name))
        .file("/etc/slurm/gres.conf", GRES_CONF)
        .file("/etc/slurm/cgroup.conf", CGROUP_CONF)
        .file("/usr/bin/systemctl", SYSTEMCTL)
        .file("/usr/bin/nvidia-smi", NVIDIA_SMI);
    for file in files {
        let name = file.file_name().context("a file without a name")?;
        root = root.install(file, Path::new("/root").join(name), 0o644);
    }
    root.start()
}

fn shell(node: &Node, user: &str, script: &str) -> Result<String> {
    let call = node.command(user, &["sh", "-c", script]);
    // Where packages lie; a user's own folder.
    let home = if user == "root" {
        "/root"
    } else {
        "/home/alice"
    };
    let output = call.cwd(home).output()?;
    ensure!(output.success(), "{script}: {output}");
    Ok(output.stdout + &output.stderr)
}

fn the_commands_lead_to_a_checked_slice(slurm: Slurm) -> Result<()> {
    walk(slurm, &of_the_page()?, &built("deb")?)
}

/// EL's part, as far as it can be had: what rpm installed with glibc 2.31, on a machine with a Slurm that has shards. Debian 11
/// has one from before them.
#[test]
fn the_rpm_packages_lead_to_a_first_slice_too() -> Result<()> {
    let mut root = Root::oldest();
    for rpm in built("rpm")? {
        let name = rpm.file_name().context("a package without a name")?;
        root = root.install(&rpm, Path::new("/root/rpms").join(name), 0o644);
    }
    let machine = root.start()?;
    let install = "rpm -i --nodeps /root/rpms/*.rpm && \
                   rpm -ql softmig softmig-controller softmig-node | \
                   tar -C / --no-recursion -cf /root/installed.tar -T -";
    machine
        .command("root", &["sh", "-c", install])
        .output()?
        .ok()?;
    let folder = tempfile::tempdir()?;
    let files = folder.path().join("installed.tar");
    std::fs::copy(machine.path("/root/installed.tar")?, &files)?;

    let mut commands = of_the_page()?;
    ensure!(commands[0].command.starts_with("dpkg -i "));
    commands[0].command = "tar -C / -xf installed.tar".into();
    walk(Slurm::V22_05, &commands, &[files])
}

fn walk(slurm: Slurm, commands: &[Typed], files: &[PathBuf]) -> Result<()> {
    let name = format!("{}n1", unique_tag());
    let machine = site(slurm, &name, files)?;
    let node = &machine.nodes()[0];
    let _driver = node.start_driver()?;
    let root = |script: &str| shell(node, "root", script);
    root(&format!(
        "hostname {name}; echo 127.0.0.1 {name} >>/etc/hosts; mkdir -p /run/systemd/system /var/spool/slurmctld; \
         chown slurm /var/spool/slurmctld; rm -rf /var/lib/softmig /var/log/softmig; systemctl restart slurmctld slurmd"
    ))?;
    // A site whose whole GPUs work.
    let seen = shell(
        node,
        "alice",
        "srun --gres=gpu:l40s:1 sh -c 'ls /dev/nvidia?'",
    )?;
    ensure!(seen.contains("/dev/nvidia0"), "{seen}");

    let start = Instant::now();
    let mut said = Vec::new();
    for Typed { command, by_root } in commands {
        let user = if *by_root { "root" } else { "alice" };
        said.push(shell(node, user, command)?);
    }
    let took = start.elapsed();

    let check = commands
        .iter()
        .zip(&said)
        .find(|(typed, _)| typed.command == "softmig check");
    let (_, check) = check.context("no check on the page")?;
    ensure!(check.contains("softmig check: 0 errors"), "{check}");
    // This machine may have fewer CPUs than one with GPUs has.
    let warnings = check.lines().filter(|line| line.starts_with("WARN"));
    let mut others = warnings.filter(|line| !line.starts_with("WARN  CPUS_BELOW_SLICES "));
    ensure!(others.next().is_none(), "{check}");
    // The last command is the job, which has a quarter of 45464 MiB and is refused what is beyond.
    let job = said.last().context("no commands")?;
    ensure!(
        job.contains(&format!("total={}\n", 11366u64 << 20)),
        "{job}"
    );
    let blocks = job
        .split_once("took: blocks=")
        .and_then(|(_, rest)| rest.split_once(" then=2\n"));
    let blocks: u64 = blocks.with_context(|| job.clone())?.0.parse()?;
    ensure!((300..=355).contains(&blocks), "{job}");
    eprintln!(
        "Debian {}: {} commands to a checked slice in {:.1} s",
        slurm.suite(),
        commands.len(),
        took.as_secs_f64()
    );
    Ok(())
}
