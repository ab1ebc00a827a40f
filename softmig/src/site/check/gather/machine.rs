//! The facts about this machine: the library, the monitor, control groups, GPUs.

use crate::ask::monitor;
use crate::ask::slurmd::{Slurmd, places_of_steps};
use crate::machine::node::Settings;
use crate::machine::node::jobs::unknown_to_slurm;
use crate::machine::scheduler;
use crate::machine::{loaders, preload};
use crate::site::check::facts::{Cgroups, DeviceGate, DeviceMemory, Difference, Machine, Seen};
use crate::site::check::gather::{containers, device_memory, upkeep};
use softmig_node::node::Node;
use softmig_node::whole_node::{Narrowed, whole_node};
use softmig_nvml::{Devices, explained, memory_limit};
use softmig_policy::node::cgroup::{Membership, place};
use softmig_policy::node::node_conf::NodeConf;
use softmig_policy::node::paths::{NODE_CONF, RUN};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Slurm's programs at each job's start and end.
const PROGRAMS: [&str; 2] = ["/usr/libexec/softmig-prolog", "/usr/libexec/softmig-epilog"];

/// The control program of MPS, and where systemd's services look for programs.
const MPS_CONTROL: &str = "nvidia-cuda-mps-control";
const PATH: [&str; 4] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];

/// Whether this looks like a machine with GPUs that softmig holds jobs on.
pub(crate) fn is_node() -> bool {
    [NODE_CONF, "/dev/nvidiactl"]
        .iter()
        .any(|path| Path::new(path).exists())
}

/// Looks at this machine.
pub(crate) fn look() -> Machine {
    let nvml = devices();
    let programs = PROGRAMS.iter().filter(|path| !is_program(Path::new(path)));
    Machine {
        name: Slurmd::here().name,
        node_conf: node_conf(),
        preloaded: preload::named_libraries().map_err(|error| format!("{error:#}")),
        missing: preload::missing_libraries().map_err(|error| format!("{error:#}")),
        monitor: monitor::runs(),
        bad_programs: programs.map(|path| path.to_string()).collect(),
        upkeep: upkeep::look(Path::new("/"), Path::new(RUN)),
        device_memory: limits(nvml.is_ok()),
        runtimes: containers::look(Path::new("/")),
        shares_run: shares_run(Path::new(RUN)),
        cgroups: cgroups(),
        gate: gate(&Node::this_machine()),
        has_mps: PATH
            .iter()
            .any(|folder| is_program(&Path::new(folder).join(MPS_CONTROL))),
        ended_jobs: unknown_to_slurm(&Node::this_machine())
            .unwrap_or_default()
            .iter()
            .map(|id| id.get())
            .collect(),
        loaders: loaders::lists().map_err(str::to_owned),
        models: scheduler::look(&Node::this_machine()),
        nvml,
    }
}

fn node_conf() -> Seen<Option<NodeConf>> {
    let settings = Settings::read().map_err(|error| format!("{error:#}"))?;
    let conf = settings.map(|settings| settings.conf());
    conf.transpose().map_err(|error| format!("{error:#}"))
}

/// Limits besides softmig's on the GPU memory of the jobs here.
fn limits(has_nvml: bool) -> DeviceMemory {
    let nvml = has_nvml.then(|| softmig_nvml::open().ok()).flatten();
    let ask = |uuid: &str, group: &Path| memory_limit(nvml.as_ref()?, uuid, group);
    let cgroups = Path::new(device_memory::CGROUPS);
    device_memory::look(cgroups, &Node::this_machine(), &places_of_steps(), &ask)
}

/// Whether a folder is on the file system of the one that it is in.
fn shares_run(folder: &Path) -> bool {
    let device = |path: &Path| path.metadata().ok().map(|folder| folder.dev());
    let above = folder.parent().and_then(device);
    above.is_some() && device(folder) == above
}

/// Whether the device gate is there. If it is not, everything that it needs is tried.
fn gate(node: &Node) -> DeviceGate {
    if softmig_gate::is_set_up(&node.gate) {
        return DeviceGate::Set;
    }
    match softmig_gate::check(&node.gate) {
        Ok(()) => DeviceGate::NotSet,
        Err(error) if error.is_permission() => DeviceGate::Unknown(error.to_string()),
        Err(error) => DeviceGate::Impossible(error.to_string()),
    }
}

fn is_program(path: &Path) -> bool {
    let file = path.metadata();
    file.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o100 != 0)
}

fn devices() -> Seen<Devices> {
    match whole_node() {
        // A container may have all of the node's GPUs. If it has fewer, their number shows it.
        Ok(()) | Err(Narrowed::Container) => {}
        Err(narrowed) => return Err(narrowed.to_string()),
    }
    Devices::of_this_node().map_err(|error| explained(&error))
}

/// The difference between the policy here and the one in that file; `-` is standard input.
pub(crate) fn compare(own: &Path, other: &Path) -> anyhow::Result<Difference> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
    };
    let (with, other) = if other == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes)?;
        ("standard input".to_string(), bytes)
    } else {
        (other.display().to_string(), read(other)?)
    };
    let line = first_difference(&read(own)?, &other);
    Ok(Difference { with, line })
}

fn first_difference(own: &[u8], other: &[u8]) -> Option<usize> {
    if own == other {
        return None;
    }
    let lines = |bytes| {
        let lines: Vec<Vec<u8>> = <[u8]>::split(bytes, |byte: &u8| *byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect();
        lines
    };
    let (own, other) = (lines(own), lines(other));
    let same = own
        .iter()
        .zip(&other)
        .take_while(|(own, other)| own == other);
    Some(same.count() + 1)
}

fn cgroups() -> Seen<Cgroups> {
    const MOUNTS: &str = "/proc/self/mountinfo";
    let mounts = std::fs::read_to_string(MOUNTS).map_err(|error| format!("{MOUNTS}: {error}"))?;
    let mut unknown = Vec::new();
    for (job, text) in places_of_steps() {
        if !matches!(place(&text), Membership::Job(_)) {
            let text = String::from_utf8_lossy(&text);
            unknown.push(format!("job {job}: {}", shortened(&text)));
        }
    }
    Ok(Cgroups {
        usable: is_usable(&mounts),
        unknown,
    })
}

/// The line of a list that matters most, shortened.
fn shortened(list: &str) -> String {
    let lines = list
        .lines()
        .filter(|line| line.contains("devices") || line.starts_with("0::"));
    let text = lines.collect::<Vec<_>>().join(" ");
    let plain = text
        .chars()
        .filter(|letter| letter.is_ascii_graphic() || *letter == ' ');
    plain.take(120).collect()
}

/// Whether the control groups of this machine are of version 1.
pub(crate) fn has_cgroup_v1() -> bool {
    std::fs::read_to_string("/proc/self/mountinfo").is_ok_and(|mounts| !is_v2(&mounts))
}

fn is_v2(mounts: &str) -> bool {
    let at = |line: &str| line.split(' ').nth(4) == Some("/sys/fs/cgroup");
    mounts
        .lines()
        .any(|line| at(line) && line.contains(" - cgroup2 "))
}

/// Whether Slurm can make groups for jobs: version 2 by itself, or version 1 with devices.
fn is_usable(mounts: &str) -> bool {
    mounts.lines().any(|line| {
        let Some((before, after)) = line.split_once(" - ") else {
            return false;
        };
        let place = before.split(' ').nth(4).unwrap_or_default();
        let mut after = after.split(' ');
        let kind = after.next().unwrap_or_default();
        let options = after.nth(1).unwrap_or_default();
        match kind {
            "cgroup2" => place == "/sys/fs/cgroup",
            "cgroup" => options.split(',').any(|word| word == "devices"),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_shares_the_file_system_unless_one_is_mounted_on_it() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("softmig");
        assert!(!shares_run(&inside));
        std::fs::create_dir(&inside).unwrap();
        assert!(shares_run(&inside));
        assert!(!shares_run(Path::new("/proc")));
    }

    #[test]
    fn the_first_line_that_differs_is_found() {
        for (own, other, line) in [
            ("a\nb\n", "a\nb\n", None),
            ("a\nb\n", "a\nc\n", Some(2)),
            ("a\n", "a\nb\n", Some(2)),
            ("a\n", "a", Some(2)),
            ("", "a\n", Some(1)),
        ] {
            assert_eq!(
                first_difference(own.as_bytes(), other.as_bytes()),
                line,
                "{own:?} {other:?}"
            );
        }
    }

    #[test]
    fn hierarchies_are_told_by_their_mounts() {
        for (mounts, usable) in [
            (
                "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n",
                true,
            ),
            (
                "124 119 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n",
                true,
            ),
            (
                "129 119 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                 128 119 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n",
                false,
            ),
            ("", false),
        ] {
            assert_eq!(is_usable(mounts), usable, "{mounts}");
        }
    }

    #[test]
    fn a_place_is_shown_in_few_letters() {
        let list = "8:pids:/x\n5:devices:/y\x1b[2J\n0::/z\n";
        assert_eq!(shortened(list), "5:devices:/y[2J 0::/z");
    }
}
