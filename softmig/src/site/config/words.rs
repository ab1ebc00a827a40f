//! The facts about a node in the site's own words of its line.

use softmig_policy::config::inventory::Nodes;
use softmig_policy::slurm::conf::{pairs, value};

/// The value of a word such as CPUs=64; Slurm takes any case.
pub(super) fn word(words: &str, key: &str) -> Option<String> {
    value(&pairs(words), key).map(str::to_string)
}

fn number(nodes: &Nodes, key: &str) -> Option<u64> {
    word(nodes.slurm(), key)?.parse().ok()
}

fn sockets(nodes: &Nodes) -> Option<u64> {
    let boards = number(nodes, "Boards").unwrap_or(1);
    let by_board = number(nodes, "SocketsPerBoard").map(|sockets| sockets * boards);
    number(nodes, "Sockets").or(by_board)
}

fn threads_per_core(nodes: &Nodes) -> u64 {
    number(nodes, "ThreadsPerCore").unwrap_or(1).max(1)
}

/// The CPUs of a node.
fn cpus(nodes: &Nodes) -> Option<u64> {
    let by_sockets = || {
        let cores = sockets(nodes)? * number(nodes, "CoresPerSocket")?;
        Some(cores * threads_per_core(nodes))
    };
    number(nodes, "CPUs").or_else(by_sockets)
}

/// The memory that each CPU has of a node's, in MiB.
pub(super) fn memory_per_cpu(nodes: &Nodes) -> Option<u64> {
    let memory = number(nodes, "RealMemory")?.checked_div(cpus(nodes)?)?;
    (memory > 0).then_some(memory)
}

/// The cores of a node, if it says what sockets they are in.
pub(super) fn cores_in_sockets(nodes: &Nodes) -> Option<u64> {
    if sockets(nodes).is_none() && number(nodes, "CoresPerSocket").is_none() {
        return None;
    }
    Some(cpus(nodes)? / threads_per_core(nodes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_policy::Policy;

    fn of<T>(words: &str, what: fn(&Nodes) -> T) -> T {
        let policy = Policy::parse(&format!(
            "plain_types = [\"x\"]\n[[nodes]]\nnames = \"n1\"\ngpus = [\"x:1\"]\nslurm = \"{words}\"\n"
        ))
        .unwrap();
        what(&policy.nodes()[0])
    }

    #[test]
    fn memory_is_divided_among_the_cpus() {
        assert_eq!(of("cpus=64 realmemory=512000", memory_per_cpu), Some(8000));
        assert_eq!(
            of(
                "Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=512000",
                memory_per_cpu
            ),
            Some(8000)
        );
        for words in [
            "",
            "CPUs=64",
            "RealMemory=2000",
            "CPUs=0 RealMemory=2000",
            "CPUs=2001 RealMemory=2000",
        ] {
            assert_eq!(of(words, memory_per_cpu), None, "{words}");
        }
    }

    #[test]
    fn cores_count_where_their_sockets_are_known() {
        for words in [
            "CPUs=64 Sockets=2 ThreadsPerCore=2",
            "Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2",
            "CPUs=32 CoresPerSocket=16",
        ] {
            assert_eq!(of(words, cores_in_sockets), Some(32), "{words}");
        }
        for words in ["CPUs=64", "Sockets=2", "RealMemory=2000"] {
            assert_eq!(of(words, cores_in_sockets), None, "{words}");
        }
    }
}
