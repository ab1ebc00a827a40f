//! `cargo xtask demo --shell`: the demo's cluster with a prompt on each of its machines, to type requests of one's own.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::Command;

use anyhow::{Context, Result};
use softmig_tests::programs::FOLDER;
use softmig_tests::{Call, Cluster, Node};

use crate::tour::{ENFORCE, STEP, bash, monitor};

/// Lets the nodes enforce, and gives prompts until one leaves.
pub(crate) fn open(cluster: &Cluster) -> Result<()> {
    let mut monitors = Vec::new();
    for node in cluster.nodes() {
        node.start_driver()?;
        node.run_as_root(&bash(ENFORCE))?.ok()?;
        monitors.push(monitor(cluster, node)?);
    }
    println!("{}", help(cluster));
    loop {
        print!("softmig demo> ");
        io::stdout().flush()?;
        let Some(line) = typed_line()? else { break };
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] => {}
            ["exit" | "quit"] => break,
            [user @ ("alice" | "bob" | "root")] => {
                prompt("login", user, |argv| cluster.command(user, argv))?
            }
            [name, rest @ ..] => match (node(cluster, name), rest) {
                (Some(node), []) => prompt(name, "root", |argv| node.command("root", argv))?,
                (Some(node), [user @ ("alice" | "bob" | "root")]) => {
                    prompt(name, user, |argv| node.command(user, argv))?;
                }
                _ => println!("{}", help(cluster)),
            },
        }
    }
    println!("The cluster ends, and nothing of it stays.");
    Ok(())
}

fn help(cluster: &Cluster) -> String {
    let nodes: Vec<&str> = cluster.nodes().iter().map(Node::name).collect();
    let nodes = nodes.join(", ");
    format!(
        "\nThe cluster is up: Slurm {}, nodes {nodes} with two simulated L40S each, softmig in all of it.\n\
         Type one of these here, and 'exit' in its prompt to come back:\n  \
           alice, bob   a user where jobs are submitted: sbatch --gres=gpu:l40s.4:1 --wrap='sleep 600'; softmig status; softmig free\n  \
           root         the administrator there: /etc/softmig/policy.toml, softmig check\n  \
           NODE [USER]  root on a node, or a user: softmig monitor, /var/run/softmig\n  \
           exit         ends the cluster\n\
         In a job, 'srun {FOLDER}/takes cuMemAlloc_v2 {STEP} hold 0 </dev/null' takes GPU memory until there is no more.",
        cluster.slurm()
    )
}

fn node<'a>(cluster: &'a Cluster, name: &str) -> Option<&'a Node> {
    cluster.nodes().iter().find(|node| node.name() == name)
}

/// A shell of this user there, until it ends.
fn prompt(host: &str, user: &str, call: impl Fn(&[&str]) -> Call) -> Result<()> {
    let mark = if user == "root" { '#' } else { '$' };
    let shell = format!("PS1='{user}@{host}{mark} ' exec bash --norc");
    // A terminal of its own, so that Ctrl-C and job control work across the namespaces.
    let by_terminal = ["script", "--quiet", "--command", &shell, "/dev/null"];
    let argv = match io::stdin().is_terminal() {
        true => &by_terminal[..],
        false => &["bash"],
    };
    let term = std::env::var_os("TERM").unwrap_or_else(|| "dumb".into());
    let mut command: Command = call(argv).env("TERM", term).attached()?;
    // Its own end is no fault.
    command.status().context("starting a shell")?;
    Ok(())
}

/// The next line, and not a byte more: shells read the rest. `None` at the end.
fn typed_line() -> Result<Option<String>> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        match rustix::io::read(io::stdin().as_fd(), &mut byte) {
            Ok(0) if line.is_empty() => return Ok(None),
            Ok(0) => break,
            Ok(_) if byte == [b'\n'] => break,
            Ok(_) => line.extend(byte),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("reading what was typed"),
        }
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}
