//! A machine made for one test: a Debian root with a throw-away layer, in namespaces of its own.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, anyhow, bail};

use crate::command::{Call, with_default_signals};
use crate::gpus::{Gpu, Gpus};
use crate::node::Node;
use crate::slurm::Slurm;
use crate::spec::{Answer, Install, NodeSpec, Spec};
use crate::{place, programs};

/// A running machine. It disappears, with all that runs in it, when dropped or when this process ends.
#[derive(Debug)]
pub struct Machine {
    supervisor: Child,
    init: i32,
    nodes: Vec<Node>,
}

impl Machine {
    /// Makes the machine that `spec` describes, with the given `softmig-cluster` program.
    pub fn start(spec: &Spec, program: &Path) -> Result<Machine> {
        if !rustix::process::geteuid().is_root() {
            bail!("a test cluster needs root, for its mounts and namespaces");
        }
        if !spec.root.join("usr/bin/dpkg").exists() {
            bail!(
                "{}: no Debian root there; run `cargo xtask test`",
                spec.root.display()
            );
        }
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        let mut supervisor = with_default_signals(program)
            .arg("supervise")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Interrupting the test from the keyboard must not take the supervisor away before it cleaned up.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let answer = talk(&mut supervisor, spec);
        let machine = |init, nodes| Machine {
            supervisor,
            init,
            nodes,
        };
        match answer {
            Ok(Answer::Up { init, nodes }) => {
                let nodes = spec.nodes.iter().zip(nodes);
                Ok(machine(
                    init,
                    nodes
                        .map(|(node, pid)| Node::new(&node.name, pid, &node.gpus))
                        .collect(),
                ))
            }
            Ok(Answer::Failed(why)) => {
                drop(machine(0, Vec::new()));
                Err(anyhow!(why).context("making the machine"))
            }
            Err(error) => {
                drop(machine(0, Vec::new()));
                Err(error.context("making the machine"))
            }
        }
    }

    /// Process 1 of the machine, as seen from here.
    pub fn init(&self) -> i32 {
        self.init
    }

    /// The supervisor's process.
    pub fn supervisor(&self) -> u32 {
        self.supervisor.id()
    }

    /// Its nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A command in the machine, as one of its users: `root`, `alice` or `bob`.
    pub fn command(&self, user: &str, argv: &[impl AsRef<OsStr>]) -> Call {
        Call::new(self.init, user, argv)
    }

    /// Where a path of the machine is found from here, for reading and writing.
    pub fn path(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        place::inside(&self.outside(), path.as_ref())
    }

    /// The text of a file, or nothing when it is not there.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Option<String>> {
        place::read(&self.outside(), path.as_ref())
    }

    /// Writes a file of root's with mode 0644, or 0755 for a script.
    pub fn write(&self, path: impl AsRef<Path>, contents: &str) -> Result<()> {
        let mode = if contents.starts_with("#!") {
            0o755
        } else {
            0o644
        };
        place::write(&self.outside(), path.as_ref(), contents.as_bytes(), mode)
    }

    fn outside(&self) -> PathBuf {
        format!("/proc/{}/root", self.init).into()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        match self.supervisor.wait() {
            Ok(status) if status.success() => {}
            ended => eprintln!("the cluster's supervisor ended badly: {ended:?}"),
        }
    }
}

fn talk(supervisor: &mut Child, spec: &Spec) -> Result<Answer> {
    let pipe = supervisor
        .stdin
        .as_mut()
        .context("talking to the supervisor")?;
    writeln!(pipe, "{}", serde_json::to_string(spec)?).context("talking to the supervisor")?;
    let stdout = supervisor
        .stdout
        .take()
        .context("listening to the supervisor")?;
    let mut line = String::new();
    BufReader::new(stdout)
        .read_line(&mut line)
        .context("listening to the supervisor")?;
    serde_json::from_str(&line).context("the machine died while it was made")
}

/// The `softmig-cluster` program: beside this executable, or one folder up, where cargo puts it for tests.
pub fn default_program() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("finding this program")?;
    exe.ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join("softmig-cluster"))
        .find(|program| program.exists())
        .ok_or_else(|| {
            anyhow!(
                "no softmig-cluster beside {}; `cargo build -p softmig-tests` makes it",
                exe.display()
            )
        })
}

/// A Debian root to run single commands in, without a cluster.
#[derive(Clone, Debug)]
pub struct Root {
    spec: Spec,
    program: Option<PathBuf>,
}

impl Root {
    /// The root that carries this version of Slurm. The one of 22.05 has lua5.1, lua5.3 and lua5.4 too.
    pub fn new(slurm: Slurm) -> Root {
        Root {
            spec: Spec {
                root: slurm.root(),
                ..Spec::default()
            },
            program: None,
        }
    }

    /// The root with the oldest C library, without Slurm.
    pub fn oldest() -> Root {
        Root {
            spec: Spec {
                root: crate::slurm::oldest(),
                ..Spec::default()
            },
            program: None,
        }
    }

    /// Lays a tree arranged like `/` over it.
    pub fn stage(mut self, tree: impl Into<PathBuf>) -> Root {
        self.spec.stages.push(tree.into());
        self
    }

    /// Lays a tree arranged like `/` under it, as it is, without what an administrator makes of softmig's tree.
    pub fn layer(mut self, tree: impl Into<PathBuf>) -> Root {
        self.spec.layers.push(tree.into());
        self
    }

    /// Copies a file into it.
    pub fn install(mut self, from: impl Into<PathBuf>, to: impl Into<PathBuf>, mode: u32) -> Root {
        self.spec.installs.push(Install {
            from: from.into(),
            to: to.into(),
            mode,
        });
        self
    }

    /// Writes a file into it.
    pub fn file(mut self, path: impl Into<PathBuf>, contents: impl Into<String>) -> Root {
        self.spec.files.push(crate::spec::File::new(path, contents));
        self
    }

    /// Brings the test clients and the driver they are tested with.
    pub fn programs(mut self) -> Root {
        programs::add_to(&mut self.spec);
        self
    }

    /// Makes a node with these GPUs in it.
    pub fn node(mut self, name: &str, kinds: impl IntoIterator<Item = Gpus>) -> Root {
        let kinds: Vec<Gpus> = kinds.into_iter().collect();
        self.spec.nodes.push(NodeSpec {
            name: name.into(),
            gpus: Gpu::of_node(self.spec.nodes.len(), &kinds),
        });
        self
    }

    /// The `softmig-cluster` program, where it is not beside this executable.
    pub fn supervisor(mut self, program: impl Into<PathBuf>) -> Root {
        self.program = Some(program.into());
        self
    }

    /// Makes it, for several commands.
    pub fn start(&self) -> Result<Machine> {
        let program = self.program.clone().map_or_else(default_program, Ok)?;
        Machine::start(&self.spec, &program)
    }

    /// Makes it, runs one command as root, and takes it away again.
    pub fn run(&self, argv: &[impl AsRef<OsStr>]) -> Result<crate::Output> {
        self.start()?.command("root", argv).output()
    }
}
