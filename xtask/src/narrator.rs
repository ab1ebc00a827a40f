//! Shows a running cluster to a reader: each command as typed, what it really said, and whether that was right.

use std::fmt::Display;

use anyhow::{Result, bail};
use softmig_tests::{Call, Client, Cluster, Node, Output};

/// Tells the steps of a tour through a cluster.
pub(crate) struct Narrator<'a> {
    cluster: &'a Cluster,
    step: u32,
}

/// The output of a command, kept so that it can be checked.
pub(crate) struct Shown {
    line: String,
    output: Output,
}

impl<'a> Narrator<'a> {
    pub(crate) fn new(cluster: &'a Cluster) -> Narrator<'a> {
        Narrator { cluster, step: 0 }
    }

    /// Begins a step.
    pub(crate) fn step(&mut self, title: impl Display) {
        self.step += 1;
        println!("\n[{}] {title}", self.step);
    }

    /// A sentence between commands.
    pub(crate) fn say(&self, text: impl Display) {
        println!("    {text}");
    }

    /// The step that is being told.
    pub(crate) fn number(&self) -> u32 {
        self.step
    }

    /// Types a command line on the machine of slurmctld.
    pub(crate) fn types(&self, user: &str, line: &str) -> Result<Shown> {
        show(user, "login", line, self.cluster.command(user, &bash(line)))
    }

    /// Types a command line on a node.
    pub(crate) fn types_on(&self, node: &Node, user: &str, line: &str) -> Result<Shown> {
        show(user, node.name(), line, node.command(user, &bash(line)))
    }

    /// The same, and does not wait for its end.
    pub(crate) fn begins_on(&self, node: &Node, user: &str, line: &str) -> Result<Client> {
        print_line(user, node.name(), &format!("{line} &"));
        node.command(user, &bash(line)).spawn()
    }

    /// The same on the machine of slurmctld.
    pub(crate) fn begins(&self, user: &str, line: &str) -> Result<Client> {
        print_line(user, "login", &format!("{line} &"));
        self.cluster.command(user, &bash(line)).spawn()
    }
}

impl Shown {
    /// Standard output of a command that must have succeeded.
    pub(crate) fn ok(self) -> Result<String> {
        if !self.output.success() {
            bail!(
                "`{}` should have succeeded: {}",
                self.line,
                self.output.status
            );
        }
        Ok(self.output.stdout)
    }

    /// Both outputs of a command that must have failed.
    pub(crate) fn refused(self) -> Result<String> {
        if self.output.success() {
            bail!("`{}` should have been refused, and was accepted", self.line);
        }
        Ok(self.output.stdout + &self.output.stderr)
    }
}

/// Fails unless the text holds this.
pub(crate) fn must_show(text: &str, wanted: &str) -> Result<()> {
    if !text.contains(wanted) {
        bail!(
            "{wanted:?} should be in it, and is not:\n{}",
            text.trim_end()
        );
    }
    Ok(())
}

fn bash(line: &str) -> [&str; 3] {
    ["bash", "-c", line]
}

fn print_line(user: &str, host: &str, line: &str) {
    let mark = if user == "root" { '#' } else { '$' };
    println!("    {user}@{host}{mark} {line}");
}

fn show(user: &str, host: &str, line: &str, call: Call) -> Result<Shown> {
    print_line(user, host, line);
    let output = call.output()?;
    for said in output.stdout.lines().chain(output.stderr.lines()) {
        println!("        {}", said.trim_end());
    }
    Ok(Shown {
        line: line.into(),
        output,
    })
}
