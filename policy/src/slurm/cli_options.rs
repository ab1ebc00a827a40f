//! The options that a user types after sbatch, srun or salloc, and the request that Slurm's client makes of them.

use crate::slurm::gres::Prefix;
use crate::slurm::hostlist;
use crate::slurm::job_request::Request;
use crate::slurm::release::SlurmVersion;
use std::fmt;

/// The words of `--exclusive` that ask for whole nodes: the one that clients put for none, and the one that 26.05 has.
pub const WHOLE_NODES: [&str; 2] = ["exclusive", "allocation"];

/// Whether this word of `--exclusive` asks for whole nodes.
pub fn is_exclusive(word: &str) -> bool {
    WHOLE_NODES.contains(&word)
}

/// The options that have to do with GPUs, as typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `--gres`.
    pub gres: Option<String>,
    /// `--gpus`.
    pub gpus: Option<String>,
    /// `--gpus-per-node`.
    pub gpus_per_node: Option<String>,
    /// `--gpus-per-task`.
    pub gpus_per_task: Option<String>,
    /// `--gpus-per-socket`.
    pub gpus_per_socket: Option<String>,
    /// `--tres-per-task`.
    pub tres_per_task: Option<String>,
    /// `--nodes`: `2`, `1-4`.
    pub nodes: Option<String>,
    /// `--nodelist`: `n[1-2],n7`.
    pub nodelist: Option<String>,
    /// `--ntasks`.
    pub ntasks: Option<u32>,
    /// `--ntasks-per-node`.
    pub ntasks_per_node: Option<u32>,
    /// `--cpus-per-task`.
    pub cpus_per_task: Option<u32>,
    /// `--sockets-per-node`.
    pub sockets_per_node: Option<u32>,
    /// `--exclusive` for whole nodes, as [`is_exclusive`] has it.
    pub exclusive: bool,
    /// `--mem-per-gpu`.
    pub mem_per_gpu: Option<String>,
    /// `--cpus-per-gpu`.
    pub cpus_per_gpu: Option<u32>,
    /// `--ntasks-per-gpu`.
    pub ntasks_per_gpu: Option<u32>,
    /// `--gpu-freq`.
    pub gpu_freq: Option<String>,
    /// `--mem`.
    pub mem: Option<String>,
    /// `--mem-per-cpu`.
    pub mem_per_cpu: Option<String>,
}

/// An option's value that Slurm's own client would not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--{option}={value}: {reason}")]
pub struct OptionError {
    option: &'static str,
    value: String,
    reason: &'static str,
}

impl Options {
    /// The request that this Slurm's client sends for these options.
    ///
    /// ```
    /// use softmig_policy::slurm::cli_options::Options;
    /// let options = Options { gpus: Some("l40s.4:1".into()), ..Options::default() };
    /// let request = options.to_request("22.05".parse().unwrap()).unwrap();
    /// assert_eq!(request.tres_per_job.as_deref(), Some("gres:gpu:l40s.4:1"));
    /// ```
    pub fn to_request(&self, version: SlurmVersion) -> Result<Request, OptionError> {
        self.to_request_marked(version.prefix())
    }

    /// The same, with this mark on each GRES without a mark.
    pub fn to_request_marked(&self, prefix: Prefix) -> Result<Request, OptionError> {
        let gpus = |value: &Option<String>| value.as_deref().map(|value| as_gpus(value, prefix));
        let gres = self
            .gres
            .as_deref()
            .filter(|gres| *gres != "none")
            .map(|gres| prefixed(gres, prefix));
        let per_node = [gres, gpus(&self.gpus_per_node)];
        let (min_nodes, max_nodes) = match &self.nodes {
            Some(nodes) => nodes_of(nodes)?,
            None => (None, None),
        };
        // Without a number of nodes, the clients count the names.
        let named = self.nodelist.as_deref().map(|list| match list {
            // A file of names, which is read when the job is submitted.
            file if file.contains('/') => 1,
            list => u32::try_from(hostlist::expand(list).len()).unwrap_or(u32::MAX),
        });
        let min_nodes = min_nodes.or(named.filter(|&count| count > 0));
        let memory = |option, text: &Option<String>| {
            let text = text.as_deref();
            text.map(|text| memory_of(option, text)).transpose()
        };
        let mib = memory("mem-per-gpu", &self.mem_per_gpu)?;
        let per_gpu = |figure: &dyn fmt::Display| format!("{}gpu:{figure}", prefix.as_str());
        Ok(Request {
            tres_per_node: join(per_node),
            tres_per_job: gpus(&self.gpus),
            tres_per_socket: gpus(&self.gpus_per_socket),
            tres_per_task: join([self.tres_per_task.clone(), gpus(&self.gpus_per_task)]),
            tres_freq: self.gpu_freq.as_ref().map(|freq| format!("gpu:{freq}")),
            cpus_per_tres: self.cpus_per_gpu.map(|cpus| per_gpu(&cpus)),
            mem_per_tres: mib.map(|mib| per_gpu(&mib)),
            ntasks_per_tres: self.ntasks_per_gpu,
            min_nodes,
            max_nodes,
            num_tasks: self.ntasks,
            ntasks_per_node: self.ntasks_per_node,
            cpus_per_task: self.cpus_per_task,
            sockets_per_node: self.sockets_per_node,
            exclusive: self.exclusive,
            memory_per_node: memory("mem", &self.mem)?,
            memory_per_cpu: memory("mem-per-cpu", &self.mem_per_cpu)?,
            ..Request::default()
        })
    }
}

fn join(texts: [Option<String>; 2]) -> Option<String> {
    let texts: Vec<String> = texts.into_iter().flatten().collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

/// `gpu:a:1,license:2` with the release's mark on each item.
fn prefixed(gres: &str, prefix: Prefix) -> String {
    let mark = prefix.as_str();
    let items: Vec<String> = gres
        .split(',')
        .map(|item| match item.strip_prefix(mark) {
            Some(rest) => format!("{mark}{rest}"),
            None => format!("{mark}{item}"),
        })
        .collect();
    items.join(",")
}

/// `l40s:1` as a GRES.
fn as_gpus(value: &str, prefix: Prefix) -> String {
    let items: Vec<String> = value
        .split(',')
        .map(|item| format!("{}gpu:{item}", prefix.as_str()))
        .collect();
    items.join(",")
}

/// `2`, `1-4`.
fn nodes_of(text: &str) -> Result<(Option<u32>, Option<u32>), OptionError> {
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    match (min.parse(), max.parse()) {
        // Slurm writes "no upper figure" as 0.
        (Ok(min), Ok(0)) => Ok((Some(min), None)),
        (Ok(min), Ok(max)) if min <= max => Ok((Some(min), Some(max))),
        _ => Err(OptionError {
            option: "nodes",
            value: text.to_string(),
            reason: "write a number, or two such as 1-4",
        }),
    }
}

/// Slurm's host memory: MiB without a unit, otherwise K, M, G or T; part of a MiB counts as one.
fn memory_of(option: &'static str, text: &str) -> Result<u64, OptionError> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number = digits.parse::<u64>().ok();
    let mib = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "k" | "kb" => number.map(|kib| kib.div_ceil(1024)),
        "" | "m" | "mb" => number,
        "g" | "gb" => number.and_then(|gib| gib.checked_mul(1 << 10)),
        "t" | "tb" => number.and_then(|tib| tib.checked_mul(1 << 20)),
        _ => None,
    };
    mib.ok_or(OptionError {
        option,
        value: text.to_string(),
        reason: "write for example 4G or 4096M",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> SlurmVersion {
        text.parse().unwrap()
    }

    #[test]
    fn options_become_the_fields_that_slurm_fills() {
        let options = Options {
            gres: Some("gpu:l40s.4:1,license:2".into()),
            gpus_per_node: Some("2".into()),
            gpus_per_task: Some("l40s:1".into()),
            tres_per_task: Some("cpu=2".into()),
            nodes: Some("1-4".into()),
            mem_per_gpu: Some("4G".into()),
            cpus_per_gpu: Some(2),
            ..Options::default()
        };
        let request = options.to_request(version("24.11")).unwrap();
        assert_eq!(
            request.tres_per_node.as_deref(),
            Some("gres/gpu:l40s.4:1,gres/license:2,gres/gpu:2")
        );
        assert_eq!(
            request.tres_per_task.as_deref(),
            Some("cpu=2,gres/gpu:l40s:1")
        );
        assert_eq!((request.min_nodes, request.max_nodes), (Some(1), Some(4)));
        assert_eq!(request.mem_per_tres.as_deref(), Some("gres/gpu:4096"));
        assert_eq!(request.cpus_per_tres.as_deref(), Some("gres/gpu:2"));
    }

    #[test]
    fn a_list_of_nodes_is_a_number_of_nodes() {
        for (nodes, nodelist, least) in [
            (None, "n1", 1),
            (None, "n1,n2", 2),
            (None, "n[1-3],m7", 4),
            (Some("1-4"), "n1,n2", 1),
        ] {
            let options = Options {
                nodes: nodes.map(str::to_string),
                nodelist: Some(nodelist.into()),
                ..Options::default()
            };
            let request = options.to_request(version("24.11")).unwrap();
            assert_eq!(request.min_nodes, Some(least), "{nodelist}");
        }
    }

    #[test]
    fn values_that_slurm_would_not_take_are_named() {
        let bad = Options {
            nodes: Some("4-1".into()),
            ..Options::default()
        };
        let error = bad.to_request(SlurmVersion::NEWEST).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--nodes=4-1: write a number, or two such as 1-4"
        );
    }
}
