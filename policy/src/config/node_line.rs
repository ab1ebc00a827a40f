//! The words of `slurm` in `[[nodes]]`, which end a NodeName line: slurmctld does not start with one that it does not know.

use crate::config::suggest::nearest;
use crate::slurm::conf::words;
use crate::slurm::gres_list::Configured;
use crate::slurm::plain::is_plain;

/// The keys of a NodeName line, from Slurm 20.11 to 26.05. Slurm takes them in upper and lower case.
const KEYS: [&str; 29] = [
    "BcastAddr",
    "Boards",
    "CoreSpecCount",
    "CoresPerSocket",
    "CPUs",
    "CpuSpecList",
    "CpuBind",
    "Feature",
    "Features",
    "Gres",
    "GresConf",
    "MemSpecLimit",
    "NodeAddr",
    "NodeHostname",
    "Parameters",
    "Port",
    "Procs",
    "RealMemory",
    "Reason",
    "RestrictedCoresPerGPU",
    "Sockets",
    "SocketsPerBoard",
    "State",
    "SuspendTime",
    "ThreadsPerCore",
    "TmpDisk",
    "Topology",
    "TRESWeights",
    "Weight",
];

/// GRES that `gpus` says.
const OURS: [&str; 3] = ["gpu", "shard", "mps"];

/// Less than this is a figure in GB.
const LEAST_MEMORY_MB: u64 = 1024;

/// Words for a line of slurm.conf that end with it.
pub(crate) fn check_slurm_words(words: &str) -> Result<(), String> {
    let plain = words.chars().all(is_plain);
    if plain && !words.contains(['#', '\\']) {
        return Ok(());
    }
    Err(format!(
        "slurm = \"{words}\" is not one line of plain words for slurm.conf"
    ))
}

pub(crate) fn check(line: &str) -> Result<(), String> {
    words(line).iter().try_for_each(|word| check_word(word))
}

fn check_word(word: &str) -> Result<(), String> {
    let Some((key, value)) = word.split_once('=') else {
        return Err(format!(
            "slurm has \"{word}\", which sets nothing; write KEY=VALUE"
        ));
    };
    // Slurm takes `Weight+=1` as well.
    let key = key.strip_suffix(['-', '*', '+', '/']).unwrap_or(key);
    if key.eq_ignore_ascii_case("NodeName") {
        return Err("slurm has NodeName=: names says it".to_string());
    }
    let mut keys = KEYS.into_iter();
    let Some(known) = keys.find(|known| known.eq_ignore_ascii_case(key)) else {
        return Err(unknown(key));
    };
    match known {
        "Gres" => check_gres(word, value),
        "RealMemory" => check_memory(word, value),
        _ => Ok(()),
    }
}

fn unknown(key: &str) -> String {
    match nearest(key, KEYS.into_iter()) {
        Some(meant) => {
            format!("slurm has {key}=, which NodeName lines do not have; did you mean {meant}?")
        }
        None => format!(
            "slurm has {key}=, which is nothing that a NodeName line has; 'man slurm.conf' says what it has"
        ),
    }
}

/// A site's own GRES, such as licences of a node, is its own to say.
fn check_gres(word: &str, value: &str) -> Result<(), String> {
    let gres = Configured::parse(value);
    match gres.iter().find(|gres| OURS.contains(&gres.name.as_str())) {
        Some(gres) => Err(format!(
            "slurm has {word}: gpus says which GPUs a node has, and shards are made of them; leave {} out here",
            gres.name
        )),
        None => Ok(()),
    }
}

/// Slurm would read 512G as far more than 512 GB.
fn check_memory(word: &str, value: &str) -> Result<(), String> {
    match value.parse::<u64>() {
        Ok(LEAST_MEMORY_MB..) => Ok(()),
        Ok(_) => Err(format!(
            "slurm has {word}, which is less than any node with GPUs has: it counts MB, as 'slurmd -C' prints it"
        )),
        Err(_) => Err(format!(
            "slurm has {word}: it counts MB and takes a plain number, as 'slurmd -C' prints it; for 512 GB write RealMemory=512000"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_line_may_have_is_taken_in_any_case() {
        for words in [
            "",
            "CPUs=64 Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=512000",
            "cpus=64 realmemory=1024 CPUSpecList=0-1 CPUBind=core TRESWEIGHTS=CPU=1.0,Mem=0.25G",
            "Reason=\"a fan = loud\"  State=DOWN",
            "CPUs = 64 RealMemory =\"512000\" Weight+=1",
            "Feature=a,b Features=c Gres=lustre:1,gpu_licence:2",
        ] {
            assert_eq!(check(words), Ok(()), "{words}");
        }
        for key in KEYS.iter().filter(|key| **key != "RealMemory") {
            assert_eq!(check(&format!("{key}=1")), Ok(()), "{key}");
        }
    }

    #[test]
    fn what_slurmctld_would_not_start_with_is_told() {
        for (words, expected) in [
            (
                "CPUs=64 Socket=2",
                "slurm has Socket=, which NodeName lines do not have; did you mean Sockets?",
            ),
            (
                "realmem=512000",
                "slurm has realmem=, which NodeName lines do not have; did you mean RealMemory?",
            ),
            (
                "XyzQ=1",
                "slurm has XyzQ=, which is nothing that a NodeName line has; 'man slurm.conf' says what it has",
            ),
            ("nodename=n1", "slurm has NodeName=: names says it"),
            (
                "Gres=lustre:1,gpu:l40s:4",
                "slurm has Gres=lustre:1,gpu:l40s:4: gpus says which GPUs a node has, and shards are made of them; leave gpu out here",
            ),
            (
                "gres=shard:16",
                "slurm has gres=shard:16: gpus says which GPUs a node has, and shards are made of them; leave shard out here",
            ),
            (
                "RealMemory=512GB",
                "slurm has RealMemory=512GB: it counts MB and takes a plain number, as 'slurmd -C' prints it; for 512 GB write \
                 RealMemory=512000",
            ),
            (
                "RealMemory=512",
                "slurm has RealMemory=512, which is less than any node with GPUs has: it counts MB, as 'slurmd -C' prints it",
            ),
        ] {
            assert_eq!(check(words), Err(expected.to_string()), "{words}");
        }
    }
}
