//! Steps of a long run: each is named and timed, and the one that failed is named at the end.

use std::fmt::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::place::{project, run};

/// The steps done so far.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(String, Duration)>,
    notes: Vec<String>,
}

impl Steps {
    /// Does one step. An error carries its name.
    pub(crate) fn step<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("\n=== {name}");
        let start = Instant::now();
        let outcome = work();
        let took = start.elapsed();
        self.done.push((name.into(), took));
        println!("=== {name}: {:.1} s", took.as_secs_f64());
        outcome.with_context(|| format!("the step that failed: {name}"))
    }

    /// Says something now, and again at the end.
    pub(crate) fn note(&mut self, text: String) {
        println!("\n{text}");
        self.notes.push(text);
    }

    /// One step that is one cargo command.
    pub(crate) fn cargo(&mut self, name: &str, words: &[&str]) -> Result<()> {
        self.step(name, || run(&mut cargo(words)))
    }

    /// All steps with their times.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::from("\n     s  step\n");
        for (name, took) in &self.done {
            let _ = writeln!(text, "{:6.1}  {name}", took.as_secs_f64());
        }
        let total: Duration = self.done.iter().map(|(_, took)| *took).sum();
        let _ = write!(text, "{:6.1}  in all", total.as_secs_f64());
        for note in &self.notes {
            let _ = write!(text, "\n{note}");
        }
        text
    }
}

/// Does steps, then says how long each took, whether all went well or not.
pub(crate) fn all(work: impl FnOnce(&mut Steps) -> Result<()>) -> Result<()> {
    let mut steps = Steps::default();
    let outcome = work(&mut steps);
    println!("{}", steps.summary());
    outcome
}

/// This cargo, in the workspace, with the versions of Cargo.lock.
pub(crate) fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(words).current_dir(project());
    command
}
