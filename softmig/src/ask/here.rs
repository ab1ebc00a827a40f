//! This machine and its Slurm, by Slurm's own commands. slurmctld need not run for it.

use softmig_node::slurmctld::Commands;
use softmig_policy::slurm::release::SlurmVersion;
use std::process::Command;

/// Its commands, with the slurm.conf that the caller uses; `None` where they are not.
pub(crate) fn commands() -> Option<Commands> {
    Commands::beside(None, std::env::var_os("SLURM_CONF"))
}

/// Its daemons, which say their release without a slurm.conf. Its commands do not.
const DAEMONS: [&str; 4] = [
    "/usr/sbin/slurmctld",
    "/usr/local/sbin/slurmctld",
    "/usr/sbin/slurmd",
    "/usr/local/sbin/slurmd",
];

/// The release; `None` where Slurm is not here or does not say.
pub(crate) fn version() -> Option<SlurmVersion> {
    DAEMONS
        .iter()
        .find_map(|path| of_daemon(path))
        .or_else(of_commands)
}

fn of_daemon(path: &str) -> Option<SlurmVersion> {
    let output = Command::new(path).arg("-V").output().ok()?;
    String::from_utf8(output.stdout).ok()?.parse().ok()
}

fn of_commands() -> Option<SlurmVersion> {
    let commands = Commands::beside(None, None)?;
    commands
        .answer("scontrol", &["--version"])
        .ok()?
        .parse()
        .ok()
}

/// Its daemon of nodes, which finds out about the machine.
const NODE_DAEMONS: [&str; 2] = ["/usr/sbin/slurmd", "/usr/local/sbin/slurmd"];

/// The CPUs and the memory of this machine as a NodeName line has them; `None` where no slurmd is here.
pub(crate) fn node_words() -> Option<String> {
    let output = NODE_DAEMONS
        .iter()
        .find_map(|path| Command::new(path).arg("-C").output().ok())?;
    words_of(&String::from_utf8(output.stdout).ok()?)
}

/// The GPUs are not among them: NVML knows more about these.
fn words_of(said: &str) -> Option<String> {
    const KEYS: [&str; 7] = [
        "CPUs=",
        "Boards=",
        "Sockets=",
        "SocketsPerBoard=",
        "CoresPerSocket=",
        "ThreadsPerCore=",
        "RealMemory=",
    ];
    let line = said.lines().find(|line| line.starts_with("NodeName="))?;
    let is_one = |word: &&str| KEYS.iter().any(|key| word.starts_with(key));
    let words: Vec<&str> = line.split_whitespace().filter(is_one).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::words_of;

    #[test]
    fn a_node_is_its_processors_and_its_memory() {
        let said = "NodeName=gpu01 CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=515000 \
                    Gres=gpu:l40s:4\nFound gpu:l40s:4\nUpTime=3-01:02:03\n";
        assert_eq!(
            words_of(said).as_deref(),
            Some(
                "CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=515000"
            )
        );
        assert_eq!(words_of("slurmd: error: no such thing\n"), None);
    }
}
