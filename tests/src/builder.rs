//! Describes a cluster and starts it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;

use crate::accounting::Accounting;
use crate::cluster::Cluster;
use crate::config::{Config, GRES_TYPES, Include, SELECT, cgroups_usable};
use crate::gpus::{Gpu, Gpus};
use crate::machine::{Machine, default_program};
use crate::place;
use crate::programs;
use crate::slurm::Slurm;
use crate::spec::{File, Install, NodeSpec, Spec};

/// A cluster about to be started; see [`Cluster::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    slurm: Slurm,
    nodes: usize,
    tag: Option<String>,
    gpus: Vec<Gpus>,
    gpus_of: BTreeMap<usize, Vec<Gpus>>,
    job_submit: Option<bool>,
    cli_filter: Option<bool>,
    prolog: Option<bool>,
    epilog: Option<bool>,
    accounting: Option<Accounting>,
    select: String,
    gres_types: String,
    debug: String,
    lines: Vec<String>,
    include: Option<Include>,
    spec: Spec,
    program: Option<PathBuf>,
}

impl Builder {
    pub(crate) fn new(slurm: Slurm) -> Builder {
        Builder {
            slurm,
            nodes: 1,
            tag: None,
            gpus: vec![Gpus::l40s(4)],
            gpus_of: BTreeMap::new(),
            job_submit: None,
            cli_filter: None,
            prolog: None,
            epilog: None,
            accounting: None,
            select: SELECT.into(),
            gres_types: GRES_TYPES.into(),
            debug: "verbose".into(),
            lines: Vec::new(),
            include: None,
            spec: Spec {
                root: slurm.root(),
                ..Spec::default()
            },
            program: None,
        }
    }

    /// How many nodes; 1 without it.
    pub fn nodes(mut self, count: usize) -> Builder {
        self.nodes = count;
        self
    }

    /// The beginning of node names. By default it is short, and no other running cluster has it: node names are also
    /// names of control groups, which all clusters of a machine share. `""` gives plain `n1`, `n2`.
    pub fn tag(mut self, tag: impl Into<String>) -> Builder {
        self.tag = Some(tag.into());
        self
    }

    /// The GPUs of every node; four L40S of four shards each without it.
    pub fn gpus(mut self, kinds: impl IntoIterator<Item = Gpus>) -> Builder {
        self.gpus = kinds.into_iter().collect();
        self
    }

    /// The GPUs of one node, counted from 0, where they differ.
    pub fn gpus_of(mut self, node: usize, kinds: impl IntoIterator<Item = Gpus>) -> Builder {
        self.gpus_of.insert(node, kinds.into_iter().collect());
        self
    }

    /// JobSubmitPlugins=lua; without a call, when `/etc/slurm/job_submit.lua` is among the files.
    pub fn job_submit(mut self, wanted: bool) -> Builder {
        self.job_submit = Some(wanted);
        self
    }

    /// CliFilterPlugins=lua; without a call, when `/etc/slurm/cli_filter.lua` is among the files.
    pub fn cli_filter(mut self, wanted: bool) -> Builder {
        self.cli_filter = Some(wanted);
        self
    }

    /// The Prolog line; without a call, when `/usr/libexec/softmig-prolog` is among the files.
    pub fn prolog(mut self, wanted: bool) -> Builder {
        self.prolog = Some(wanted);
        self
    }

    /// The Epilog line; without a call, when `/usr/libexec/softmig-epilog` is among the files.
    pub fn epilog(mut self, wanted: bool) -> Builder {
        self.epilog = Some(wanted);
        self
    }

    /// Accounts, QOS and limits: slurmdbd over MariaDB, which take about a second to start.
    pub fn accounting(mut self, accounting: Accounting) -> Builder {
        self.accounting = Some(accounting);
        self
    }

    /// SelectTypeParameters; `CR_Core_Memory` without it.
    pub fn select(mut self, parameters: impl Into<String>) -> Builder {
        self.select = parameters.into();
        self
    }

    /// GresTypes; `gpu,shard` without it.
    pub fn gres_types(mut self, names: impl Into<String>) -> Builder {
        self.gres_types = names.into();
        self
    }

    /// SlurmctldDebug and SlurmdDebug; `verbose` without it.
    pub fn debug(mut self, level: impl Into<String>) -> Builder {
        self.debug = level.into();
        self
    }

    /// A line added to slurm.conf.
    pub fn slurm_conf(mut self, line: impl Into<String>) -> Builder {
        self.lines.push(line.into());
        self
    }

    /// Includes a file in slurm.conf, which has none of the settings and nodes in it then. It is written as well.
    pub fn include(mut self, name: impl Into<String>, text: impl Into<String>) -> Builder {
        let (name, text) = (name.into(), text.into());
        let file = File::new(format!("/etc/slurm/{name}"), text.as_str());
        self.spec.files.push(file);
        self.include = Some(Include { name, text });
        self
    }

    /// Lays a tree of packages over the root, which is only read: it may be large.
    pub fn layer(mut self, tree: impl Into<PathBuf>) -> Builder {
        self.spec.layers.push(tree.into());
        self
    }

    /// Lays a tree arranged like `/` over the root: an installation of softmig.
    pub fn stage(mut self, tree: impl Into<PathBuf>) -> Builder {
        self.spec.stages.push(tree.into());
        self
    }

    /// Writes a file, over one of the stage if need be: mode 0755 if it begins with `#!`, else 0644.
    pub fn file(mut self, path: impl Into<PathBuf>, contents: impl Into<String>) -> Builder {
        self.spec.files.push(File::new(path, contents));
        self
    }

    /// Copies a file from outside.
    pub fn install(
        mut self,
        from: impl Into<PathBuf>,
        to: impl Into<PathBuf>,
        mode: u32,
    ) -> Builder {
        self.spec.installs.push(Install {
            from: from.into(),
            to: to.into(),
            mode,
        });
        self
    }

    /// Brings the test clients and the driver they are tested with.
    pub fn programs(mut self) -> Builder {
        programs::add_to(&mut self.spec);
        self
    }

    /// The `softmig-cluster` program, where it is not beside this executable.
    pub fn supervisor(mut self, program: impl Into<PathBuf>) -> Builder {
        self.program = Some(program.into());
        self
    }

    /// Starts the cluster and waits until every node is idle.
    pub fn start(self) -> Result<Cluster> {
        let program = self.program.clone().map_or_else(default_program, Ok)?;
        let tag = self.tag.clone().unwrap_or_else(unique_tag);
        let kinds = |node| self.gpus_of.get(&node).unwrap_or(&self.gpus).clone();
        let mut config = Config {
            slurm: self.slurm,
            nodes: (0..self.nodes)
                .map(|node| (format!("{tag}n{}", node + 1), kinds(node)))
                .collect(),
            cgroups: cgroups_usable(),
            job_submit: self.wanted(self.job_submit, "/etc/slurm/job_submit.lua"),
            cli_filter: self.wanted(self.cli_filter, "/etc/slurm/cli_filter.lua"),
            prolog: self.wanted(self.prolog, "/usr/libexec/softmig-prolog"),
            epilog: self.wanted(self.epilog, "/usr/libexec/softmig-epilog"),
            select: self.select,
            gres_types: self.gres_types,
            debug: self.debug,
            lines: self.lines,
            include: self.include,
        };

        let mut spec = self.spec;
        if let Some(accounting) = &self.accounting {
            let gpus = config.nodes.iter().flat_map(|(_, kinds)| kinds);
            let lines = accounting.slurm_conf(gpus);
            // First, so that a test's own lines come later and hold.
            config.lines.splice(0..0, lines);
            spec.files
                .insert(0, Accounting::slurmdbd_conf(&config.debug));
        }
        for (node, (name, kinds)) in config.nodes.iter().enumerate() {
            spec.nodes.push(NodeSpec {
                name: name.clone(),
                gpus: Gpu::of_node(node, kinds),
            });
        }
        // First, so that a test can bring a file of its own in the place of any of these.
        let generated = [
            File::new("/etc/slurm/slurm.conf", config.slurm_conf()),
            File::new("/etc/slurm/gres.conf", config.gres_conf()),
            File::new("/etc/slurm/cgroup.conf", config.cgroup_conf()),
        ];
        spec.files.splice(0..0, generated);

        Cluster::start(
            Machine::start(&spec, &program)?,
            &config,
            self.accounting.as_ref(),
        )
    }

    /// The choice that was asked for; else whether the file that it needs will be there.
    fn wanted(&self, asked: Option<bool>, path: &str) -> bool {
        let path = Path::new(path);
        let relative = path.strip_prefix("/").unwrap_or(path);
        asked.unwrap_or_else(|| {
            self.spec
                .stages
                .iter()
                .any(|tree| tree.join(relative).exists() || place::puts(tree, path))
                || self.spec.installs.iter().any(|file| file.to == path)
                || self.spec.files.iter().any(|file| file.path == path)
        })
    }
}

/// A beginning for node names: short, and different from that of every other cluster that runs on this machine. It is
/// made from the number of this process and of the cluster within it.
pub fn unique_tag() -> String {
    static CLUSTERS: AtomicU32 = AtomicU32::new(0);
    let mut number = (u64::from(std::process::id()) << 12)
        + u64::from(CLUSTERS.fetch_add(1, Ordering::Relaxed) & 0xfff);
    let mut tag = String::from("c");
    while number > 0 {
        // Letters only: Slurm reads digits before the `n` as a range of hosts.
        tag.push(char::from(
            b"abcdefghijklmopqrstuvwxyz"[(number % 25) as usize],
        ));
        number /= 25;
    }
    tag
}
